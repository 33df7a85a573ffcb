import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { SessionOpened } from "../../src/api/resources/sessions/schema.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { events } from "../../src/core/kube/events.ts"
import { API_KEYS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { makeKey } from "../harness/api-keys.ts"
import { type Call, type Caller, caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, projectFixture, removeJob } from "../harness/facade-project.ts"
import { makeRunningVm } from "../harness/running-vms.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { accepted, type End, knock } from "./parties.ts"

const fixture = projectFixture("session-revocation")
let issuer: Issuer
let holder: Replica
let other: Replica
const call: Caller = caller(() => holder, fixture)
const callOther: Caller = caller(() => other, fixture)
let job: StoredJob
let vm: StoredLaunch
let count = 0

beforeAll(async () => {
  issuer = await startIssuer()
  const tokens = new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })
  holder = await startReplica({ tokens })
  other = await startReplica({ tokens })
})
afterAll(async () => {
  await Promise.all([holder.close(), other.close(), issuer.close()])
})
beforeEach(async () => {
  job = await applyJob(fixture, `job-${++count}`)
  vm = await makeRunningVm(fixture.client, { namespace: fixture.namespace, name: job.metadata.name })
})
afterEach(async () => {
  await removeJob(fixture, { namespace: fixture.namespace, name: job.metadata.name })
  await fixture.client.delete(LAUNCHES, { namespace: vm.metadata.namespace, name: vm.metadata.name })
})

/** Opens a session at its holder, and connects as its person. */
async function opened(credentials: Call): Promise<{ session: SessionOpened; end: End }> {
  const answer = await call(`/1/jobs/${job.metadata.name}/sessions`, { body: { command: ["sh"] }, ...credentials })
  if (answer.status !== 201) throw new Error(`not opened: ${answer.status} ${await answer.text()}`)
  const session = (await answer.json()) as SessionOpened
  const url = `http://127.0.0.1:${holder.port}${session.path}`
  const end = await accepted(knock(url, { protocols: [`berth.session.${session.token}`] }))
  return { session, end }
}

/** Returns the events about the job's sessions. */
async function messages(): Promise<string[]> {
  const { items } = await fixture.client.list(events, { namespace: fixture.namespace })
  const own = items.filter(({ involvedObject }) => involvedObject.uid === job.metadata.uid)
  return own.map(({ reason, message, reportingComponent }) => `${reportingComponent} ${reason}: ${message}`)
}

/** Asserts that the session has ended for this reason, and that its job's events say so. */
async function endsBy(reason: string, { session, end }: Awaited<ReturnType<typeof opened>>): Promise<void> {
  expect(await end.closed).toEqual([1008, reason])
  const { session_id: id, opened_by: by } = session
  await eventually(async () =>
    expect(await messages()).toEqual([
      `berth-facade SessionOpened: ${by} opened the session ${id} (exec).`,
      expect.stringMatching(
        `^berth-facade SessionEnded: The session ${id} of ${by} \\(exec\\) ended after \\d+ s, with 0 bytes to the container and 0 from it: ${reason}\\.$`,
      ),
    ]),
  )
  expect(holder.logged()).toContain('"msg":"a session has ended"')
}

async function person(sub: string, role: string | undefined): Promise<Call> {
  const members = role === undefined ? [] : [{ userId: `${issuer.url}#${sub}`, role }]
  await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { spec: { members } } })
  return { key: "", headers: { Authorization: `Bearer ${await issuer.token({ sub })}` } }
}

const LOST = "the credentials are no longer valid, or their role is too low"

describe("a session", () => {
  it("ends with its key, which was deleted at another replica", async () => {
    const made = await callOther("/1/keys", { body: { name: "doomed", role: "developer" } })
    const { id, value: key } = (await made.json()) as { id: string; value: string }
    const session = await eventually(() => opened({ key }))
    expect((await callOther(`/1/keys/${id}`, { method: "DELETE" })).status).toBe(204)
    await endsBy(LOST, session)
  })

  it("ends with the role of its key", async () => {
    const key = await makeKey(fixture.client, fixture.namespace, "developer", { name: "falling" })
    const session = await opened({ key })
    await fixture.client.patch(
      API_KEYS,
      { namespace: fixture.namespace, name: "falling" },
      { merge: { spec: { role: "viewer" } } },
    )
    await endsBy(LOST, session)
  })

  it("ends with its key, which expires", async () => {
    const expiresAt = new Date(Date.now() + 4000).toISOString()
    const key = await makeKey(fixture.client, fixture.namespace, "developer", { name: "brief", expiresAt })
    await endsBy(LOST, await opened({ key }))
  })

  it.each([["viewer"], ["none"]])("ends when its person's role falls from developer to %s", async (role) => {
    const credentials = await person("ada", "developer")
    const session = await eventually(() => opened(credentials))
    await person("ada", role === "none" ? undefined : role)
    await endsBy(LOST, session)
  })

  it("ends with its job's container", async () => {
    const session = await opened({})
    const ref = { namespace: vm.metadata.namespace, name: vm.metadata.name }
    const finish = { reason: "Succeeded", exitCode: 0, time: "2026-01-01T00:02:00Z" }
    await fixture.client.patchStatus(LAUNCHES, ref, { merge: { status: { agent: { finish } } } })
    await endsBy("the job's container has ended", session)
  })

  it("ends with its job, which was deleted", async () => {
    const session = await opened({})
    await removeJob(fixture, { namespace: fixture.namespace, name: job.metadata.name })
    await endsBy("the job was deleted", session)
  })

  it("ends by a request to another replica", async () => {
    const session = await opened({})
    const path = `/1/jobs/${job.metadata.name}/sessions`
    await eventually(async () => expect(await (await callOther(path)).json()).toMatchObject({ total: 1 }))
    expect((await callOther(`${path}/${session.session.session_id}`, { method: "DELETE" })).status).toBe(204)
    await endsBy("the session was ended by request", session)
  })

  // The last one: it deletes the project.
  it("ends with its project", async () => {
    const session = await opened({})
    await fixture.client.delete(PROJECTS, { name: fixture.project })
    expect(await session.end.closed).toEqual([1008, LOST])
  })
})
