import type { StoredCronJob } from "../../apis/cronjob.ts"
import { isTerminal, type StoredJob } from "../../apis/job.ts"
import { tickOf } from "./job-object.ts"

/**
 * The finished Jobs that are more than the history's limits, the oldest. One whose tick is not written down yet stays:
 * it is what tells that the tick has had its Job. Pure.
 */
export function surplusJobs({ spec, status }: StoredCronJob, jobs: readonly StoredJob[]): StoredJob[] {
  const { successfulJobsHistoryLimit, failedJobsHistoryLimit } = spec
  if (successfulJobsHistoryLimit === undefined && failedJobsHistoryLimit === undefined) return []
  const recorded = status?.countsFrom === undefined ? undefined : new Date(status.countsFrom)
  const deletable = jobs
    .filter((job) => isTerminal(job.status?.phase) && job.metadata.deletionTimestamp === undefined)
    .sort((a, b) => timeOf(b) - timeOf(a))
  const succeeded = deletable.filter((job) => job.status?.phase === "succeeded")
  const failed = deletable.filter((job) => job.status?.phase !== "succeeded")
  return [
    ...succeeded.slice(successfulJobsHistoryLimit ?? succeeded.length),
    ...failed.slice(failedJobsHistoryLimit ?? failed.length),
  ].filter((job) => recorded !== undefined && timeOf(job) <= recorded.getTime())
}

/**
 * How long the Jobs took that succeeded, their mean in whole seconds; undefined when none has. Pure.
 */
export function meanSeconds(jobs: readonly StoredJob[]): number | undefined {
  const lengths = jobs.flatMap(({ status }) => {
    const { phase, startTime, completionTime } = status ?? {}
    if (phase !== "succeeded" || startTime === undefined || completionTime === undefined) return []
    return [(Date.parse(completionTime) - Date.parse(startTime)) / 1000]
  })
  if (lengths.length === 0) return undefined
  return Math.max(1, Math.round(lengths.reduce((sum, length) => sum + length, 0) / lengths.length))
}

function timeOf(job: StoredJob): number {
  return (tickOf(job) ?? new Date(job.metadata.creationTimestamp)).getTime()
}
