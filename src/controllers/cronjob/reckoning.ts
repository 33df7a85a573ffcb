import type { StoredCronJob } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import { latestTick, nextTick } from "../../apis/schedule.ts"
import { tickOf } from "./job-object.ts"

/** Where a schedule stands. */
export interface Reckoning {
  /** Ticks up to this are dealt with: as far as was written down, or since schedule or active changed. */
  from: Date
  /** The same by what is there: a Job may be there that was not written down. */
  done: Date
  /** The latest tick that has come and is not dealt with; those before it are passed over. */
  due?: Date
  /** The first tick to come. */
  next?: Date
}

/** What is known of a CronJob besides itself. */
export interface CronJobObservation {
  /** All that it has made. */
  jobs: readonly StoredJob[]
  /** When its spec was last changed, where that is known. */
  changedAt: Date | undefined
}

/** Where the schedule of an active, valid CronJob stands. */
export function reckon(cronJob: StoredCronJob, { jobs, changedAt }: CronJobObservation, now: Date): Reckoning {
  const { schedule } = cronJob.spec
  const { countsFrom } = cronJob.status ?? {}
  const isKnown = countsFrom !== undefined && !isOtherSchedule(cronJob)
  const from = isKnown ? new Date(countsFrom) : changeOf(cronJob, changedAt, now)
  const made = latestMade(jobs, now)
  const done = made !== undefined && made.tick > from ? made.tick : from
  const due = latestTick(schedule, done, now)
  const next = nextTick(schedule, done > now ? done : now)
  return { from, done, ...(due !== undefined && { due }), ...(next !== undefined && { next }) }
}

/**
 * Whether ticks are to be counted anew: the schedule is new or another one, or it did not fire before. Of two changes
 * since we looked last, one may have paused it and the other resumed it.
 */
function isOtherSchedule({ metadata, spec, status }: StoredCronJob): boolean {
  if (status?.nextTriggerTime === undefined) return true
  if (status.observedSchedule !== spec.schedule) return true
  return metadata.generation - (status.observedGeneration ?? 0) > 1
}

/** What was missed before the change is not made up for, nor what was dealt with fired again. */
function changeOf(cronJob: StoredCronJob, changedAt: Date | undefined, now: Date): Date {
  const { metadata, status } = cronJob
  if (status?.observedGeneration === metadata.generation) return now
  const created = new Date(metadata.creationTimestamp)
  const change = changedAt ?? (metadata.generation === 1 ? created : now)
  const counted = status?.countsFrom === undefined ? created : new Date(status.countsFrom)
  // One in the future was written by a clock that was wrong.
  return counted <= now && counted > change ? counted : change
}

/** The Job of the latest tick that has come; what a wrong clock has made for the future does not count. */
export function latestMade(jobs: readonly StoredJob[], now: Date): { job: StoredJob; tick: Date } | undefined {
  let latest: { job: StoredJob; tick: Date } | undefined
  for (const job of jobs) {
    const tick = tickOf(job)
    if (tick === undefined || tick > now || (latest !== undefined && tick <= latest.tick)) continue
    latest = { job, tick }
  }
  return latest
}
