import { describe, expect, it } from "vitest"
import { findCondition } from "../../core/apis/conditions.ts"
import type { JobPhase, StoredJob } from "../../core/apis/job.ts"
import {
  arrayError,
  JOB_ARRAY_FINALIZER,
  type JobArraySpec,
  type JobArrayStatus,
  type StoredJobArray,
} from "../../core/apis/jobarray.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { API_VERSION } from "../../core/apis/meta.ts"
import { type ArrayAction, type ArrayDecision, type ArrayObservation, decide } from "./decide.ts"
import { buildJob, jobName } from "./jobs.ts"
import { awaitsEnd } from "./progress.ts"

const UID = "5ea07726-efd2-42ec-a095-6d7674666e31"
const START = "2026-05-01T10:00:00Z"
const SETTINGS = { ttlSeconds: 3600 }

interface Changes {
  spec?: Partial<JobArraySpec>
  status?: JobArrayStatus
  metadata?: Partial<StoredJobArray["metadata"]>
}

function array({ spec, status, metadata }: Changes = {}): StoredJobArray {
  return {
    apiVersion: API_VERSION,
    kind: "JobArray",
    metadata: {
      ...{ name: "sweep", namespace: "team", uid: UID, resourceVersion: "1", generation: 1 },
      creationTimestamp: START,
      finalizers: [JOB_ARRAY_FINALIZER],
      ...metadata,
    },
    spec: { jobDefinition: { image: "busybox" }, size: 10, parallelism: 3, ...spec },
    ...(status && { status }),
  }
}

interface JobChanges {
  phase?: JobPhase
  /** Final cost. Absent: the VM is not deleted. */
  usd?: number
  attempt?: number
  metadata?: Partial<StoredJob["metadata"]>
}

function job(index: number, { phase = "running", usd, attempt = 1, metadata }: JobChanges = {}): StoredJob {
  const made = buildJob(array(), { index, attempt, createdAt: "" })
  const stored = { uid: `job-${index}-${attempt}`, resourceVersion: "1", generation: 1, creationTimestamp: START }
  const status = { phase, ...(usd !== undefined && { cost: { actualUsd: usd } }) }
  return { ...made, metadata: { ...made.metadata, ...stored, ...metadata }, status } as StoredJob
}

function look(of: StoredJobArray, observed: Partial<ArrayObservation> = {}, now = START): ArrayDecision {
  const nothing = { jobs: [], settled: [], missing: new Set<number>(), taken: new Set<number>() }
  return decide(of, { ...nothing, room: Number.POSITIVE_INFINITY, ...observed }, new Date(now), SETTINGS)
}

/** Returns the array with the status after it saw these jobs. */
function seenBy(of: StoredJobArray, observed: Partial<ArrayObservation> = {}): StoredJobArray {
  const { status } = look(of, observed)
  return status === undefined ? of : { ...of, status }
}

function created({ actions }: ArrayDecision): string[] {
  const [create] = actions.filter((action) => action.do === "createJobs")
  return create === undefined ? [] : create.jobs.map(({ index, attempt }) => jobName(array(), index, attempt))
}

function cancelled({ actions }: ArrayDecision): string[] {
  const [cancel] = actions.filter((action) => action.do === "cancelJobs")
  return cancel === undefined ? [] : cancel.jobs.map(({ metadata }) => metadata.name)
}

const kinds = (actions: readonly ArrayAction[]) => actions.map((action) => action.do)

/** Jobs that have ended, with their final cost. */
const ended = (phase: JobPhase, ...indexes: number[]) => indexes.map((index) => job(index, { phase, usd: 0.1 }))

