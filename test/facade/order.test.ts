import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type ArrayList, type ArrayRecord, ArrayRecordSchema } from "../../src/api/resources/arrays/schema.ts"
import type { DependentList } from "../../src/api/resources/dependents/dependents.ts"
import type { JobList } from "../../src/api/resources/jobs/groups.ts"
import type { JobPlanRecord } from "../../src/api/resources/jobs/plan.ts"
import type { Prerequisite } from "../../src/core/apis/prerequisites.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { type JobRecord, JobRecordSchema } from "../../src/core/records/job.ts"
import { JOB_ARRAYS } from "../../src/core/resources.ts"
import { type Call, caller, created, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, jobsOf, projectFixture, removeJob, setStatus } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-order")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica({ settings: { requestsPerMinute: 0 } })
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await jobsOf(fixture)) await removeJob(fixture, metadata)
  for (const { metadata } of await arrays()) await fixture.client.delete(JOB_ARRAYS, metadata)
})

const arrays = async () => (await fixture.client.list(JOB_ARRAYS, { namespace: fixture.namespace })).items

const job = async (name: string, ...after: Prerequisite[]): Promise<string> =>
  (await created(await call("/1/jobs", { body: { name, image: "a", after } }))).job_id

async function array(name: string, ...after: Prerequisite[]): Promise<ArrayRecord> {
  const response = await call("/1/arrays", { body: { name, size: 2, job_definition: { image: "a" }, after } })
  expect(response.status, await response.clone().text()).toBe(201)
  return (await response.json()) as ArrayRecord
}

async function read<Body>(path: string, options: Call = {}): Promise<Body> {
  const response = await call(path, options)
  expect(response.status, await response.clone().text()).toBe(200)
  return (await response.json()) as Body
}

async function refused(path: string, body: object): Promise<string[]> {
  const response = await call(path, { body })
  expect(response.status).toBe(400)
  return (await problemIn(response)).errors.map(({ pointer, detail }) => `${pointer} ${detail}`)
}

/** Returns the names of the cancelled jobs and arrays that the API server has. */
async function cancelled(): Promise<string[]> {
  const jobs = (await jobsOf(fixture)).filter(({ spec }) => spec.cancelled).map(({ metadata }) => metadata.name)
  const ofArrays = (await arrays()).filter(({ spec }) => spec.cancelled)
  return [...jobs, ...ofArrays.map(({ metadata }) => `array/${metadata.name}`)].sort()
}

/** Returns the dependents, those that wait for others with a star. */
async function dependents(path: string): Promise<string[]> {
  const list = await read<DependentList>(`/1/${path}/dependents`)
  expect(list.total).toBe(list.dependents.length)
  return list.dependents.map((one) => `${one.job ?? `array/${one.array}`}${one.direct ? "" : "*"}`)
}

const BOTH: Prerequisite[] = [{ job: "prepare" }, { array: "sweep", outcome: "ended" }]
const BOTH_IN_RECORDS = [
  { job: "prepare", array: null, outcome: "succeeded" },
  { job: null, array: "sweep", outcome: "ended" },
]

