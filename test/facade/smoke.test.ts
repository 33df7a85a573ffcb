import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { checkSubmission } from "../../src/api/resources/jobs/submission.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import { SMOKE_KINDS, smokeJobs } from "../../src/smoke/jobs.ts"
import { requestsWithKey } from "../../src/smoke/requests.ts"
import { runSmoke, type SmokeOptions } from "../../src/smoke/smoke.ts"
import { caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-smoke")
let replica: Replica
let port = 0
const call = caller(() => replica, fixture)

beforeAll(async () => {
  // The smoke test has no dispatcher of its own: it finds this host by DNS.
  replica = await startReplica({ settings: { baseDomain: "localhost" } })
  port = replica.port
})
afterAll(() => replica.close())
beforeEach(async () => {
  const { items } = await fixture.client.list(CONNECTIONS, { namespace: fixture.namespace })
  for (const { metadata } of items) await fixture.client.delete(CONNECTIONS, metadata)
  const body = { name: "fresh", type: "aws", access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: "K7MDENG" }
  const created = await call("/1/connections", { body, host: `${fixture.project}.localhost` })
  expect(created.status, await created.clone().text()).toBe(201)
})

/** Runs the smoke test, whose jobs find no connection that is Ready, and returns what it shows. */
async function smoke(options: Partial<SmokeOptions>, onProgress: (line: string) => void) {
  const shown = { progress: [] as string[], report: "" }
  const isPassed = await runSmoke(
    {
      send: requestsWithKey({
        url: `http://localhost:${port}/projects/${fixture.project}`,
        apiKey: fixture.keys.admin,
      }),
      ...{ cloud: "aws", image: "busybox", kinds: ["cpu"], minutes: 1, waitMinutes: 1, version: "1.2.3" },
      intervalSeconds: 0.1,
      ...options,
    },
    {
      progress: (line) => {
        shown.progress.push(line)
        onProgress(line)
      },
      confirm: () => Promise.resolve(false),
      report: (markdown) => {
        shown.report = markdown
      },
    },
    new AbortController().signal,
  )
  expect(isPassed).toBe(false)
  return shown
}

async function checked(): Promise<StoredConnection> {
  const vms = { status: "True", reason: "PermissionsGranted", message: "VMs can start" }
  const ref = { namespace: fixture.namespace, name: "fresh" }
  return fixture.client.patchStatus(CONNECTIONS, ref, { merge: { status: { capabilities: { vms } } } })
}

it("the smoke test sends jobs that the API accepts", () => {
  const choice = { cloud: "aws", image: "busybox", region: "eu", bucket: "data", minutes: 1 }
  const jobs = smokeJobs(SMOKE_KINDS, choice)
  expect(jobs.map(({ kind }) => kind)).toEqual(SMOKE_KINDS)
  const context = { projectId: "p", organizationId: "o", catalogueErrors: () => [] }
  for (const { kind, body } of jobs) expect(checkSubmission(body, context), kind).toHaveProperty("submission")
})

it("the smoke test waits until a new connection is checked, and says so", async () => {
  let check: Promise<StoredConnection> | undefined
  const { progress } = await smoke({ checkSeconds: 600 }, (line) => {
    if (line.startsWith("waiting")) check = checked()
  })
  await check
  expect(progress.slice(0, 2)).toEqual([
    "waiting up to 600 s until Berth has checked the connection",
    "connection fresh: vms True",
  ])
})

it("the smoke test continues after its limit, and the report says that the connection is not checked", async () => {
  const { report } = await smoke({ checkSeconds: 0.2 }, () => undefined)
  expect(report).toContain("- connection fresh: not checked yet. `kubectl describe bconn` says why")
})

it("the smoke test does not wait for a connection that is checked", async () => {
  await checked()
  await eventually(async () => {
    const response = await call("/1/connections/fresh", { host: `${fixture.project}.localhost` })
    expect(await response.json()).toMatchObject({ capabilities: { vms: { status: "True" } } })
  })
  const { progress } = await smoke({}, () => undefined)
  expect(progress[0]).toBe("connection fresh: vms True")
})