describe("an array", () => {
  it("takes its finalizer first, then creates the first jobs up to its parallelism", () => {
    expect(look(array({ metadata: { finalizers: [] } })).actions).toEqual([{ do: "addFinalizer" }])
    const decision = look(array())
    expect(created(decision)).toEqual(["sweep-0", "sweep-1", "sweep-2"])
    expect(decision.status).toMatchObject({ phase: "queued", size: 10, activeIndexes: "", startTime: START })
    expect(decision.status?.counts).toMatchObject({ pending: 10, queued: 0 })
  })

  it.each<[JobPhase | undefined, boolean]>([
    [undefined, false],
    ["queued", false],
    // Its Launch is about to take over the idle VM, or a new VM may fail to boot.
    ["booting", false],
    ["running", true],
    ["succeeded", true],
  ])("ends its idle VMs if its last job is %s: %j", (phase, ends) => {
    const kept = [{ metadata: { name: "idle" } } as StoredLaunch]
    const last = { ...job(1), status: phase && { phase } } as StoredJob
    const jobs = [job(0, { phase: "succeeded" }), last]
    const { actions } = look(array({ spec: { size: 2 } }), { jobs, kept })
    expect(actions.filter((action) => action.do === "endLaunches")).toEqual(
      ends ? [{ do: "endLaunches", launches: kept }] : [],
    )
  })

  it("counts jobs by phase, and creates the next ones in order as jobs end", () => {
    const jobs = [job(0, { phase: "succeeded" }), job(1, { phase: "booting" }), job(2)]
    const decision = look(array(), { jobs })
    expect(created(decision)).toEqual(["sweep-3"])
    expect(decision.status).toMatchObject({ phase: "running", activeIndexes: "0-2", succeededIndexes: "0", costUsd: 0 })
    expect(decision.status?.counts).toEqual({
      ...{ pending: 7, queued: 0, booting: 1, running: 1, succeeded: 1, failed: 0, cancelled: 0 },
    })
  })

  it("adds the cost of a job once, when it is final", () => {
    const seen = seenBy(array(), { jobs: ended("succeeded", 0, 1) })
    expect(seen.status).toMatchObject({ activeIndexes: "", succeededIndexes: "0-1", costUsd: 0.2 })
    expect(look(seen, { jobs: ended("succeeded", 0, 1), writtenSeconds: 9 }).status?.costUsd).toBeUndefined()
    expect(look(seen, { jobs: [job(2)], settled: ended("succeeded", 0, 1) }).status?.costUsd).toBe(0.2)
  })

  it("waits for the end of a job until its status counts the index and its cost", () => {
    const [end] = ended("failed", 4) as [StoredJob]
    expect(awaitsEnd(array(), end)).toBe(true)
    const early = seenBy(array(), { jobs: [job(4, { phase: "failed" })] })
    expect(awaitsEnd(early, end)).toBe(true)
    expect(awaitsEnd(seenBy(early, { jobs: [end] }), end)).toBe(false)
    expect(awaitsEnd(array({ metadata: { deletionTimestamp: START } }), end)).toBe(false)
    expect(awaitsEnd(array(), job(11))).toBe(false)
    expect(awaitsEnd(array(), { ...end, metadata: { ...end.metadata, name: "other" } })).toBe(false)
  })

  it("writes more progress once a second, and a new reason at once", () => {
    const running = seenBy(array(), { jobs: [job(0)] })
    const jobs = [job(0, { phase: "succeeded" }), job(1)]
    expect(look(running, { jobs, writtenSeconds: 0.25 })).toMatchObject({ requeueAfter: 0.75 })
    expect(look(running, { jobs, writtenSeconds: 0.25 }).status).toBeUndefined()
    expect(look(running, { jobs, writtenSeconds: 1 }).status?.succeededIndexes).toBe("0")
    const blocked = { reason: "ProjectLimit", message: "full" } as const
    expect(look(running, { jobs, writtenSeconds: 0.25, blocked }).status?.succeededIndexes).toBe("0")
  })

  it("succeeds when all indexes have, and is deleted after its TTL", () => {
    const all = Array.from({ length: 10 }, (_, index) => index)
    const seen = seenBy(array(), { jobs: ended("succeeded", ...all) })
    expect(seen.status).toMatchObject({
      phase: "succeeded",
      completionTime: START,
      succeededIndexes: "0-9",
      costUsd: 1,
    })
    expect(findCondition(seen.status?.conditions, "Complete")?.status).toBe("True")
    expect(findCondition(seen.status?.conditions, "Ready")?.status).toBe("True")
    expect(look(seen)).toEqual({ actions: [], events: [], requeueAfter: 3600 })
    expect(kinds(look(seen, {}, "2026-05-01T11:00:00Z").actions)).toEqual(["deleteArray"])
  })

  it("is not over while a VM is not deleted", () => {
    const jobs = [...ended("succeeded", 0, 1), job(2, { phase: "succeeded" })]
    expect(seenBy(array({ spec: { size: 3 } }), { jobs }).status).toMatchObject({
      phase: "running",
      activeIndexes: "2",
    })
  })

  it("fails if an index has failed, and says what to do", () => {
    const jobs = [...ended("succeeded", 0, 1), ...ended("failed", 2)]
    const { status, events } = look(array({ spec: { size: 3 } }), { jobs })
    expect(status).toMatchObject({ phase: "failed", failedIndexes: "2" })
    const message = "2 indexes succeeded, 1 failed, 0 were cancelled. retry runs the failed ones again"
    expect(findCondition(status?.conditions, "Stalled")).toMatchObject({
      status: "True",
      reason: "IndexesFailed",
      message,
    })
    expect(events).toEqual([{ type: "Warning", reason: "IndexesFailed", message }])
  })
})

