import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { JobCancellations } from "../../src/api/resources/jobs/cancellations.ts"
import type { JobList } from "../../src/api/resources/jobs/groups.ts"
import { JOBS } from "../../src/core/resources.ts"
import { testNamespace } from "../control-plane.ts"
import { deleteKey, makeKey } from "../harness/api-keys.ts"
import { type Call, caller, created, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, jobsOf, projectFixture, removeJob, setStatus } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-cancellations")
const namespace = testNamespace("facade-cancellations-other")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica({ settings: { requestsPerMinute: 0 } })
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await jobsOf(fixture)) await removeJob(fixture, metadata)
  await eventually(() => expect(replica.jobs.store.list().some(isOwn)).toBe(false))
})

const isOwn = ({ metadata }: { metadata: { namespace?: string | undefined } }): boolean =>
  metadata.namespace === fixture.namespace

async function cancel(body: object, query = "", more: Call = {}): Promise<JobCancellations> {
  const response = await call(`/1/jobs/cancellations${query}`, { body, ...more })
  expect(response.status, await response.clone().text()).toBe(200)
  return (await response.json()) as JobCancellations
}

async function submit(name: string, more: object = {}): Promise<string> {
  return (await created(await call("/1/jobs", { body: { name, image: "a", ...more } }))).job_id
}

/** Returns the names of the cancelled jobs that the API server has. */
async function cancelled(): Promise<string[]> {
  return (await jobsOf(fixture))
    .filter(({ spec }) => spec.cancelled)
    .map(({ metadata }) => metadata.name)
    .toSorted()
}

/** Returns the number of jobs that the list shows with a status. */
async function total(status: string): Promise<number> {
  return ((await (await call(`/1/jobs?status=${status}`)).json()) as JobList).total
}

const NONE = { dry_run: false, remaining: 0, failed: [] }

describe("POST /1/jobs/cancellations", () => {
  it.each([
    ["labels", { labels: { sweep: "lr" } }, ["a", "b"]],
    ["tags", { tags: ["night"] }, ["b", "c"]],
    ["labels and tags", { labels: { sweep: "lr" }, tags: ["night"] }, ["b"]],
    ["a status", { status: "running" }, ["d"]],
    ["nothing that matches", { labels: { sweep: "none" } }, []],
  ])("cancels the jobs with %s, and no others", async (_, body, expected) => {
    await submit("a", { labels: { sweep: "lr" } })
    await submit("b", { labels: { sweep: "lr" }, tags: ["night"] })
    await submit("c", { tags: ["night"] })
    await submit("d")
    await setStatus(fixture, "d", { phase: "running" })
    await submit("ended", { labels: { sweep: "lr" }, tags: ["night"] })
    await setStatus(fixture, "ended", { phase: "failed" })
    await eventually(async () => expect(await total("running")).toBe(1))
    await eventually(async () => expect(await total("failed")).toBe(1))
    const count = { matched: expected.length, failed: [] }
    expect(await cancel(body, "?dry_run=true")).toEqual({
      ...count,
      dry_run: true,
      cancelled: 0,
      remaining: expected.length,
    })
    expect(await cancelled()).toEqual([])
    expect(await cancel(body)).toEqual({ ...NONE, ...count, cancelled: expected.length })
    expect(await cancelled()).toEqual(expected)
    // Lists show it at once, and a repetition finds nothing more.
    expect(await total("cancelled")).toBe(expected.length)
    expect(await cancel(body)).toEqual({ ...NONE, matched: 0, cancelled: 0 })
  })

  it("cancels jobs by name and id, and lists those that it can't cancel", async () => {
    const id = await submit("by-id")
    await submit("by-name")
    await submit("ended")
    await setStatus(fixture, "ended", { phase: "succeeded" })
    await eventually(async () => expect(await total("succeeded")).toBe(1))
    const names = [id, "by-name", "by-name", "ended", "missing"]
    const result = await cancel({ names })
    expect(result).toMatchObject({ matched: 2, cancelled: 2, remaining: 0 })
    expect(result.failed.toSorted((a, b) => a.status - b.status)).toEqual([
      { name: "missing", status: 404, detail: expect.stringContaining('"missing"') },
      { name: "ended", status: 409, detail: expect.stringContaining("already succeeded") },
    ])
    // A repetition finds them cancelled.
    expect(await cancel({ names: ["by-name", id] })).toEqual({ ...NONE, matched: 2, cancelled: 2 })
  })

  it("cancels a job whose state in the cache is stale", async () => {
    await submit("stale")
    const job = replica.jobs.store.get({ namespace: fixture.namespace, name: "stale" })
    await setStatus(fixture, "stale", { phase: "running" })
    expect(job?.status?.phase).not.toBe("running")
    expect(await cancel({ status: "queued" })).toMatchObject({ cancelled: expect.any(Number), failed: [] })
    await eventually(async () => {
      await cancel({ status: "running" })
      expect(await cancelled()).toEqual(["stale"])
    })
  })

  it.each<[string, object, string[]]>([
    ["nothing", {}, [""]],
    ["only nulls", { names: null, tags: null }, [""]],
    ["names and a filter", { names: ["a"], status: "queued", tags: ["a"] }, ["/status", "/tags"]],
    ["an empty filter", { labels: {} }, ["/labels"]],
    ["no names", { names: [] }, ["/names"]],
    ["an ended status", { status: "failed" }, ["/status"]],
    ["too many names", { names: Array.from({ length: 1001 }, (_, i) => `j${i}`) }, ["/names"]],
  ])("rejects %s, and cancels no job", async (_, body, pointers) => {
    await submit("a")
    const problem = await problemIn(await call("/1/jobs/cancellations", { body }))
    expect(problem.status).toBe(400)
    expect(problem.errors.map(({ pointer }) => pointer)).toEqual(pointers)
    expect(await cancelled()).toEqual([])
  })

  it("ends soon after the key is revoked, and says how many jobs were cancelled", async () => {
    const key = await makeKey(fixture.client, fixture.namespace, "developer", { name: "revoked" })
    await deleteKey(fixture.client, { namespace: fixture.namespace, name: "revoked" })
    await submit("a")
    const response = await call("/1/jobs/cancellations", { body: { status: "queued" }, key })
    expect(response.status).toBe(401)
    expect(await cancelled()).toEqual([])
  })

  it("leaves a job reachable whose name is the path's last part", async () => {
    const id = await submit("cancellations")
    for (const method of ["GET", "HEAD"])
      expect((await call("/1/jobs/cancellations", { method })).status, method).toBe(200)
    expect(await (await call("/1/jobs/cancellations")).json()).toMatchObject({ id, name: "cancellations" })
    const options = await call("/1/jobs/cancellations", { method: "OPTIONS" })
    expect(options.headers.get("allow")).toBe("GET, HEAD, POST, PATCH, OPTIONS")
    expect((await call("/1/jobs/cancellations", { method: "PUT", body: {} })).status).toBe(405)
  })

  it("names no job of another project", async () => {
    const named = `other-${randomBytes(4).toString("hex")}`
    await applyJob({ ...fixture, namespace }, named)
    const { failed } = await cancel({ names: [named, "missing"] })
    const [other, missing] = failed.map(({ detail, status, name }) => ({ status, detail: detail.replaceAll(name, "") }))
    expect(other).toEqual(missing)
    const { spec } = (await fixture.client.list(JOBS, { namespace })).items[0] ?? {}
    expect(spec?.cancelled ?? false).toBe(false)
  })
})
