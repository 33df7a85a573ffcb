import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type ArrayList, type ArrayRecord, ArrayRecordSchema } from "../../src/api/resources/arrays/schema.ts"
import type { JobCancellations } from "../../src/api/resources/jobs/cancellations.ts"
import { JOB_ARRAY_FINALIZER, type JobArrayStatus, type StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { type Call, caller, problemIn, recordIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-arrays")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await stored()) await fixture.client.delete(JOB_ARRAYS, metadata)
})

async function stored(): Promise<StoredJobArray[]> {
  return (await fixture.client.list(JOB_ARRAYS, { namespace: fixture.namespace })).items
}

const LEAST = { name: "sweep", job_definition: { image: "alpine" }, size: 3 }

async function record(path: string, options: Call = {}, status = 200): Promise<ArrayRecord> {
  const response = await call(path, options)
  if (response.status !== status) throw new Error(`${response.status}: ${await response.text()}`)
  const found = (await response.json()) as ArrayRecord
  expect(findErrors(ArrayRecordSchema, found)).toEqual([])
  return found
}

const create = (body: object = LEAST) => record("/1/arrays", { body }, 201)

async function said(path: string, options: Call, status: number): Promise<string> {
  const response = await call(path, options)
  const { detail, errors } = await problemIn(response)
  expect(response.status, detail).toBe(status)
  return [detail, ...errors.map((error) => `${error.pointer} ${error.detail}`)].join("\n")
}

/** Writes the status like the array controller does, and waits until the façade shows it. */
async function report(status: JobArrayStatus, name = "sweep"): Promise<void> {
  await fixture.client.patchStatus(JOB_ARRAYS, { namespace: fixture.namespace, name }, { merge: { status } })
  await eventually(async () => {
    const { failed_indexes } = await record(`/1/arrays/${name}`)
    expect(failed_indexes).toBe(status.failedIndexes)
  })
}

describe("POST /1/arrays", () => {
  it("returns 201 with Location and the whole record, with defaults", async () => {
    const response = await call("/1/arrays", { body: LEAST })
    expect(response.status).toBe(201)
    const made = (await response.json()) as ArrayRecord
    expect(response.headers.get("location")).toBe(`/1/arrays/${made.id}`)
    expect(made).toMatchObject({
      ...{ name: "sweep", size: 3, matrix: null, parallelism: 10, max_failed: null, status: "queued" },
      job_definition: { image: "alpine", maxRetries: 0, provisioning: "onDemand" },
      counts: { pending: 3, queued: 0, booting: 0, running: 0, succeeded: 0, failed: 0, cancelled: 0 },
      ...{ active_indexes: "", succeeded_indexes: "", attempts: [], actual_cost: 0, ended_at: null },
      ...{ organization_id: fixture.organization, project_id: fixture.project },
    })
    expect(await record(`/1/arrays/${made.id}`)).toEqual(made)
    expect(await (await call("/1/arrays")).json()).toMatchObject({
      arrays: [made],
      total: 1,
    } satisfies Partial<ArrayList>)
  })

  it("stores a matrix and all settings", async () => {
    const body = {
      ...{ name: "lr-sweep", job_definition: { image: "alpine", region: "eu" } },
      matrix: { lr: ["0.1", "0.01"], SEED: ["1", "2", "3"] },
      ...{ parallelism: 4, max_failed: 0, successful_jobs_history_limit: 1, failed_jobs_history_limit: 2 },
      ttl_seconds_after_finished: 60,
    }
    expect(await create(body)).toMatchObject({ ...body, size: 6, job_definition: { image: "alpine", region: "eu" } })
    expect((await stored())[0]?.spec).toMatchObject({
      ...{ matrix: body.matrix, parallelism: 4, maxFailed: 0, successfulJobsHistoryLimit: 1 },
      ...{ failedJobsHistoryLimit: 2, ttlSecondsAfterFinished: 60 },
    })
  })

  it("creates one array for repeated requests with an Idempotency-Key", async () => {
    const send = () => call("/1/arrays", { body: LEAST, headers: { "Idempotency-Key": "k1" } })
    const [one, other] = await Promise.all([send(), send()])
    expect([one.status, other.status]).toEqual([201, 201])
    expect(((await one.json()) as ArrayRecord).id).toBe(((await other.json()) as ArrayRecord).id)
    expect(await stored()).toHaveLength(1)
  })

  const many = Array.from({ length: 101 }, (_, index) => String(index))
  const definition = { image: "alpine" }
  it.each<[string, object, string]>([
    ["size and matrix", { matrix: { A: ["1"] } }, "/size size and matrix exclude each other: send one of them"],
    ["neither", { size: null }, "/size size and matrix exclude each other"],
    ["too many combinations", { size: null, matrix: { A: many, B: many } }, "/matrix matrix has 10201 combinations"],
    [
      "a variable twice",
      { size: null, matrix: { A: ["1"] }, job_definition: { ...definition, env: { A: "2" } } },
      "/matrix matrix.A is a variable of job_definition too: choose another name",
    ],
    ["a number as a value", { size: null, matrix: { A: [1] } }, "/matrix/A/0 matrix.A[0] must be a string"],
    ["a name of jobs", { job_definition: { ...definition, name: "x" } }, "each of its jobs is named <array>-<index>"],
    ["an unknown region", { job_definition: { ...definition, region: "mars" } }, "/job_definition/region"],
    ["no parallelism", { parallelism: 0 }, "/parallelism parallelism must be at least 1"],
    ["a long name", { name: "a".repeat(64) }, "/name name must have at most 63 characters"],
    ["a taken name of capitals", { name: "Sweep" }, "/name name must be of a-z, 0-9 and -"],
  ])("rejects %s", async (_, change, detail) => {
    expect(await said("/1/arrays", { body: { ...LEAST, ...change } }, 400)).toContain(detail)
  })

  it("returns 409 for a name in use", async () => {
    await create()
    expect(await said("/1/arrays", { body: LEAST }, 409)).toContain("sweep")
  })
})