describe("a job or an array with `after`", () => {
  it("has its prerequisites in its record, and those that it waits for", async () => {
    const id = await job("train", ...BOTH)
    const waits = BOTH_IN_RECORDS.map((one) => ({ ...one, id: null }))
    const record = await read<JobRecord>("/1/jobs/train")
    expect(findErrors(JobRecordSchema, record)).toEqual([])
    expect(record).toMatchObject({ id, after: BOTH_IN_RECORDS, waits_for: waits })
    expect(await array("eval", ...BOTH)).toMatchObject({ after: BOTH_IN_RECORDS, waits_for: waits })

    const prepare = await job("prepare")
    await setStatus(fixture, "train", { phase: "queued", after: [{ job: "prepare", uid: prepare }] })
    expect((await read<JobRecord>("/1/jobs/train")).waits_for).toEqual([{ ...waits[0], id: prepare }, waits[1]])
    await setStatus(fixture, "train", { after: [{ job: "prepare", uid: prepare, outcome: "succeeded" }] })
    expect((await read<JobRecord>("/1/jobs/train")).waits_for).toEqual([waits[1]])
    const all = [
      { job: "prepare", uid: prepare, outcome: "succeeded" as const },
      { array: "sweep", uid: "u", outcome: "failed" as const },
    ]
    await setStatus(fixture, "train", { phase: "running", after: all })
    expect(await read("/1/jobs/train")).toMatchObject({ after: BOTH_IN_RECORDS, waits_for: null })
  })

  it("waits for nothing once it is cancelled", async () => {
    await job("train", ...BOTH)
    expect(await read("/1/jobs/train/cancel", { method: "POST" })).toMatchObject({ waits_for: null })
    const eval1 = await array("eval", ...BOTH)
    const record = await read<ArrayRecord>(`/1/arrays/${eval1.id}/cancel`, { method: "POST" })
    expect(findErrors(ArrayRecordSchema, record)).toEqual([])
    expect(record).toMatchObject({ after: BOTH_IN_RECORDS, waits_for: null })
  })

  it("treats null as omitted", async () => {
    const body = { name: "nulls", image: "a", after: [{ job: "prepare", array: null, outcome: null }] }
    await created(await call("/1/jobs", { body }))
    expect(await read("/1/jobs/nulls")).toMatchObject({
      after: [{ job: "prepare", array: null, outcome: "succeeded" }],
    })
    await created(await call("/1/jobs", { body: { name: "none", image: "a", after: null } }))
    expect(await read("/1/jobs/none")).toMatchObject({ after: null, waits_for: null })
    expect(await array("none")).toMatchObject({ after: null, waits_for: null })
    const definition = { image: "a", after: null }
    const cronjob = { name: "nightly", cron_spec: "0 3 * * *", job_definition: definition }
    expect((await call("/1/cronjobs?dry_run=true", { body: cronjob })).status).toBe(200)
  })

  it.each<[string, unknown, string]>([
    ["an entry without a name", [{}], "/after/0 after[0] must have either job or array"],
    ["a job and an array", [{ job: "a", array: "b" }], "/after/0 after[0] must have either job or array"],
    ["a job twice", [{ job: "a" }, { job: "a" }], "/after after must name each job and each array once"],
    [
      "another outcome",
      [{ job: "a", outcome: "cancelled" }],
      '/after/0/outcome after[0].outcome must be succeeded, failed or ended, not "cancelled"',
    ],
    [
      "a name that no job can have",
      [{ job: "Prepare" }],
      '/after/0/job after[0].job must be a-z, 0-9 and -, with a letter or digit at both ends, not "Prepare"',
    ],
    ["a text", ["prepare"], "/after/0 after[0] must be an object, not a string"],
    [
      "a key that YAML reads as true",
      [{ job: "a", on: "ended" }],
      "/after/0/on after[0].on is an unknown field; known fields: job, array, outcome",
    ],
  ])("rejects %s", async (_, after, error) => {
    expect(await refused("/1/jobs", { image: "a", after })).toEqual([error])
    const body = { name: "sweep", size: 2, job_definition: { image: "a" }, after }
    expect(await refused("/1/arrays", body)).toEqual([error])
  })

  it("can't wait for itself", async () => {
    expect(await refused("/1/jobs", { name: "train", image: "a", after: [{ job: "train" }] })).toEqual([
      '/after/0/job after[0].job must name another job than "train" itself',
    ])
    const sweep = { name: "sweep", size: 2, job_definition: { image: "a" } }
    expect(await refused("/1/arrays", { ...sweep, after: [{ job: "a" }, { array: "sweep" }] })).toEqual([
      '/after/1/array after[1].array must name another array than "sweep" itself',
    ])
    expect(await array("sweep", { job: "sweep" })).toMatchObject({ name: "sweep" })
  })

  it("is not in a definition", async () => {
    const job_definition = { image: "a", after: [{ job: "a" }] }
    expect(await refused("/1/arrays", { name: "sweep", size: 2, job_definition })).toEqual([
      "/job_definition/after job_definition must not contain after: the array as a whole waits, so send after beside job_definition",
    ])
    expect(await refused("/1/cronjobs", { name: "nightly", cron_spec: "0 3 * * *", job_definition })).toEqual([
      "/job_definition/after job_definition must not contain after: the runs of a cronjob wait for no other job",
    ])
  })
})

