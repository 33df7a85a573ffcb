import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { ArrayRecord } from "../../src/api/resources/arrays/schema.ts"
import {
  type JobGroupList,
  type JobGroupRecord,
  JobGroupSchema,
  type JobList,
} from "../../src/api/resources/jobs/groups.ts"
import { CRON_JOB_ANNOTATIONS } from "../../src/core/apis/cronjob.ts"
import type { JobStatus, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import type { JobRecord } from "../../src/core/records/job.ts"
import { JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

/** Orders, parts of names and groups of jobs. Each list is compared with one that the test makes of all records. */
const fixture = projectFixture("facade-job-lists")
const elsewhere = projectFixture("facade-job-lists-else")
let replica: Replica
const call = caller(() => replica, fixture)
let all: JobRecord[]
let sweep: ArrayRecord
let cronJobId: string

const HOURLY = { machineUsd: 1, diskUsd: 0.2, addressUsd: 0.05 }
const at = (minute: number): string => new Date(Date.UTC(2026, 1, 1, 0, minute)).toISOString()

/** Status of a job that ran from one minute to another, or runs since. */
function ran(phase: "running" | "succeeded" | "failed", from: number, to?: number, usd?: number): JobStatus {
  const cost = usd === undefined ? { hourly: HOURLY } : { hourly: HOURLY, actualUsd: usd }
  return { phase, startTime: at(from), cost, ...(to !== undefined && { completionTime: at(to) }) }
}

const ofArray = (id: string, name: string, index: number) => ({
  labels: { [LABELS.array]: name, [LABELS.arrayUid]: id, [LABELS.arrayIndex]: String(index) },
})
const ofCronJob = (id: string, name: string) => ({
  labels: { [LABELS.cronJobUid]: id },
  annotations: { [CRON_JOB_ANNOTATIONS.name]: name },
})
const DELETED = "0d2f1f10-6f0e-4a4b-8f6e-2f9f3b7d9a11"

/** Creates a job like a controller does, with a status. */
async function make(name: string, marks: object, status: JobStatus): Promise<void> {
  const metadata = { name, namespace: fixture.namespace, ...marks }
  await fixture.client.create(JOBS, { metadata, spec: { image: "alpine" } } as StoredJob)
  await fixture.client.patchStatus(JOBS, metadata, { merge: { status } })
}

beforeAll(async () => {
  replica = await startReplica()
  const definition = { image: "alpine" }
  sweep = (await (
    await call("/1/arrays", { body: { name: "lr-sweep", size: 5, job_definition: definition } })
  ).json()) as ArrayRecord
  const cronJob = { name: "nightly-", cron_spec: "0 3 * * *", job_definition: definition, is_active: false }
  cronJobId = ((await (await call("/1/cronjobs", { body: cronJob })).json()) as { id: string }).id
  await make("eval-old", {}, ran("succeeded", 0, 10, 3))
  await make("lr-sweep-0", ofArray(sweep.id, "lr-sweep", 0), ran("succeeded", 5, 9, 0.25))
  await make("nightly-1", ofCronJob(cronJobId, "nightly-"), ran("failed", 6, 6, 0))
  await make("lr-sweep-1", ofArray(sweep.id, "lr-sweep", 1), ran("failed", 7, 30, 0.5))
  await make("waits", {}, { phase: "queued" })
  await make("gone-3", ofArray(DELETED, "gone", 3), ran("succeeded", 20, 22, 1.5))
  await make("retrain", {}, ran("running", 12))
  await make("lr-sweep-2", ofArray(sweep.id, "lr-sweep", 2), { phase: "queued" })
  await make("nightly-2", ofCronJob(cronJobId, "nightly-"), ran("succeeded", 21, 28, 2))
  await make("a-train", {}, ran("succeeded", 40, 41, 0.125))
  await eventually(async () => {
    const list = (await (await call("/1/jobs")).json()) as JobList
    expect(list.jobs.filter(({ status }) => status !== "queued")).toHaveLength(8)
    all = list.jobs
  })
})
afterAll(() => replica.close())

async function list(query: string): Promise<JobList> {
  const response = await call(`/1/jobs?${query}`)
  expect(response.status, query).toBe(200)
  return (await response.json()) as JobList
}

async function groups(query = ""): Promise<JobGroupList> {
  const response = await call(`/1/job-groups?${query}`)
  expect(response.status, query).toBe(200)
  const found = (await response.json()) as JobGroupList
  for (const group of found.groups) expect(findErrors(JobGroupSchema, group)).toEqual([])
  return found
}

const namesIn = (jobs: readonly { name: string }[]): string[] => jobs.map(({ name }) => name)

/** Sorts records as the API promises: those without a value last, equal ones newest first. */
function inOrder<T>(newestFirst: readonly T[], value: (one: T) => number | string | null, order: string): T[] {
  const sign = order === "asc" ? 1 : -1
  const known = newestFirst.filter((one) => value(one) !== null)
  const compare = (a: T, b: T) => {
    const [one, other] = [value(a) as string, value(b) as string]
    return one < other ? -sign : one > other ? sign : 0
  }
  return [...known.toSorted(compare), ...newestFirst.filter((one) => value(one) === null)]
}

const runTime = ({ started_at, ended_at }: JobRecord): number | null =>
  started_at === null ? null : (ended_at === null ? Date.now() : Date.parse(ended_at)) - Date.parse(started_at)

const VALUES: Record<string, (job: JobRecord) => number | string | null> = {
  started_at: ({ started_at }) => started_at,
  ended_at: ({ ended_at }) => ended_at,
  name: ({ name }) => name,
  cost: ({ accrued_cost }) => accrued_cost,
  run_time: runTime,
}

describe("GET /1/jobs", () => {
  it.each(Object.entries(VALUES))("is sorted by %s in both directions", async (field, value) => {
    for (const order of ["asc", "desc"]) {
      const expected = namesIn(inOrder(all, value, order))
      const query = `sort_by=${field}&sort_order=${order}`
      expect(namesIn((await list(query)).jobs), query).toEqual(expected)
      const page = await list(`${query}&limit=3&offset=4`)
      expect(page).toMatchObject({ total: all.length, limit: 3, offset: 4 })
      expect(namesIn(page.jobs)).toEqual(expected.slice(4, 7))
    }
  })

  it("is newest first by default, and oldest first on demand", async () => {
    expect(namesIn((await list("sort_by=created_at&sort_order=desc")).jobs)).toEqual(namesIn(all))
    expect(namesIn((await list("sort_order=asc&limit=4&offset=1")).jobs)).toEqual(namesIn(all.toReversed().slice(1, 5)))
  })

  it("finds a part of the name anywhere in it, with all other filters", async () => {
    for (const part of ["train", "sweep-1", "-", "a", "zzz", "Train", "/"]) {
      const expected = namesIn(all.filter(({ name }) => name.includes(part)))
      expect(namesIn((await list(`name_contains=${part}`)).jobs), part).toEqual(expected)
    }
    const expected = all.filter(
      ({ name, status }) => name.startsWith("lr") && name.includes("1") && status === "failed",
    )
    expect(await list("name_prefix=lr&name_contains=1&status=failed")).toMatchObject({
      total: 1,
      jobs: [{ name: namesIn(expected)[0] }],
    })
    expect(namesIn((await list("name_contains=")).jobs)).toEqual(namesIn(all))
  })

  it.each([
    ["sort_by", "size"],
    ["sort_by", ""],
    ["sort_order", "up"],
  ])("refuses %s=%s, and names what is allowed", async (name, value) => {
    for (const path of ["jobs", "job-groups", "arrays", "cronjobs"]) {
      const response = await call(`/1/${path}?${name}=${value}`)
      expect(response.status, path).toBe(400)
      const [error] = (await problemIn(response)).errors
      expect(error?.detail).toContain(`query parameter "${name}" must be one of `)
    }
  })
})

/** Groups the records of all jobs by hand. */
function grouped(jobs: readonly JobRecord[]): { key: string; jobs: JobRecord[] }[] {
  const keyOf = ({ name, array_id, cronjob_id }: JobRecord) => array_id ?? cronjob_id ?? name
  return [...Map.groupBy(jobs, keyOf)].map(([key, of]) => ({ key, jobs: of }))
}

const NAMES: Record<string, string> = { [DELETED]: "gone" }
const nameOf = (key: string): string =>
  key === sweep.id ? "lr-sweep" : key === cronJobId ? "nightly-" : (NAMES[key] ?? key)

describe("GET /1/job-groups", () => {
  it("has one row for each array, cronjob and single job, with counts, costs and the newest job", async () => {
    const expected = grouped(all)
    const found = await groups()
    expect(found.total).toBe(expected.length)
    expect(found.groups.map(({ name }) => name)).toEqual(expected.map(({ key }) => nameOf(key)))
    for (const [index, { jobs }] of expected.entries()) {
      const group = found.groups[index] as JobGroupRecord
      const ends = jobs.flatMap(({ ended_at }) => ended_at ?? []).sort()
      expect(group.jobs).toBe(jobs.length)
      for (const [status, count] of Object.entries(group.counts))
        expect(count, `${group.name} ${status}`).toBe(jobs.filter((job) => job.status === status).length)
      expect(group.created_at).toBe(jobs[0]?.created_at)
      expect(group.ended_at).toBe(ends.at(-1) ?? null)
      expect(group.latest.name).toBe(jobs[0]?.name)
      const cost = jobs.reduce((sum, { accrued_cost }) => sum + (accrued_cost ?? 0), 0)
      expect(group.cost_usd, group.name).toBeCloseTo(cost, 6)
      const seconds = jobs.reduce((sum, job) => sum + (runTime(job) ?? 0) / 1000, 0)
      expect(Math.abs(group.run_seconds - seconds)).toBeLessThan(60)
    }
  })

  it("says what created the jobs, also after it was deleted, and has the array as a whole", async () => {
    const status = { phase: "running", size: 5, costUsd: 4, counts: { ...sweep.counts, succeeded: 3, failed: 1 } }
    const ref = { namespace: fixture.namespace, name: "lr-sweep" }
    await fixture.client.patchStatus(JOB_ARRAYS, ref, { merge: { status } as Partial<StoredJobArray> })
    await eventually(async () => {
      const { groups: found } = await groups()
      const row = (name: string) => found.find((group) => group.name === name)
      expect(row("lr-sweep")).toMatchObject({ kind: "array", id: sweep.id, exists: true, jobs: 3 })
      expect(row("lr-sweep")?.whole).toMatchObject({ size: 5, actual_cost: 4, counts: { succeeded: 3, failed: 1 } })
      expect(row("gone")).toMatchObject({ kind: "array", id: DELETED, exists: false, whole: null })
      expect(row("nightly-")).toMatchObject({ kind: "cronjob", id: cronJobId, exists: true, whole: null })
      expect(row("retrain")).toMatchObject({ kind: "job", exists: true, jobs: 1, whole: null })
    })
  })

  it("groups what the filters leave, page by page", async () => {
    for (const [query, isWanted] of [
      ["status=failed", ({ status }: JobRecord) => status === "failed"],
      ["name_contains=sweep", ({ name }: JobRecord) => name.includes("sweep")],
      [`array=${sweep.id}`, ({ array_id }: JobRecord) => array_id === sweep.id],
      ["cronjob=nightly-", ({ cronjob_id }: JobRecord) => cronjob_id === cronJobId],
      [`ended_after=${at(20)}`, ({ ended_at }: JobRecord) => ended_at !== null && ended_at >= at(20)],
      ["tag=none", () => false],
    ] as const) {
      const expected = grouped(all.filter(isWanted))
      const found = await groups(query)
      expect(found.total, query).toBe(expected.length)
      expect(found.groups.map(({ name, jobs }) => [name, jobs])).toEqual(
        expected.map(({ key, jobs }) => [nameOf(key), jobs.length]),
      )
    }
    const page = await groups("limit=2&offset=3")
    expect(page).toMatchObject({ limit: 2, offset: 3, total: grouped(all).length })
    expect(namesIn(page.groups)).toEqual(
      grouped(all)
        .map(({ key }) => nameOf(key))
        .slice(3, 5),
    )
  })

  it("is sorted by the sums and the latest times of the groups", async () => {
    const { groups: newest } = await groups()
    const startOf = ({ name }: JobGroupRecord) =>
      grouped(all)
        .find(({ key }) => nameOf(key) === name)
        ?.jobs.flatMap(({ started_at }) => started_at ?? [])
        .sort()
        .at(-1) ?? null
    const values: Record<string, (group: JobGroupRecord) => number | string | null> = {
      name: ({ name }) => name,
      cost: (group) => (startOf(group) === null ? null : group.cost_usd),
      run_time: (group) => (startOf(group) === null ? null : group.run_seconds),
      started_at: startOf,
      ended_at: ({ ended_at }) => ended_at,
    }
    for (const [field, value] of Object.entries(values))
      for (const order of ["asc", "desc"])
        expect(namesIn((await groups(`sort_by=${field}&sort_order=${order}`)).groups), `${field} ${order}`).toEqual(
          namesIn(inOrder(newest, value, order)),
        )
    expect(namesIn((await groups("sort_order=asc")).groups)).toEqual(namesIn(newest.toReversed()))
  })

  it("has no name and no counts of another project's array", async () => {
    const metadata = { name: "secret-sweep", namespace: elsewhere.namespace }
    const spec = { jobDefinition: { image: "alpine" }, size: 2 }
    const foreign = await fixture.client.create(JOB_ARRAYS, { metadata, spec } as StoredJobArray)
    await make("forged", { labels: { [LABELS.arrayUid]: foreign.metadata.uid } }, { phase: "queued" })
    await eventually(async () => {
      const { groups: found } = await groups("name_contains=forged")
      expect(found).toMatchObject([
        { id: foreign.metadata.uid, name: foreign.metadata.uid, exists: false, whole: null },
      ])
    })
    await fixture.client.delete(JOBS, { namespace: fixture.namespace, name: "forged" })
  })
})

describe("GET /1/arrays and /1/cronjobs", () => {
  it("find a part of the name, and sort by it", async () => {
    for (const name of ["b-sweep", "a-grid"])
      expect((await call("/1/arrays", { body: { name, size: 1, job_definition: { image: "a" } } })).status).toBe(201)
    for (const name of ["weekly", "hourly-"])
      await call("/1/cronjobs", { body: { name, cron_spec: "0 3 * * *", job_definition: { image: "a" } } })
    const of = async (path: string, key: string) =>
      namesIn(((await (await call(path)).json()) as Record<string, { name: string }[]>)[key] ?? [])
    expect(await of("/1/arrays?name_contains=sweep", "arrays")).toEqual(["b-sweep", "lr-sweep"])
    expect(await of("/1/arrays?sort_by=name&sort_order=asc", "arrays")).toEqual(["a-grid", "b-sweep", "lr-sweep"])
    expect(await of("/1/arrays?sort_order=asc", "arrays")).toEqual(["lr-sweep", "b-sweep", "a-grid"])
    expect(await of("/1/cronjobs?name_contains=ly", "cronjobs")).toEqual(["hourly-", "weekly", "nightly-"])
    // Kubernetes' name of the cronjob ends with more than the dash.
    expect(await of("/1/cronjobs?name_contains=ly-&sort_by=name", "cronjobs")).toEqual(["nightly-", "hourly-"])
    expect(await of("/1/cronjobs?name_contains=.x", "cronjobs")).toEqual([])
  })
})