describe("an array", () => {
  it("takes another parallelism and other limits, and nothing else", async () => {
    const made = await create()
    const changed = await record("/1/arrays/sweep", { method: "PATCH", body: { parallelism: 20, max_failed: 1 } })
    expect(changed).toMatchObject({ parallelism: 20, max_failed: 1, job_definition: made.job_definition })
    expect(await said("/1/arrays/sweep", { method: "PATCH", body: { size: 9 } }, 400)).toContain("size")
    expect(await said("/1/arrays/none", { method: "PATCH", body: {} }, 404)).toContain("no array")
  })

  it("is cancelled at once, as often as you ask, unless it has ended", async () => {
    const { id } = await create()
    expect(await record(`/1/arrays/${id}/cancel`, { method: "POST" })).toMatchObject({ status: "cancelled" })
    expect(await record("/1/arrays/sweep/cancel", { method: "POST" })).toMatchObject({ status: "cancelled" })
    expect((await stored())[0]?.spec.cancelled).toBe(true)
    expect(await said("/1/arrays/sweep/retry-failed", { method: "POST" }, 409)).toContain("was cancelled")

    await create({ ...LEAST, name: "done" })
    await report({ phase: "failed", failedIndexes: "1", completionTime: "2026-05-01T10:00:00Z" }, "done")
    const detail = "The array done has already ended (failed): it cannot be cancelled."
    expect(await said("/1/arrays/done/cancel", { method: "POST" }, 409)).toBe(detail)
  })

  it("shows a retry at once: the array has not ended, also before its controller has looked", async () => {
    await create()
    const ended = { phase: "failed" as const, failedIndexes: "1", completionTime: "2026-01-02T10:00:00Z" }
    await report(ended)
    expect(await record("/1/arrays/sweep")).toMatchObject({ status: "failed", ended_at: ended.completionTime })
    const retried = await record("/1/arrays/sweep/retry-failed", { method: "POST" })
    expect(retried).toMatchObject({ status: "running", ended_at: null })
    await report({ ...ended, retried: 1 })
    await eventually(async () => expect(await record("/1/arrays/sweep")).toMatchObject({ status: "failed" }))
    await record("/1/arrays/sweep/retry-failed", { method: "POST" })
    // It may be cancelled before it runs.
    await record("/1/arrays/sweep/cancel", { method: "POST" })
  })

  it("runs failed indexes again: all, or those that are named", async () => {
    await create({ ...LEAST, size: 10 })
    await record("/1/arrays/sweep/retry-failed", { method: "POST" })
    expect((await stored())[0]?.spec.retry).toBeUndefined()
    await report({ phase: "running", failedIndexes: "1-3,7", size: 10 })
    await record("/1/arrays/sweep/retry-failed", { method: "POST" })
    expect((await stored())[0]?.spec.retry).toEqual({ number: 1, indexes: "1-3,7" })
    await report({ phase: "running", failedIndexes: "1-3,7", cancelledIndexes: "5", size: 10 })
    await record("/1/arrays/sweep/retry-failed?indexes=5", { method: "POST" })
    expect((await stored())[0]?.spec.retry).toEqual({ number: 2, indexes: "1-3,5,7" })
    await report({ phase: "running", failedIndexes: "7", size: 10, retried: 2 })
    await record("/1/arrays/sweep/retry-failed?indexes=7", { method: "POST" })
    expect((await stored())[0]?.spec.retry).toEqual({ number: 3, indexes: "7" })
  })

  it("runs the failed indexes again that a body names, and no others", async () => {
    await create({ ...LEAST, size: 10 })
    await report({ phase: "running", failedIndexes: "1-3,7", cancelledIndexes: "9", size: 10 })
    const retry = (body: unknown, query = "") => [`/1/arrays/sweep/retry-failed${query}`, { body }] as const
    const refusals: [unknown, number, string, string?][] = [
      [{ indexes: [10] }, 400, "indexes has the index 10; the indexes of the array are 0 to 9."],
      [{ indexes: "all" }, 400, "indexes must be indexes and ranges such as 0-41,44."],
      [{ indexes: [1.5] }, 400, "/indexes/0"],
      [{ indexes: [] }, 400, "/indexes"],
      [{ index: 3 }, 400, "/index"],
      [{ indexes: [3] }, 400, "indexes is in the query and in the body: send it once.", "?indexes=7"],
      [{ indexes: [3, 4, 5, 8] }, 409, "have not failed or been cancelled: 4-5,8. Nothing runs again."],
    ]
    for (const [body, status, detail, query] of refusals)
      expect(await said(...retry(body, query), status), JSON.stringify(body)).toContain(detail)
    expect((await stored())[0]?.spec.retry).toBeUndefined()
    await record(...retry({ indexes: [7, 3, 2] }))
    expect((await stored())[0]?.spec.retry).toEqual({ number: 1, indexes: "2-3,7" })
    await report({ phase: "running", failedIndexes: "1", cancelledIndexes: "9", size: 10, retried: 1 })
    await record(...retry({ indexes: "9" }))
    expect((await stored())[0]?.spec.retry).toEqual({ number: 2, indexes: "9" })
    await report({ phase: "running", failedIndexes: "1", size: 10, retried: 2 })
    await record(...retry({}))
    expect((await stored())[0]?.spec.retry).toEqual({ number: 3, indexes: "1" })
  })

  it("shows the progress that its controller writes", async () => {
    await create({ ...LEAST, size: 10 })
    const counts = { pending: 2, queued: 0, booting: 0, running: 3, succeeded: 4, failed: 1, cancelled: 0 }
    await report({
      ...{ phase: "running", size: 10, counts, costUsd: 0.5, attempts: [{ attempt: 2, indexes: "3" }] },
      ...{ activeIndexes: "5-7", succeededIndexes: "0-3", failedIndexes: "4", cancelledIndexes: "" },
    })
    expect(await record("/1/arrays/sweep")).toMatchObject({
      ...{ status: "running", counts, actual_cost: 0.5, attempts: [{ attempt: 2, indexes: "3" }] },
      ...{ active_indexes: "5-7", succeeded_indexes: "0-3", failed_indexes: "4" },
    })
  })
})