describe("maxFailed", () => {
  const jobs = [...ended("failed", 0, 1), job(2)]

  it("keeps the array from creating jobs once more have failed; the others continue", () => {
    expect(created(look(array({ spec: { maxFailed: 2 } }), { jobs }))).toEqual(["sweep-3", "sweep-4"])
    const stopped = array({ spec: { maxFailed: 1 } })
    const decision = look(stopped, { jobs })
    expect(created(decision)).toEqual([])
    expect(cancelled(decision)).toEqual([])
    expect(decision.status?.phase).toBe("running")
  })

  it("fails the array when those have ended, and a retry continues with all indexes", () => {
    const stopped = seenBy(array({ spec: { maxFailed: 1 } }), { jobs: [...jobs.slice(0, 2), ...ended("succeeded", 2)] })
    expect(stopped.status?.phase).toBe("failed")
    expect(findCondition(stopped.status?.conditions, "Failed")?.reason).toBe("MaxFailedExceeded")
    expect(stopped.status?.counts).toMatchObject({ pending: 7, failed: 2, succeeded: 1 })
    const again = look({ ...stopped, spec: { ...stopped.spec, retry: { number: 1, indexes: "0-1" } } })
    expect(again.status).toMatchObject({ phase: "running", failedIndexes: "", retried: 1 })
    expect(again.status?.completionTime).toBeUndefined()
    expect(created(again)).toEqual(["sweep-0-2", "sweep-1-2", "sweep-3"])
  })
})

describe("a retry", () => {
  const over = seenBy(array({ spec: { size: 3 } }), { jobs: [...ended("failed", 0, 2), ...ended("succeeded", 1)] })
  const retried = (indexes: string, number = 1) => ({ ...over, spec: { ...over.spec, retry: { number, indexes } } })

  it("creates new jobs for those of the indexes that failed, and no others", () => {
    const decision = look(retried("1-2"))
    expect(created(decision)).toEqual(["sweep-2-2"])
    expect(decision.status).toMatchObject({
      ...{ phase: "running", failedIndexes: "0", succeededIndexes: "1" },
      attempts: [{ attempt: 2, indexes: "2" }],
    })
    expect(decision.events[0]).toMatchObject({ reason: "Retried", message: "1 indexes run again" })
  })

  it("is carried out once", () => {
    const first = seenBy(retried("0,2"))
    const second = seenBy(first, { jobs: [job(0, { phase: "failed", usd: 0.1, attempt: 2 }), job(2, { attempt: 2 })] })
    expect(second.status).toMatchObject({ failedIndexes: "0", activeIndexes: "2", costUsd: 0.4 })
    expect(created(look(second, { jobs: [job(2, { attempt: 2 })] }))).toEqual([])
  })

  it("ignores the jobs of earlier attempts", () => {
    const first = seenBy(retried("0,2"))
    const decision = look(first, { jobs: ended("failed", 0, 2), writtenSeconds: 9 })
    expect(created(decision)).toEqual(["sweep-0-2", "sweep-2-2"])
    expect(decision.status).toBeUndefined()
    expect(awaitsEnd(first, job(0, { phase: "failed", usd: 0.1 }))).toBe(false)
  })

  it("waits until the VMs of its jobs are deleted", () => {
    const jobs = [job(0, { phase: "failed" }), ...ended("failed", 2)]
    const ending = seenBy(array({ spec: { size: 3, retry: { number: 1, indexes: "0,2" } } }), { jobs })
    expect(ending.status).toMatchObject({ failedIndexes: "0,2", activeIndexes: "0" })
    expect(created(look(ending, { jobs }))).toEqual(["sweep-1"])
    expect(look(ending, { jobs: ended("failed", 0, 2) }).status?.retried).toBe(1)
  })

  it("runs cancelled indexes again if it names them, but not those of a cancelled array", () => {
    const one = seenBy(array({ spec: { size: 2 } }), { jobs: [...ended("cancelled", 0), ...ended("succeeded", 1)] })
    const spec = { ...one.spec, retry: { number: 1, indexes: "0" } }
    expect(created(look({ ...one, spec }))).toEqual(["sweep-0-2"])
    const none = look({ ...one, spec: { ...spec, cancelled: true } })
    expect(created(none)).toEqual([])
    expect(none.status?.retried).toBe(1)
  })
})

