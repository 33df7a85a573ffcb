import { expect, test } from "vitest"
import type { StoredJob } from "../core/apis/job.ts"
import type { StoredJobArray } from "../core/apis/jobarray.ts"
import type { Prerequisite } from "../core/apis/prerequisites.ts"
import { KubeError } from "../core/kube/errors.ts"
import { type Change, IndexedStore } from "../core/kube/store.ts"
import { dependentIndexes, type PrerequisiteCaches, Prerequisites } from "./prerequisites.ts"

type Fields = { uid?: string; after?: Prerequisite[]; status?: object; metadata?: object }

let version = 0

function objectOf<T>(name: string, { uid = `uid-${name}`, after, status, metadata }: Fields = {}): T {
  const spec = { ...(after && { after }) }
  version++
  return {
    metadata: { name, namespace: "team", uid, resourceVersion: String(version), ...metadata },
    spec,
    status,
  } as T
}

/** Caches with handlers that a test calls, and an API server of which it counts the reads. */
function cachesWith(live: Record<string, StoredJob | StoredJobArray> = {}) {
  const cacheOf = <T extends StoredJob | StoredJobArray>() => {
    const store = new IndexedStore<T>(dependentIndexes as never)
    const handlers = new Set<(change: Change<T>) => void>()
    return {
      store,
      onChange: (handler: (change: Change<T>) => void) => handlers.add(handler),
      whenSynced: () => Promise.resolve(),
      put: (object: T) => {
        for (const change of store.put(object)) for (const handler of handlers) handler(change)
      },
    }
  }
  const [jobs, jobArrays] = [cacheOf<StoredJob>(), cacheOf<StoredJobArray>()]
  const reads: string[] = []
  const get = async ({ plural }: { plural: string }, { name }: { name: string }) => {
    reads.push(`${plural}/${name}`)
    const found = live[`${plural}/${name}`]
    if (found === undefined) throw new KubeError({ code: 404, reason: "NotFound", message: "not found" })
    return found
  }
  const prerequisites = new Prerequisites({ client: { get }, jobs, jobArrays } as unknown as PrerequisiteCaches)
  return { jobs, jobArrays, reads, prerequisites }
}

const AFTER_SWEEP: Prerequisite[] = [{ array: "sweep" }]

test("an end that a cache shows counts only if a live read has it too: the name may be another object's by now", async () => {
  const ended = { phase: "succeeded", completionTime: "2026-01-01T00:00:00Z" }
  const running = objectOf<StoredJobArray>("sweep", { uid: "second", status: { phase: "running" } })
  const { jobArrays, prerequisites, reads } = cachesWith({ "jobarrays/sweep": running })
  jobArrays.put(objectOf("sweep", { uid: "first", status: ended }))
  const report = objectOf<StoredJob>("report", { after: AFTER_SWEEP })
  const found = await prerequisites.look({ job: "report" }, report)
  expect(found?.obstacle?.reason).toBe("WaitsForJob")
  expect(found?.states).toMatchObject([{ uid: "second", progress: "running" }])
  expect(reads).toEqual(["jobarrays/sweep"])
})

test("a prerequisite that runs in the cache, and one whose outcome the status has, cost no read", async () => {
  const { jobs, prerequisites, reads } = cachesWith()
  jobs.put(objectOf("prepare", { status: { phase: "running" } }))
  const status = { after: [{ job: "done", uid: "u", outcome: "succeeded" }] }
  const train = objectOf<StoredJob>("train", { after: [{ job: "prepare" }, { job: "done" }], status })
  expect((await prerequisites.look({ job: "train" }, train))?.obstacle?.reason).toBe("WaitsForJob")
  expect(reads).toEqual([])
})

test("a job that is not in the cache may be settled: it is read", async () => {
  const settled = objectOf<StoredJob>("prepare", { status: { phase: "succeeded", settled: true } })
  const { prerequisites } = cachesWith({ "jobs/prepare": settled })
  const train = objectOf<StoredJob>("train", { after: [{ job: "prepare" }, { job: "never" }] })
  expect(await prerequisites.look({ job: "train" }, train)).toMatchObject({
    states: [{ outcome: "succeeded" }, {}],
    obstacle: { reason: "JobMissing" },
  })
})

test("an outcome is awaited until each dependent has it, has ended or is deleted", () => {
  const { jobs, jobArrays, prerequisites } = cachesWith()
  const isAwaited = (uid = "uid-prepare") => prerequisites.isAwaited({ job: "prepare" }, { namespace: "team", uid })
  const after = [{ job: "prepare" }]
  expect(isAwaited()).toBe(false)
  jobs.put(objectOf("train", { after }))
  jobArrays.put(objectOf("sweep", { after }))
  expect(isAwaited()).toBe(true)
  expect(prerequisites.isAwaited({ array: "prepare" }, { namespace: "team", uid: "x" })).toBe(false)
  expect(prerequisites.isAwaited({ job: "prepare" }, { namespace: "other", uid: "x" })).toBe(false)
  jobs.put(objectOf("train", { after, status: { after: [{ job: "prepare", uid: "uid-prepare" }] } }))
  jobArrays.put(objectOf("sweep", { after, metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }))
  expect(isAwaited()).toBe(true)
  // It waits for the first job of the name only.
  expect(isAwaited("second")).toBe(false)
  jobs.put(objectOf("train", { after, status: { completionTime: "2026-01-01T00:00:00Z" } }))
  expect(isAwaited()).toBe(false)
  jobs.put(objectOf("train", { after, status: { after: [{ job: "prepare", uid: "uid-prepare", outcome: "failed" }] } }))
  expect(isAwaited()).toBe(false)
})

test("a change wakes those that wait, and an outcome that all have wakes the one that was awaited", () => {
  const { jobs, jobArrays, prerequisites } = cachesWith()
  const woken: string[] = []
  for (const source of prerequisites.jobSources()) source.subscribe((key) => void woken.push(`job ${key}`))
  for (const source of prerequisites.arraySources()) source.subscribe((key) => void woken.push(`array ${key}`))
  const taken = () => woken.splice(0)
  jobs.put(objectOf("train", { after: [{ job: "prepare" }] }))
  jobArrays.put(objectOf("sweep", { after: [{ job: "prepare" }] }))
  expect(taken()).toEqual([])
  jobs.put(objectOf("prepare", { status: { phase: "queued" } }))
  expect(taken()).toEqual(["job team/train", "array team/sweep"])
  jobs.put(objectOf("prepare", { status: { phase: "queued", message: "another" } }))
  expect(taken()).toEqual([])
  jobs.put(objectOf("prepare", { status: { phase: "succeeded" } }))
  expect(taken()).toEqual(["job team/train", "array team/sweep"])
  const status = { after: [{ job: "prepare", uid: "uid-prepare", outcome: "succeeded" }] }
  jobs.put(objectOf("train", { after: [{ job: "prepare" }], status }))
  expect(taken()).toEqual(["job team/prepare"])
})
