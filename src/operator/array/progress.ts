import { indexesIn, indexText } from "../../core/apis/array-indexes.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { isTerminal, type JobPhase, type StoredJob } from "../../core/apis/job.ts"
import {
  type ArrayCounts,
  arrayIndexOf,
  DEFAULT_HISTORY_LIMIT,
  type JobArrayStatus,
  type StoredJobArray,
  sizeOf,
} from "../../core/apis/jobarray.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { isSettledJob, type JobSummary } from "../settled-jobs.ts"
import { jobName } from "./jobs.ts"

/** State of each index of an array. An index without a state is pending: it has no job yet. */
export interface Progress {
  size: number
  /** Indexes with a job that has not ended, or whose cost is not final. */
  active: Set<number>
  succeeded: Set<number>
  failed: Set<number>
  cancelled: Set<number>
  /** Numbers of the attempts of indexes that are not in their first. */
  attempts: Map<number, number>
  /** Number of the last request to run indexes again that was carried out. */
  retried: number
  costUsd: number
}

/** Returns the progress that a status has. */
export function recordedProgress({ spec, status = {} }: StoredJobArray): Progress {
  const size = Math.min(sizeOf(spec), LIMITS.arraySize)
  const { attempts = [], retried = 0, costUsd = 0 } = status
  return {
    size,
    active: indexesIn(status.activeIndexes, size),
    succeeded: indexesIn(status.succeededIndexes, size),
    failed: indexesIn(status.failedIndexes, size),
    cancelled: indexesIn(status.cancelledIndexes, size),
    attempts: new Map(
      attempts.flatMap(({ attempt, indexes }) => [...indexesIn(indexes, size)].map((index) => [index, attempt])),
    ),
    retried,
    costUsd,
  }
}

export function attemptOf({ attempts }: Progress, index: number): number {
  return attempts.get(index) ?? 1
}

/** Returns true if the index has ended. Its job may still be active, until its VM is deleted. */
export function hasEnded({ succeeded, failed, cancelled }: Progress, index: number): boolean {
  return succeeded.has(index) || failed.has(index) || cancelled.has(index)
}

/** Returns the indexes that have no job yet. */
export function pendingIn(progress: Progress): number[] {
  const all = Array.from({ length: progress.size }, (_, index) => index)
  return all.filter((index) => !progress.active.has(index) && !hasEnded(progress, index))
}

/** Returns the jobs of the present attempt of each index. Older attempts have ended. */
export function currentJobs<J extends JobSummary>(
  array: StoredJobArray,
  jobs: readonly J[],
  progress: Progress,
): Map<number, J> {
  const current = new Map<number, J>()
  for (const job of jobs) {
    const index = arrayIndexOf(job)
    if (index === undefined || index >= progress.size) continue
    if (job.metadata.name === jobName(array, index, attemptOf(progress, index))) current.set(index, job)
  }
  return current
}

/**
 * Returns the progress with what the jobs show. A job counts until its cost is final; then its index leaves `active`, and
 * its cost is added, in one write of the status. So each cost is added once.
 * @param missing active indexes whose job was deleted
 */
export function observe(
  before: Progress,
  current: ReadonlyMap<number, JobSummary>,
  missing: ReadonlySet<number>,
): Progress {
  const progress = copyOf(before)
  for (const [index, job] of current) {
    if (!hasEnded(before, index) || before.active.has(index)) count(progress, index, job)
  }
  for (const index of missing) {
    if (current.has(index)) continue
    progress.active.delete(index)
    if (!hasEnded(progress, index)) progress.cancelled.add(index)
  }
  return progress
}

function count(progress: Progress, index: number, job: JobSummary): void {
  const phase = endOf(job)
  if (phase !== undefined && !hasEnded(progress, index)) progress[phase].add(index)
  const costUsd = job.status?.cost?.actualUsd
  if (isTerminal(job.status?.phase) && costUsd !== undefined) {
    progress.active.delete(index)
    progress.costUsd = roundUsd(progress.costUsd + costUsd)
  } else progress.active.add(index)
}

function copyOf(progress: Progress): Progress {
  return {
    ...progress,
    active: new Set(progress.active),
    succeeded: new Set(progress.succeeded),
    failed: new Set(progress.failed),
    cancelled: new Set(progress.cancelled),
    attempts: new Map(progress.attempts),
  }
}

type EndPhase = "succeeded" | "failed" | "cancelled"

/** Returns the end of a job; undefined while it has none. A job that is being deleted counts as cancelled. */
function endOf({ metadata, status }: JobSummary): EndPhase | undefined {
  if (isTerminal(status?.phase)) return status?.phase as EndPhase
  return metadata.deletionTimestamp === undefined ? undefined : "cancelled"
}