describe("GET /1/arrays", () => {
  const names = async (query: string): Promise<string[]> => {
    const response = await call(`/1/arrays?${query}`)
    expect(response.status, query).toBe(200)
    const { arrays, total } = (await response.json()) as ArrayList
    expect(total).toBe(arrays.length)
    return arrays.map(({ name }) => name)
  }

  it("filters arrays as GET /1/jobs filters jobs, by the labels and tags of their jobs", async () => {
    const definition = (tags: string[], team: string) => ({ image: "alpine", tags, labels: { team } })
    const first = await create({ ...LEAST, name: "lr-sweep", job_definition: definition(["a", "b"], "vision") })
    await create({ ...LEAST, name: "lr-test", job_definition: definition(["a"], "audio") })
    const last = await create({ ...LEAST, name: "sweep-lr" })
    await report({ phase: "failed", failedIndexes: "0-2", size: 3, completionTime: "2026-11-24T11:00:00Z" }, "lr-test")
    expect(await names("")).toEqual(["sweep-lr", "lr-test", "lr-sweep"])
    for (const [query, expected] of [
      ["status=failed", ["lr-test"]],
      ["status=queued", ["sweep-lr", "lr-sweep"]],
      ["tag=a", ["lr-test", "lr-sweep"]],
      ["tag=a&tag=b", ["lr-sweep"]],
      ["label=team:vision", ["lr-sweep"]],
      ["label=team=audio&tag=b", []],
      ["name_prefix=lr", ["lr-test", "lr-sweep"]],
      ["name_contains=sweep", ["sweep-lr", "lr-sweep"]],
      ["name_prefix=lr&name_contains=sweep&status=queued", ["lr-sweep"]],
      [`created_after=${last.created_at}`, ["sweep-lr"]],
      [`created_after=${first.created_at}&created_before=${last.created_at}`, ["lr-test", "lr-sweep"]],
      ["ended_after=2026-11-24T11:00:00Z", ["lr-test"]],
      ["ended_before=2026-11-24T11:00:00Z", []],
      ["status=&tag=&label=&name_prefix=&created_after=&ended_before=", ["sweep-lr", "lr-test", "lr-sweep"]],
      ["tag=a&sort_by=name&sort_order=asc", ["lr-sweep", "lr-test"]],
    ] as const)
      expect(await names(query), query).toEqual(expected)
    expect(await said("/1/arrays?status=booting", {}, 400)).toContain("must be one of queued, running")
  })

  it("has pages of what the filters leave", async () => {
    for (const name of ["one", "two", "three"]) await create({ ...LEAST, name })
    const response = await call("/1/arrays?name_contains=t&limit=1&offset=1")
    expect(await response.json()).toMatchObject({ arrays: [{ name: "two" }], total: 2, limit: 1, offset: 1 })
  })
})

