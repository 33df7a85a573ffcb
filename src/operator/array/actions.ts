import type { CreationTimes } from "../../core/apis/creation-times.ts"
import { inParallel } from "../../core/apis/in-parallel.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { JobArrayReason, type StoredJobArray } from "../../core/apis/jobarray.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { JOB_ARRAYS } from "../../core/resources.ts"
import type { ReconcileContext } from "../../core/runtime/controller.ts"
import { type CreatorOptions, cancelJob, createJob, findJob, isCurrent, note } from "../created-jobs.ts"
import { endLaunch } from "../job/actions.ts"
import { isSettledJob, type JobSummary } from "../settled-jobs.ts"
import type { NewJob } from "./decide.ts"
import type { ArrayControllerDependencies } from "./dependencies.ts"
import { buildJob, isMadeFor } from "./jobs.ts"
import type { Memory } from "./memory.ts"

/** Owner of the fields that the array controller writes. */
export const FIELD_MANAGER = "berth-array-controller"

/** Requests of one reconcile at the same time. */
const REQUESTS = 16

export interface Parts {
  options: ArrayControllerDependencies
  creationTimes: CreationTimes
  memory: Memory
}

/**
 * Creates Jobs. The name of each makes a second one of its index and attempt impossible: an existing Job of the array is
 * from an earlier try or an earlier leader, and it counts. The array is read live first: a new leader's stale cache must
 * create no Job of an array that was cancelled or deleted, nor one that was deleted. Returns false if the array has changed.
 */
export async function createJobs(
  array: StoredJobArray,
  jobs: readonly NewJob[],
  { options, creationTimes, memory }: Parts,
  context: ReconcileContext,
): Promise<boolean> {
  if (!(await isCurrent(array, JOB_ARRAYS, options))) return false
  const { uid, namespace } = array.metadata
  let isRejected = false
  const create = async ({ index, attempt }: NewJob): Promise<void> => {
    if (isRejected || context.signal.aborted) return
    const job = buildJob(array, { index, attempt, createdAt: creationTimes.next() }) as StoredJob
    const creation = await createJob(job, creatorOf(options), context)
    if (creation.is === "created") return
    if (creation.is === "rejected") {
      isRejected = true
      memory.rejected(uid, { reason: JobArrayReason.JobRefused, message: creation.message })
      return
    }
    const found = await findJob(job.metadata.name, namespace, options)
    if (found === undefined) return
    if (isMadeFor(found, array, index)) note(found, options, context)
    else memory.taken(uid, index)
  }
  await inParallel(jobs, REQUESTS, (job) => create(job))
  return true
}

/** Cancels Jobs, as a user would. */
export async function cancelJobs(
  jobs: readonly StoredJob[],
  options: ArrayControllerDependencies,
  context: ReconcileContext,
): Promise<void> {
  await inParallel(jobs, REQUESTS, async (job) => {
    if (!context.signal.aborted) await cancelJob(job, creatorOf(options), context)
  })
}

/** Deletes settled Jobs. */
export async function deleteJobs(jobs: readonly JobSummary[], { settled }: ArrayControllerDependencies): Promise<void> {
  await inParallel(jobs.filter(isSettledJob), REQUESTS, (job) => settled.delete(job))
}

/** Ends VMs that wait for another job, unless one has taken them meanwhile. */
export async function endLaunches(
  launches: readonly StoredLaunch[],
  options: ArrayControllerDependencies,
  context: ReconcileContext,
): Promise<void> {
  await inParallel(launches, REQUESTS, async (launch) => {
    if (!context.signal.aborted) await endLaunch(launch, options, context)
  })
}

/** Returns the options of the actions on Jobs. */
function creatorOf(options: ArrayControllerDependencies): CreatorOptions {
  return { ...options, fieldManager: FIELD_MANAGER }
}
