import { secondsBetween } from "../../apis/clock.ts"
import type { StoredCronJob } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import { shareOf } from "../../apis/meta.ts"
import { latestTick, nextTick } from "../../apis/schedule.ts"
import { latestMade } from "./jobs.ts"

/** State of a schedule at one moment. */
export interface ScheduleState {
  /** The last tick that has its Job or was skipped, or the time from which ticks count. */
  done: Date
  /** The latest tick that has come and has no Job. Ticks between `done` and it are skipped. */
  due?: Date
  /** The first tick in the future. */
  next?: Date
}

/** Facts about a CronJob besides itself. */
export interface CronJobObservation {
  /** All Jobs that it has created. */
  jobs: readonly StoredJob[]
  /** Time of the last change of its spec, if known. */
  changedAt: Date | undefined
}

/** Returns the state of an active, valid CronJob's schedule. */
export function scheduleState(
  cronJob: StoredCronJob,
  { jobs, changedAt }: CronJobObservation,
  now: Date,
): ScheduleState {
  const { schedule } = cronJob.spec
  const { countsFrom } = cronJob.status ?? {}
  const isKnown = countsFrom !== undefined && !isOtherSchedule(cronJob)
  const from = isKnown ? new Date(countsFrom) : changeOf(cronJob, changedAt, now)
  // A Job may exist that the status does not have yet.
  const made = latestMade(jobs, now)
  const done = made !== undefined && made.tick > from ? made.tick : from
  const first = nextTick(schedule, done)
  if (first === undefined) return { done }
  if (first > now) return { done, next: first }
  const due = latestTick(schedule, done, now)
  const next = nextTick(schedule, now)
  return { done, ...(due !== undefined && { due }), ...(next !== undefined && { next }) }
}

/**
 * Longest delay before a CronJob is reconciled again, seconds. Timers measure durations, but ticks are times of the calendar.
 * After a suspension of the machine, or a change of its calendar, a tick is late by at most this. A shorter delay costs CPU:
 * each reconcile of an idle CronJob takes about 0.1 ms.
 */
export const LONGEST_DELAY_SECONDS = 120

/**
 * Returns the delay before the next reconcile, seconds. The longest delay of each CronJob is shorter by its share of a half:
 * else thousands of idle CronJobs would be reconciled in the same instant.
 */
export function delaySeconds({ metadata }: StoredCronJob, next: Date, now: Date): number {
  return Math.min(secondsBetween(now, next), LONGEST_DELAY_SECONDS * (1 - shareOf(metadata.uid) / 2))
}

/**
 * True if ticks count from the last change of the spec: the schedule is new or changed, or it was not in force before. Two
 * changes since the last reconcile may have been a pause and a resumption.
 */
function isOtherSchedule({ metadata, spec, status }: StoredCronJob): boolean {
  if (status?.nextTriggerTime === undefined) return true
  if (status.observedSchedule !== spec.schedule) return true
  return metadata.generation - (status.observedGeneration ?? 0) > 1
}

/** Ticks that were missed before the change get no Job, and ticks that had their Job get no second one. */
function changeOf(cronJob: StoredCronJob, changedAt: Date | undefined, now: Date): Date {
  const { metadata, status } = cronJob
  if (status?.observedGeneration === metadata.generation) return now
  const created = new Date(metadata.creationTimestamp)
  const change = changedAt ?? (metadata.generation === 1 ? created : now)
  const counted = status?.countsFrom === undefined ? created : new Date(status.countsFrom)
  // A wrong clock wrote a time in the future.
  return counted <= now && counted > change ? counted : change
}