describe("a job that somebody cancels or deletes", () => {
  it("counts as cancelled, and is not created again", () => {
    const running = seenBy(array(), { jobs: [job(0), job(1), job(2)] })
    const jobs = [job(0, { phase: "cancelled", usd: 0.1 }), job(1, { metadata: { deletionTimestamp: START } }), job(2)]
    const decision = look(running, { jobs })
    expect(decision.status).toMatchObject({ cancelledIndexes: "0-1", activeIndexes: "1-2" })
    expect(created(decision)).toEqual(["sweep-3", "sweep-4"])
    const gone = seenBy({ ...running, status: decision.status ?? {} }, { jobs: [job(2)], missing: new Set([1]) })
    expect(gone.status).toMatchObject({ cancelledIndexes: "0-1", activeIndexes: "2", costUsd: 0.1 })
  })

  it("counts as cancelled, also if it was deleted while no operator ran", () => {
    const running = seenBy(array(), { jobs: [job(0), job(1)] })
    const decision = look(running, { jobs: [job(1)], missing: new Set([0]) })
    expect(decision.status).toMatchObject({ cancelledIndexes: "0", activeIndexes: "1" })
  })
})

describe("a cancelled array", () => {
  const jobs = [...ended("succeeded", 0), job(1), job(2, { phase: "cancelled" })]

  it("cancels its unfinished jobs and creates no others", () => {
    const decision = look(array({ spec: { cancelled: true } }), { jobs })
    expect(cancelled(decision)).toEqual(["sweep-1"])
    expect(created(decision)).toEqual([])
    expect(decision.status).toMatchObject({ phase: "running", cancelledIndexes: "2-9", activeIndexes: "1-2" })
  })

  it("is over when they have ended", () => {
    const all = [...ended("succeeded", 0), ...ended("cancelled", 1, 2)]
    const { status, events } = look(array({ spec: { cancelled: true } }), { jobs: all })
    expect(status).toMatchObject({ phase: "cancelled", succeededIndexes: "0", cancelledIndexes: "1-9" })
    expect(events).toMatchObject([{ type: "Normal", reason: "Cancelled" }])
  })

  it("stays succeeded if it had succeeded before", () => {
    const seen = seenBy(array({ spec: { size: 1 } }), { jobs: ended("succeeded", 0) })
    expect(look({ ...seen, spec: { ...seen.spec, cancelled: true } }).status?.phase ?? "succeeded").toBe("succeeded")
  })

  it("cancels its jobs and leaves when it is deleted", () => {
    const deleted = array({ metadata: { deletionTimestamp: START } })
    const decision = look(deleted, { jobs })
    expect(cancelled(decision)).toEqual(["sweep-1"])
    expect(kinds(decision.actions)).toEqual(["cancelJobs", "dropFinalizer"])
    expect(look(array({ metadata: { deletionTimestamp: START, finalizers: ["other"] } })).actions).toEqual([])
  })

  it("stays until what waits for it has its outcome, if it has one", () => {
    const metadata = { deletionTimestamp: START }
    const ended = array({ metadata, status: { phase: "succeeded", completionTime: START } })
    expect(kinds(look(ended, { isAwaited: true }).actions)).toEqual([])
    expect(kinds(look(ended).actions)).toEqual(["dropFinalizer"])
    expect(kinds(look(array({ metadata }), { isAwaited: true }).actions)).toEqual(["dropFinalizer"])
  })
})

