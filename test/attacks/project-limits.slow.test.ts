import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { CRON_JOBS, JOBS, PROJECTS } from "../../src/core/resources.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("attack-limits")
let replica: Replica
const call = caller(() => replica, fixture)

const LIMITS = { unfinishedJobs: 2, cronJobs: 1, apiKeys: 4, connections: 1, projectMib: 1 }

beforeAll(async () => {
  replica = await startReplica({ settings: { projectLimits: LIMITS } })
})
afterAll(() => replica.close())

const post = (path: string, body: object, headers: Record<string, string> = {}) => call(path, { body, headers })
const CRON_JOB = { cron_spec: "0 3 * * *", job_definition: { image: "alpine" } }
const CONNECTION = { type: "aws", access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: "x".repeat(40) }

/** Creates jobs like kubectl does. */
async function apply(count: number, name: string, spec: object): Promise<void> {
  for (let i = 0; i < count; i++) {
    const metadata = { name: `${name}-${i}`, namespace: fixture.namespace }
    const job = { apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata, spec }
    await fixture.client.create(JOBS, job as unknown as StoredJob)
  }
}

/** Ends a job like the operator does. */
async function end({ metadata }: StoredJob): Promise<void> {
  await fixture.client.patchStatus(JOBS, metadata, { merge: { status: { phase: "succeeded" } } })
}

async function jobs(): Promise<StoredJob[]> {
  return (await fixture.client.list(JOBS, { namespace: fixture.namespace })).items
}

describe("a developer key beyond its project's limits", () => {
  it("gets 429 with limit, use and advice for one more unfinished job, and may submit when a job has ended", async () => {
    expect((await post("/1/jobs", { name: "one", image: "a" }, { "Idempotency-Key": "one" })).status).toBe(201)
    expect((await post("/1/jobs", { name: "two", image: "a" })).status).toBe(201)
    const rejected = await post("/1/jobs", { name: "three", image: "a" })
    expect(rejected.headers.get("retry-after")).toBe("60")
    expect(await problemIn(rejected)).toMatchObject({
      status: 429,
      type: "https://berth.dev/problems/project-limit",
      detail: "The project has 2 unfinished jobs; the limit is 2. Wait until jobs end, or cancel some.",
    })
    // A repeated request creates nothing, so no limit applies to it.
    const repeated = await post("/1/jobs", { name: "one", image: "a" }, { "Idempotency-Key": "one" })
    expect(repeated.status).toBe(201)
    expect(await jobs()).toHaveLength(2)
    const [first] = await jobs()
    if (first !== undefined) await end(first)
    await eventually(async () => expect((await post("/1/jobs", { name: "three", image: "a" })).status).toBe(201))
  })

  it.each([
    ["cronjobs", "/1/cronjobs", { ...CRON_JOB, name: "first" }, { ...CRON_JOB, name: "second" }, "1 cronjobs"],
    [
      "connections",
      "/1/connections",
      { ...CONNECTION, name: "first" },
      { ...CONNECTION, name: "second" },
      "1 connections",
    ],
    ["keys", "/1/keys", { name: "fourth", role: "viewer" }, { name: "fifth", role: "viewer" }, "4 API keys"],
  ])("gets 403 for %s beyond the limit", async (_, path, last, beyond, use) => {
    expect((await post(path, last)).status).toBe(201)
    const problem = await problemIn(await post(path, beyond))
    expect(problem).toMatchObject({ status: 403, type: "https://berth.dev/problems/project-limit" })
    expect(problem.detail).toContain(`The project has ${use}; the limit is`)
  })

  it("gets 429 when the project's objects besides ended jobs fill its bytes", async () => {
    for (const job of await jobs()) await end(job)
    const spec = { image: "a", env: { FILL: "x".repeat(16_000) }, args: ["x".repeat(16_000)] }
    await apply(40, "by-kubectl", spec)
    const beyond = { ...CRON_JOB, name: "third" }
    await eventually(async () => {
      const { detail } = await problemIn(await post("/1/jobs", { image: "a" }))
      expect(detail).toMatch(/unfinished jobs; the limit is 2/)
    })
    for (const job of await jobs()) await end(job)
    await eventually(async () => {
      const { status, detail } = await problemIn(await post("/1/jobs", { image: "a" }))
      expect(`${status} ${detail}`).toMatch(
        /^429 The project stores 1\.\d MiB; the limit is 1\.0 MiB\. Berth is deleting/,
      )
    })
    expect((await problemIn(await post("/1/cronjobs", beyond))).status).toBe(403)
  })

  it("reads pages of at most 4 MiB, and misses no job by adding limit to offset", async () => {
    const fill = "x".repeat(16_000)
    const spec = { image: "a", env: { FILL: fill }, args: [fill], command: [fill] }
    await apply(100, "large", spec)
    const stored = (await jobs()).length
    const seen = new Set<string>()
    await eventually(async () => {
      const { total } = (await (await call("/1/jobs?limit=1")).json()) as { total: number }
      expect(total).toBe(stored)
    })
    let pages = 0
    for (let offset = 0; offset < stored; pages++) {
      const text = await (await call(`/1/jobs?limit=200&offset=${offset}`)).text()
      expect(text.length).toBeLessThan(4.1 * 1024 * 1024)
      const page = JSON.parse(text) as { jobs: { name: string }[]; limit: number }
      for (const { name } of page.jobs) seen.add(name)
      offset += page.limit
    }
    expect(seen.size).toBe(stored)
    expect(pages).toBeGreaterThan(1)
  })
})

describe("a project that is being deleted", () => {
  it("answers 409 to each creation, and still cancels and deletes", async () => {
    const before = await jobs()
    await fixture.client.patch(
      PROJECTS,
      { name: fixture.project },
      { merge: { metadata: { finalizers: ["test.dev/hold"] } } },
    )
    await fixture.client.delete(PROJECTS, { name: fixture.project })
    try {
      for (const [path, body] of [
        ["/1/jobs", { image: "a" }],
        ["/1/cronjobs", { ...CRON_JOB, name: "late" }],
        ["/1/connections", { ...CONNECTION, name: "late" }],
        ["/1/keys", { name: "late", role: "viewer" }],
      ] as const) {
        await eventually(async () => {
          const problem = await problemIn(await post(path, body))
          expect(problem).toMatchObject({ status: 409, type: "https://berth.dev/problems/being-deleted" })
          expect(problem.detail).toBe(`The project ${fixture.project} is being deleted. New objects are rejected.`)
        })
      }
      expect((await jobs()).length).toBe(before.length)
      expect((await call("/1/cronjobs/first", { method: "DELETE" })).status).toBe(204)
      expect((await fixture.client.list(CRON_JOBS, { namespace: fixture.namespace })).items).toEqual([])
    } finally {
      await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { metadata: { finalizers: null } } })
    }
  })
})