describe("lists with `after`", () => {
  it("have what names it, ended or not, and nothing else", async () => {
    await job("train", { job: "prepare" })
    await job("report", { job: "train" }, { job: "prepare", outcome: "failed" })
    await job("other", { array: "prepare" })
    await job("ended", { job: "prepare" })
    await setStatus(fixture, "ended", { phase: "failed" })
    await array("eval", { job: "prepare" })
    await array("more", { array: "sweep" })
    const jobs = async (query: string) => (await read<JobList>(`/1/jobs?${query}`)).jobs.map(({ name }) => name)
    const found = async (query: string) => (await read<ArrayList>(`/1/arrays?${query}`)).arrays.map(({ name }) => name)
    expect(await jobs("after=prepare")).toEqual(["ended", "report", "train"])
    expect(await jobs("after=prepare&status=failed")).toEqual(["ended"])
    expect(await jobs("after=array/prepare")).toEqual(["other"])
    expect(await jobs("after=nothing")).toEqual([])
    expect((await jobs("after=")).length).toBe(4)
    expect(await found("after=prepare")).toEqual(["eval"])
    expect(await found("after=array/sweep")).toEqual(["more"])
    expect(await found("after=sweep")).toEqual([])
  })

  it.each(["Prepare", "job/prepare", "array/", "a b"])("reject %j, which names nothing", async (text) => {
    const response = await call(`/1/arrays?after=${encodeURIComponent(text)}`)
    expect((await problemIn(response)).errors).toEqual([
      {
        pointer: "",
        detail: `query parameter "after" must be the name of a job, or array/NAME, not ${JSON.stringify(text)}`,
      },
    ])
  })
})

/** `prepare` ← train ← array/eval ← report; `prepare` ← check. */
async function chain(): Promise<void> {
  await job("prepare")
  await job("train", { job: "prepare" })
  await job("check", { job: "prepare", outcome: "ended" })
  await array("eval", { job: "train", outcome: "ended" })
  await job("report", { array: "eval", outcome: "ended" })
  await job("other")
}

describe("dependents", () => {
  it("are what waits for it, also through others", async () => {
    await chain()
    expect(await dependents("jobs/prepare")).toEqual(["check", "train", "array/eval*", "report*"])
    expect(await dependents("jobs/train")).toEqual(["array/eval", "report*"])
    expect(await dependents("arrays/eval")).toEqual(["report"])
    expect(await dependents("jobs/other")).toEqual([])
    expect((await call("/1/jobs/missing/dependents")).status).toBe(404)
    expect((await call("/1/arrays/missing/dependents")).status).toBe(404)
    const page = await read<DependentList>("/1/jobs/prepare/dependents?limit=1&offset=2")
    expect(page).toMatchObject({ dependents: [{ job: null, array: "eval", direct: false }], total: 4 })
  })

  it("are none that have started, were cancelled, or wait for an earlier job of the name", async () => {
    await chain()
    const after = [{ job: "prepare", uid: "earlier" }]
    await setStatus(fixture, "check", { phase: "queued", after })
    await setStatus(fixture, "train", { phase: "running", after: [{ ...after[0], outcome: "succeeded" } as never] })
    expect(await dependents("jobs/prepare")).toEqual([])
    await read("/1/jobs/report/cancel", { method: "POST" })
    expect(await dependents("arrays/eval")).toEqual([])
  })
})