describe("the number of jobs", () => {
  it("follows a changed parallelism, and a smaller one cancels none", () => {
    const jobs = [job(0), job(1), job(2)]
    expect(created(look(array({ spec: { parallelism: 5 } }), { jobs }))).toEqual(["sweep-3", "sweep-4"])
    const less = look(array({ spec: { parallelism: 1 } }), { jobs })
    expect(created(less)).toEqual([])
    expect(cancelled(less)).toEqual([])
  })

  it("is bounded by what the project may still create", () => {
    const decision = look(array(), { room: 1 })
    expect(created(decision)).toEqual(["sweep-0"])
    expect(look(array(), { room: 0 })).toMatchObject({ requeueAfter: 10 })
  })

  it("is 0 while the project's limit is reached, with the reason", () => {
    const blocked = { reason: "ProjectLimit", message: "the project has 9 unfinished jobs" } as const
    const { status, events, requeueAfter, ...decision } = look(array(), { jobs: [job(0)], blocked })
    expect(created(decision as ArrayDecision)).toEqual([])
    expect(requeueAfter).toBe(10)
    expect(findCondition(status?.conditions, "Reconciling")).toMatchObject({ status: "True", ...blocked })
    expect(events).toEqual([{ type: "Warning", ...blocked }])
    const free = look({ ...array(), status: status ?? {} }, { jobs: [job(0)] })
    expect(findCondition(free.status?.conditions, "Ready")).toMatchObject({ status: "True", reason: "Running" })
  })

  it("is at most 50 in one decision", () => {
    expect(created(look(array({ spec: { size: 10_000, parallelism: 200 } })))).toHaveLength(50)
  })
})

describe("a name that another Job has", () => {
  it("gives the index its next attempt, and an event says so", () => {
    const decision = look(array(), { jobs: [job(0)], taken: new Set([1]) })
    expect(created(decision)).toEqual(["sweep-1-2", "sweep-2"])
    expect(decision.status?.attempts).toEqual([{ attempt: 2, indexes: "1" }])
    expect(decision.events[0]?.message).toBe(
      "Job sweep-1 exists and was not created by this array: creating Job sweep-1-2 instead",
    )
  })
})

describe("the history", () => {
  it("keeps the jobs that ended last, of each kind", () => {
    const settled = [0, 1, 2, 3].map((index) => ({
      ...job(index, { phase: index === 3 ? "failed" : "succeeded", usd: 0 }),
      ...{ bytes: 1, expiresAt: 1 },
      status: {
        phase: index === 3 ? ("failed" as const) : ("succeeded" as const),
        cost: { actualUsd: 0 },
        completionTime: `2026-05-01T10:00:0${index}Z`,
      },
    }))
    const of = array({ spec: { successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 0 } })
    const seen = seenBy(of, { settled })
    const [remove] = look(seen, { settled }).actions.filter((action) => action.do === "deleteJobs")
    expect(remove?.jobs.map(({ metadata }) => metadata.name)).toEqual(["sweep-1", "sweep-0", "sweep-3"])
  })
})

describe("a definition", () => {
  it("gives each job its index and its combination, in the order of the variables", () => {
    const of = array({ spec: { size: undefined as never, matrix: { b: ["x", "y"], A: ["1", "2", "3"] } } })
    const envs = [0, 1, 2, 5].map((index) => buildJob(of, { index, attempt: 1, createdAt: "" }).spec.env)
    expect(envs).toEqual([
      { A: "1", b: "x", BERTH_ARRAY_INDEX: "0", BERTH_ARRAY_SIZE: "6" },
      { A: "1", b: "y", BERTH_ARRAY_INDEX: "1", BERTH_ARRAY_SIZE: "6" },
      { A: "2", b: "x", BERTH_ARRAY_INDEX: "2", BERTH_ARRAY_SIZE: "6" },
      { A: "3", b: "y", BERTH_ARRAY_INDEX: "5", BERTH_ARRAY_SIZE: "6" },
    ])
  })

  const many = Array.from({ length: 101 }, (_, index) => String(index))
  it.each<[string, Partial<JobArraySpec>, string]>([
    [
      "too many combinations",
      { matrix: { A: many, B: many } },
      "matrix has 10201 combinations; an array has at most 10000",
    ],
    [
      "a variable twice",
      { matrix: { A: ["1"] }, jobDefinition: { image: "x", env: { A: "1" } } },
      "matrix.A is a variable",
    ],
    ["a variable of Berth", { matrix: { BERTH_ARRAY_SIZE: ["1"] } }, "matrix.BERTH_ARRAY_SIZE is a variable of Berth"],
    ["too much env", { jobDefinition: { image: "x", env: { A: "1".repeat(16_380) } } }, "jobDefinition.env must have"],
  ])("fails the array with %s", (_, spec, message) => {
    const bad = array({ spec: spec.matrix === undefined ? spec : { size: undefined as never, ...spec } })
    expect(arrayError(bad.spec)).toContain(message)
    const { status, actions } = look(bad)
    expect(status?.phase).toBe("failed")
    expect(findCondition(status?.conditions, "Stalled")?.reason).toBe("InvalidDefinition")
    expect(actions).toEqual([])
  })
})