describe("DELETE /1/arrays/{id}", () => {
  it("returns 204 without a body for an array by name or id, and the next list omits it", async () => {
    const made = await create()
    await create({ ...LEAST, name: "other" })
    const response = await call(`/1/arrays/${made.id}`, { method: "DELETE" })
    expect([response.status, await response.text()]).toEqual([204, ""])
    const { arrays } = (await (await call("/1/arrays")).json()) as ArrayList
    expect(arrays.map(({ name }) => name)).toEqual(["other"])
    expect((await call("/1/arrays/other", { method: "DELETE" })).status).toBe(204)
    expect(await stored()).toEqual([])
    await said("/1/arrays/other", { method: "DELETE" }, 404)
    expect((await create()).id).not.toBe(made.id)
  })

  it("hides an array at once, while its controller still cancels its jobs", async () => {
    await create()
    const ref = { namespace: fixture.namespace, name: "sweep" }
    const held = { metadata: { finalizers: [JOB_ARRAY_FINALIZER] } }
    await fixture.client.patch(JOB_ARRAYS, ref, { merge: held })
    expect((await call("/1/arrays/sweep", { method: "DELETE" })).status).toBe(204)
    expect((await stored())[0]?.metadata.deletionTimestamp).toEqual(expect.any(String))
    expect(await (await call("/1/arrays")).json()).toMatchObject({ arrays: [], total: 0 })
    await said("/1/arrays/sweep", {}, 404)
    expect(await said("/1/arrays", { body: LEAST }, 409)).toMatch(
      /"sweep" is being deleted: choose another name, or wait/,
    )
    await fixture.client.patch(JOB_ARRAYS, ref, { merge: { metadata: { finalizers: [] } } })
  })

  it("respects If-Match", async () => {
    await create()
    const before = (await call("/1/arrays/sweep")).headers.get("etag") ?? ""
    await record("/1/arrays/sweep", { method: "PATCH", body: { parallelism: 2 } })
    await said("/1/arrays/sweep", { method: "DELETE", headers: { "If-Match": before } }, 412)
    const now = (await call("/1/arrays/sweep")).headers.get("etag") ?? ""
    expect((await call("/1/arrays/sweep", { method: "DELETE", headers: { "If-Match": now } })).status).toBe(204)
  })
})

describe("the jobs of an array", () => {
  async function submit(name: string, labels: Record<string, string> = {}): Promise<void> {
    const metadata = { name, namespace: fixture.namespace, labels }
    await fixture.client.create(JOBS, { metadata, spec: { image: "alpine" } } as never)
  }

  it("are listed and cancelled by the array's id or name", async () => {
    const { id } = await create()
    for (const index of ["0", "1"])
      await submit(`sweep-${index}`, { [LABELS.arrayUid]: id, [LABELS.arrayIndex]: index })
    await submit("other")
    const names = async (query: string): Promise<string[]> => {
      const { jobs } = (await (await call(`/1/jobs?${query}`)).json()) as { jobs: { name: string }[] }
      return jobs.map(({ name }) => name).sort()
    }
    await eventually(async () => expect(await names("")).toContain("other"))
    for (const array of [id, "sweep"]) expect(await names(`array=${array}`)).toEqual(["sweep-0", "sweep-1"])
    const second = await recordIn(await call("/1/jobs/sweep-1"))
    expect(second).toMatchObject({ array_id: id, array_index: 1 })
    expect(await recordIn(await call("/1/jobs/other"))).toMatchObject({ array_id: null, array_index: null })
    expect((await call("/1/jobs?array=unknown")).status).toBe(404)
    const response = await call("/1/jobs/cancellations", { body: { array: "sweep" } })
    expect(await response.json()).toMatchObject({ matched: 2, cancelled: 2 } satisfies Partial<JobCancellations>)
    const cancelled = async (name: string) =>
      (await fixture.client.get(JOBS, { namespace: fixture.namespace, name })).spec.cancelled ?? false
    expect(await Promise.all(["sweep-0", "sweep-1", "other"].map(cancelled))).toEqual([true, true, false])
    expect(await said("/1/jobs/cancellations", { body: { array: "unknown" } }, 404)).toContain("unknown")
  })
})