/** Returns true if the array still needs to see the end of its job, to count the job and its cost. */
export function awaitsEnd(array: StoredJobArray, job: JobSummary, progress = recordedProgress(array)): boolean {
  const index = arrayIndexOf(job)
  if (index === undefined || array.metadata.deletionTimestamp !== undefined) return false
  if (currentJobs(array, [job], progress).size === 0) return false
  return progress.active.has(index) || !hasEnded(progress, index)
}

/** Moves indexes to their next attempt. They become pending, or fail if they had the last attempt. */
export function nextAttempt(progress: Progress, indexes: Iterable<number>): void {
  for (const index of indexes) {
    for (const set of [progress.active, progress.succeeded, progress.failed, progress.cancelled]) set.delete(index)
    const attempt = attemptOf(progress, index) + 1
    if (attempt > LIMITS.arrayAttempts) progress.failed.add(index)
    else progress.attempts.set(index, attempt)
  }
}

/**
 * Carries out a new request to run indexes again, and returns them. It waits until the costs of all their jobs are final.
 * Undefined: there is no new request.
 */
export function retry({ spec }: StoredJobArray, progress: Progress): number[] | undefined {
  const { retry: request, cancelled } = spec
  if (request === undefined || request.number <= progress.retried) return undefined
  const named = [...indexesIn(request.indexes, progress.size)]
  if (cancelled !== true && named.some((index) => progress.active.has(index) && hasEnded(progress, index))) {
    return undefined
  }
  progress.retried = request.number
  const ended = named.filter((index) => progress.failed.has(index) || progress.cancelled.has(index))
  const again = cancelled === true ? [] : ended.filter((index) => attemptOf(progress, index) < LIMITS.arrayAttempts)
  nextAttempt(progress, again)
  return again
}

/** Returns the number of indexes in each phase. */
export function countIndexes(progress: Progress, current: ReadonlyMap<number, JobSummary>): ArrayCounts {
  const { size, succeeded, failed, cancelled } = progress
  const live: Record<Exclude<JobPhase, EndPhase>, number> = { queued: 0, booting: 0, running: 0 }
  let unfinished = 0
  for (const index of progress.active) {
    if (hasEnded(progress, index)) continue
    unfinished++
    const phase = current.get(index)?.status?.phase ?? "queued"
    if (phase === "queued" || phase === "booting" || phase === "running") live[phase]++
  }
  const ended = { succeeded: succeeded.size, failed: failed.size, cancelled: cancelled.size }
  return { pending: size - unfinished - succeeded.size - failed.size - cancelled.size, ...live, ...ended }
}

/** Returns the fields of a status that have the progress. */
export function progressFields(progress: Progress): Partial<JobArrayStatus> {
  const byAttempt = Map.groupBy(progress.attempts, ([, attempt]) => attempt)
  const attempts = [...byAttempt]
    .sort(([a], [b]) => a - b)
    .map(([attempt, indexes]) => ({ attempt, indexes: indexText(indexes.map(([index]) => index)) }))
  return {
    size: progress.size,
    activeIndexes: indexText(progress.active),
    succeededIndexes: indexText(progress.succeeded),
    failedIndexes: indexText(progress.failed),
    cancelledIndexes: indexText(progress.cancelled),
    ...(attempts.length > 0 && { attempts }),
    ...(progress.retried > 0 && { retried: progress.retried }),
    costUsd: progress.costUsd,
  }
}

/** Returns the settled jobs beyond the limits of the history, the oldest ends first to go. */
export function surplusJobs(array: StoredJobArray, settled: readonly JobSummary[], progress: Progress): JobSummary[] {
  const { successfulJobsHistoryLimit = DEFAULT_HISTORY_LIMIT, failedJobsHistoryLimit = DEFAULT_HISTORY_LIMIT } =
    array.spec
  const kept = settled
    .filter((job) => isSettledJob(job) && job.metadata.deletionTimestamp === undefined)
    .filter((job) => !awaitsEnd(array, job, progress))
    .sort((a, b) => endTimeOf(b) - endTimeOf(a))
  const succeeded = kept.filter(({ status }) => status?.phase === "succeeded")
  const others = kept.filter(({ status }) => status?.phase !== "succeeded")
  return [...succeeded.slice(successfulJobsHistoryLimit), ...others.slice(failedJobsHistoryLimit)]
}

function endTimeOf({ metadata, status }: JobSummary): number {
  return Date.parse(status?.completionTime ?? metadata.creationTimestamp)
}

/** Returns the jobs that have not ended and are not being deleted. */
export function unfinishedAmong(jobs: Iterable<StoredJob>): StoredJob[] {
  return [...jobs].filter((job) => endOf(job) === undefined)
}
