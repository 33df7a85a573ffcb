import { secondsBetween } from "../../core/apis/clock.ts"
import type { ConditionCause } from "../../core/apis/conditions.ts"
import type { CronJobReason, StoredCronJob } from "../../core/apis/cronjob.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { shareOf } from "../../core/apis/meta.ts"
import { latestTick, nextTick } from "../../core/apis/schedule.ts"
import type { JobSummary } from "../settled-jobs.ts"
import { latestMade } from "./jobs.ts"

/** State of a schedule at one moment. */
export interface ScheduleState {
  /** The last tick that has its Job or was skipped, or the time from which ticks count. */
  done: Date
  /** The latest tick that is due and has no Job. Ticks between `done` and it are skipped. */
  due?: Date
  /** The first tick in the future. */
  next?: Date
}

/** Facts about a CronJob besides the object. */
export interface CronJobObservation {
  /** The CronJob's Jobs that are not settled. */
  jobs: readonly StoredJob[]
  /** Its settled Jobs: all if it limits its history, else the latest. Absent: none. */
  settled?: readonly JobSummary[]
  /** Time of the last change of the spec, if known. */
  changedAt: Date | undefined
  /** Reason why no Job may be created now: a limit of the project, or its deletion. */
  blocked?: ConditionCause & { reason: CronJobReason }
}

/** Returns the state of an active, valid CronJob's schedule. */
export function scheduleState(
  cronJob: StoredCronJob,
  { jobs, settled = [], changedAt }: CronJobObservation,
  now: Date,
): ScheduleState {
  const { schedule } = cronJob.spec
  const { countsFrom } = cronJob.status ?? {}
  const isKnown = countsFrom !== undefined && !isOtherSchedule(cronJob) && !isAhead(countsFrom, now)
  const from = isKnown ? new Date(countsFrom) : changeOf(cronJob, changedAt, now)
  const done = latestDone(cronJob, { jobs: [...jobs, ...settled], from }, now)
  const first = nextTick(schedule, done)
  if (first === undefined) return { done }
  if (first > now) return { done, next: first }
  const due = latestTick(schedule, done, now)
  const next = nextTick(schedule, now)
  return { done, ...defined({ due, next }) }
}

/**
 * Returns the last tick until now that has its Job, or `from`. A Job may exist that the status does not have yet. A Job of
 * the status may be deleted.
 */
function latestDone(
  { status }: StoredCronJob,
  { jobs, from }: { jobs: readonly JobSummary[]; from: Date },
  now: Date,
): Date {
  const recorded = status?.lastTriggeredTime === undefined ? undefined : new Date(status.lastTriggeredTime)
  const ticks = [latestMade(jobs, now)?.tick, recorded].filter((tick) => tick !== undefined && tick <= now)
  return ticks.reduce<Date>((latest, tick) => (tick !== undefined && tick > latest ? tick : latest), from)
}

/** Difference of two clocks up to which a schedule simply waits, seconds. */
const CLOCK_SKEW_SECONDS = 60

/**
 * True if a clock that was ahead wrote the time, and was set back. Ticks then count from now. Each tick that has its Job
 * already gets no second one.
 */
function isAhead(time: string, now: Date): boolean {
  return secondsBetween(now, time) > CLOCK_SKEW_SECONDS
}

/**
 * Longest delay before a CronJob is reconciled again, seconds. Timers measure durations, but ticks are times of the
 * calendar. After the machine was suspended, or its clock was set, a tick is late by at most this. A shorter delay
 * costs CPU: each reconcile of an idle CronJob takes about 0.1 ms.
 */
export const LONGEST_DELAY_SECONDS = 120

/**
 * Returns the delay before the next reconcile, seconds. The longest delay differs by CronJob, by up to half. Otherwise
 * thousands of idle CronJobs would be reconciled at the same instant.
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

/** Returns the time of the change. Ticks missed before it get no Job, and ticks that had a Job get no second one. */
function changeOf(cronJob: StoredCronJob, changedAt: Date | undefined, now: Date): Date {
  const { metadata, status } = cronJob
  if (status?.observedGeneration === metadata.generation) return now
  const created = new Date(metadata.creationTimestamp)
  const change = changedAt ?? (metadata.generation === 1 ? created : now)
  const counted = status?.countsFrom === undefined ? created : new Date(status.countsFrom)
  // A wrong clock wrote a time in the future.
  return counted <= now && counted > change ? counted : change
}
