import { timestamp } from "../../apis/clock.ts"
import { CRON_JOB_ANNOTATIONS, type StoredCronJob } from "../../apis/cronjob.ts"
import { JOB, type Job, type StoredJob } from "../../apis/job.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../apis/meta.ts"
import { fromMetadataName } from "../../apis/names.ts"

/** The name of a tick's Job: `<cronjob>-20260130t033000z`; by a number from 2 on where others have the names before. */
export function jobName(cronJob: StoredCronJob, tick: Date, number = 1): string {
  const time = timestamp(tick).toLowerCase().replaceAll(/[-:]/g, "")
  const name = `${fromMetadataName(cronJob.metadata.name)}-${time}`
  return number === 1 ? name : `${name}-${number}`
}

/** The tick that a Job was made for; undefined when it does not say. */
export function tickOf({ metadata }: StoredJob): Date | undefined {
  const tick = new Date(metadata.annotations?.[CRON_JOB_ANNOTATIONS.scheduledTime] ?? "")
  return Number.isNaN(tick.getTime()) ? undefined : tick
}

/** Whether a Job was made by this very CronJob for this tick; its name alone says nothing. */
export function isMadeFor(job: StoredJob, cronJob: StoredCronJob, tick: Date): boolean {
  const isOurs = job.metadata.labels?.[LABELS.cronJobUid] === cronJob.metadata.uid
  return isOurs && tickOf(job)?.getTime() === tick.getTime()
}

export interface JobFacts {
  tick: Date
  /** For ANNOTATIONS.createdAt. */
  createdAt: string
  /** Default 1. */
  number?: number
  /** How long its like took so far. */
  expectedSeconds?: number | undefined
}

/**
 * The Job of a tick. It has no owner: a CronJob that goes leaves its Jobs, and the garbage collector must not end what
 * runs.
 */
export function jobOf(cronJob: StoredCronJob, { tick, createdAt, number, expectedSeconds }: JobFacts): Job {
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
        [CRON_JOB_ANNOTATIONS.scheduledTime]: timestamp(tick),
        ...(expectedSeconds !== undefined && { [CRON_JOB_ANNOTATIONS.expectedSeconds]: String(expectedSeconds) }),
      },
    },
    spec: cronJob.spec.jobDefinition,
  }
}