describe("a cancellation with dependents", () => {
  it("cancels all that waits for a job, and nothing else", async () => {
    await chain()
    const record = await read<JobRecord>("/1/jobs/prepare/cancel?dependents=true", { method: "POST" })
    expect(record).toMatchObject({ name: "prepare", status: "cancelled" })
    expect(await cancelled()).toEqual(["array/eval", "check", "prepare", "report", "train"])
    // Lists show it at once, and a repetition changes nothing.
    expect((await read<JobList>("/1/jobs?status=cancelled")).total).toBe(4)
    await read("/1/jobs/prepare/cancel?dependents=true", { method: "POST" })
  })

  it("cancels all that waits for an array", async () => {
    await chain()
    const { id } = await read<ArrayRecord>("/1/arrays/eval")
    expect(await read(`/1/arrays/${id}/cancel?dependents=true`, { method: "POST" })).toMatchObject({
      status: "cancelled",
    })
    expect(await cancelled()).toEqual(["array/eval", "report"])
    expect((await read<JobList>("/1/jobs?status=cancelled")).total).toBe(1)
  })

  it("cancels each dependent before what it waits for, so that nothing starts", async () => {
    await chain()
    await read("/1/jobs/prepare/cancel?dependents=true", { method: "POST" })
    const all = [...(await jobsOf(fixture)), ...(await arrays())]
    const version = (name: string) =>
      Number(all.find(({ metadata }) => metadata.name === name)?.metadata.resourceVersion)
    const order = ["report", "eval", "train", "prepare"]
    expect(order.toSorted((a, b) => version(a) - version(b))).toEqual(order)
  })

  it("cancels nothing of a job that has ended, or that has changed", async () => {
    await chain()
    const stale = { method: "POST", headers: { "If-Match": '"0"' } }
    expect((await call("/1/jobs/prepare/cancel?dependents=true", stale)).status).toBe(412)
    expect((await call("/1/arrays/eval/cancel?dependents=true", stale)).status).toBe(412)
    await setStatus(fixture, "prepare", { phase: "failed" })
    expect((await call("/1/jobs/prepare/cancel?dependents=true", { method: "POST" })).status).toBe(409)
    expect(await cancelled()).toEqual([])
  })

  it("cancels one job only without the parameter", async () => {
    await chain()
    await read("/1/jobs/prepare/cancel", { method: "POST" })
    expect(await cancelled()).toEqual(["prepare"])
  })

  it("finds dependents that kubectl has just created", async () => {
    const prepare = await job("prepare")
    const names = Array.from({ length: 40 }, (_, index) => `d${index}`)
    await Promise.all(names.map((name) => applyJob(fixture, name, { after: [{ job: "prepare" }] })))
    await read(`/1/jobs/${prepare}/cancel?dependents=true`, { method: "POST" })
    expect(await cancelled()).toHaveLength(41)
  })
})

describe("a plan with `after`", () => {
  const plan = (body: object) =>
    read<JobPlanRecord>("/1/jobs?dry_run=true", { body: { image: "a", name: "train", ...body } })

  it("says what the job would wait for, as the operator does", async () => {
    const after = [{ job: "prepare" }]
    expect(await plan({ after })).toMatchObject({
      verdict: "waits",
      reason: "JobMissing",
      message: "prepare is not there yet. Create it, or cancel this one",
    })
    await job("prepare")
    await setStatus(fixture, "prepare", { phase: "running", startTime: "2026-01-01T00:00:00Z" })
    const waiting = await plan({ after })
    expect(waiting).toMatchObject({
      verdict: "waits",
      reason: "WaitsForJob",
      message: "waits for prepare (running since 2026-01-01T00:00:00Z)",
    })
    // What it would get after that.
    expect(waiting.placements.length).toBeGreaterThan(0)
    await setStatus(fixture, "prepare", { phase: "succeeded" })
    expect((await plan({ after })).reason).toBe((await plan({})).reason)
    expect(await plan({ after: [{ job: "prepare", outcome: "failed" }] })).toMatchObject({
      verdict: "noOffer",
      reason: "DependencyFailed",
      message: "prepare has succeeded, and this one runs only after it has failed",
      placements: [],
    })
  })

  it("says that no offer fits, which waiting does not change", async () => {
    const { verdict, reason } = await plan({ after: [{ job: "prepare" }], resources: { cpu: 9999 } })
    expect({ verdict, reason }).toEqual({ verdict: "noOffer", reason: "NoOffer" })
  })

  it("says that jobs would wait for each other", async () => {
    await job("prepare", { array: "sweep" })
    await array("sweep", { job: "train" })
    expect(await plan({ after: [{ job: "prepare" }] })).toMatchObject({
      verdict: "waits",
      reason: "DependencyCycle",
      message: "each of these waits for the next one: train → prepare → array/sweep → train. Cancel one of them",
    })
  })

  it("says it of an array, too", async () => {
    const body = { name: "sweep", size: 2, job_definition: { image: "a" }, after: [{ job: "prepare" }] }
    expect(await read("/1/arrays?dry_run=true", { body })).toMatchObject({
      job: { verdict: "waits", reason: "JobMissing" },
    })
    expect(await arrays()).toEqual([])
  })
})
