import { timestamp } from "../../core/apis/clock.ts"
import { CRON_JOB_ANNOTATIONS, type StoredCronJob } from "../../core/apis/cronjob.ts"
import { isTerminal, JOB, type Job } from "../../core/apis/job.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../core/apis/meta.ts"
import { fromMetadataName } from "../../core/apis/names.ts"
import type { JobSummary } from "../settled-jobs.ts"

/** Returns the name of a tick's Job: `<cronjob>-20260130t033000z`, and `…-<number>` from number 2 on. */
export function jobName(cronJob: StoredCronJob, tick: Date, number = 1): string {
  const time = timestamp(tick).toLowerCase().replaceAll(/[-:]/g, "")
  const name = `${fromMetadataName(cronJob.metadata.name)}-${time}`
  return number === 1 ? name : `${name}-${number}`
}

/** Returns the tick that a Job was created for; undefined if its annotation is missing or invalid. */
export function readTick({ metadata }: Pick<JobSummary, "metadata">): Date | undefined {
  const tick = new Date(metadata.annotations?.[CRON_JOB_ANNOTATIONS.scheduledTime] ?? "")
  return Number.isNaN(tick.getTime()) ? undefined : tick
}

/** True if this very CronJob created the Job for this tick. The name alone proves nothing. */
export function isMadeFor(job: JobSummary, cronJob: StoredCronJob, tick: Date): boolean {
  const isOurs = job.metadata.labels?.[LABELS.cronJobUid] === cronJob.metadata.uid
  return isOurs && readTick(job)?.getTime() === tick.getTime()
}

/** Inputs of a tick's Job besides the CronJob. */
export interface JobFacts {
  tick: Date
  /** For ANNOTATIONS.createdAt. */
  createdAt: string
  /** Part of the name: 2 or more if other Jobs have the earlier names. Default 1. */
  number?: number
  /** Mean duration of earlier Jobs, seconds. */
  expectedSeconds?: number | undefined
}

/**
 * Returns the Job of a tick. It has no owner reference: a deleted CronJob leaves its Jobs, and the garbage collector
 * must not delete running Jobs.
 */
export function buildJob(cronJob: StoredCronJob, { tick, createdAt, number, expectedSeconds }: JobFacts): Job {
  const { namespace = "", uid } = cronJob.metadata
  return {
    apiVersion: API_VERSION,
    kind: JOB.kind,
    metadata: {
      name: jobName(cronJob, tick, number),
      namespace,
      labels: { [LABELS.cronJobUid]: uid },
      annotations: {
        [ANNOTATIONS.createdAt]: createdAt,
        [CRON_JOB_ANNOTATIONS.name]: cronJob.metadata.name,
        [CRON_JOB_ANNOTATIONS.scheduledTime]: timestamp(tick),
        ...(expectedSeconds !== undefined && { [CRON_JOB_ANNOTATIONS.expectedSeconds]: String(expectedSeconds) }),
      },
    },
    spec: cronJob.spec.jobDefinition,
  }
}

/**
 * Returns the Job of the latest tick that is not in the future. A wrong clock may have created Jobs for later ticks.
 */
export function latestMade(jobs: readonly JobSummary[], now: Date): { job: JobSummary; tick: Date } | undefined {
  let latest: { job: JobSummary; tick: Date } | undefined
  for (const job of jobs) {
    const tick = readTick(job)
    if (tick === undefined || tick > now || (latest !== undefined && tick <= latest.tick)) continue
    latest = { job, tick }
  }
  return latest
}

/** Returns true if a CronJob keeps only a number of its finished Jobs. */
export function limitsHistory({ spec }: Pick<StoredCronJob, "spec">): boolean {
  return (spec.successfulJobsHistoryLimit ?? spec.failedJobsHistoryLimit) !== undefined
}

/**
 * Returns the oldest finished Jobs beyond the limits of the history. A Job whose tick is not in the status yet stays: it is
 * the only proof that the tick had its Job. A Job that a person ran has no tick.
 */
export function surplusJobs({ spec, status }: StoredCronJob, jobs: readonly JobSummary[]): JobSummary[] {
  const { successfulJobsHistoryLimit, failedJobsHistoryLimit } = spec
  if (!limitsHistory({ spec })) return []
  const recorded = status?.countsFrom === undefined ? undefined : new Date(status.countsFrom)
  const deletable = jobs
    .filter((job) => isTerminal(job.status?.phase) && job.metadata.deletionTimestamp === undefined)
    .sort((a, b) => timeOf(b) - timeOf(a))
  const succeeded = deletable.filter((job) => job.status?.phase === "succeeded")
  const failed = deletable.filter((job) => job.status?.phase !== "succeeded")
  return [
    ...succeeded.slice(successfulJobsHistoryLimit ?? succeeded.length),
    ...failed.slice(failedJobsHistoryLimit ?? failed.length),
  ].filter((job) => {
    const tick = readTick(job)
    return tick === undefined || (recorded !== undefined && tick <= recorded)
  })
}

/** Returns the mean duration of those Jobs that succeeded, in whole seconds; undefined if there are none. */
export function meanSeconds(jobs: readonly JobSummary[]): number | undefined {
  const durations = jobs.flatMap(({ status }) => {
    const { phase, startTime, completionTime } = status ?? {}
    if (phase !== "succeeded" || startTime === undefined || completionTime === undefined) return []
    return [(Date.parse(completionTime) - Date.parse(startTime)) / 1000]
  })
  if (durations.length === 0) return undefined
  return Math.max(1, Math.round(durations.reduce((sum, seconds) => sum + seconds, 0) / durations.length))
}

function timeOf(job: JobSummary): number {
  return (readTick(job) ?? new Date(job.metadata.creationTimestamp)).getTime()
}
