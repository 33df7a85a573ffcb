import { timestamp } from "../../apis/clock.ts"
import { type ConditionUpdate, findCondition, setCondition } from "../../apis/conditions.ts"
import { CronJobCondition, CronJobReason, type CronJobStatus, type StoredCronJob } from "../../apis/cronjob.ts"
import type { Condition } from "../../apis/schema.ts"

/** Why a CronJob is ready or not. */
export interface Standing {
  reason: CronJobReason
  message: string
}

/** What is to be told of a CronJob; what is left out stays as it is, but for `next`. */
export interface Told {
  standing: Standing
  countsFrom?: Date
  lastTriggered?: Date | undefined
  next?: Date | undefined
}

/** A tick whose Job is to be made. */
export interface Firing {
  tick: Date
  /** Ticks up to this are dealt with. */
  done: Date
  /** The first tick to come. */
  next?: Date | undefined
}

/** Reasons for which only somebody's act can make it work again. */
const STALLED: readonly CronJobReason[] = [
  CronJobReason.InvalidSchedule,
  CronJobReason.InvalidDefinition,
  CronJobReason.JobRefused,
]

/**
 * What a CronJob's status becomes. For kstatus (Helm, Flux, Argo CD) it is Ready when its schedule is in force or was
 * paused, and Stalled when it can't make Jobs. Pure.
 */
export function statusOf(
  cronJob: StoredCronJob,
  { standing, countsFrom, lastTriggered, next }: Told,
  now: Date,
): CronJobStatus {
  const { status: before, metadata, spec } = cronJob
  const isStalled = STALLED.includes(standing.reason)
  const conditions = [
    condition(CronJobCondition.Ready, !isStalled, standing),
    ...optional(CronJobCondition.Stalled, isStalled, standing, before?.conditions),
  ].reduce<Condition[]>(
    (all, update) => setCondition(all, update, metadata.generation, now),
    [...(before?.conditions ?? [])],
  )
  const counted = countsFrom === undefined ? before?.countsFrom : timestamp(countsFrom)
  const triggered = lastTriggered === undefined ? before?.lastTriggeredTime : timestamp(lastTriggered)
  return {
    observedGeneration: metadata.generation,
    conditions,
    observedSchedule: spec.schedule,
    ...(counted !== undefined && { countsFrom: counted }),
    ...(triggered !== undefined && { lastTriggeredTime: triggered }),
    ...(next !== undefined && { nextTriggerTime: timestamp(next) }),
  }
}

/** Why no Job of this very definition was taken at the last tick; undefined when one was, or none was tried. */
export function refusalOf({ metadata, status }: StoredCronJob): Standing | undefined {
  const ready = findCondition(status?.conditions, CronJobCondition.Ready)
  const isOfThis = status?.observedGeneration === metadata.generation
  if (!isOfThis || ready?.reason !== CronJobReason.JobRefused) return undefined
  return { reason: CronJobReason.JobRefused, message: ready.message }
}

/**
 * What the status becomes when the API server takes no Job for a tick; undefined: as it is, told before. Pure.
 * @param isFinal the definition is not valid, so that the tick is passed over; else it goes on waiting
 */
export function refusedStatus(
  cronJob: StoredCronJob,
  { firing: { tick, done, next }, message, isFinal }: { firing: Firing; message: string; isFinal: boolean },
  now: Date,
): CronJobStatus | undefined {
  const standing = { reason: CronJobReason.JobRefused, message }
  const status = statusOf(cronJob, { standing, countsFrom: isFinal ? tick : done, next }, now)
  const { countsFrom, nextTriggerTime } = cronJob.status ?? {}
  const isSame = countsFrom === status.countsFrom && nextTriggerTime === status.nextTriggerTime
  return isSame && refusalOf(cronJob) !== undefined ? undefined : status
}

function condition(type: CronJobCondition, isTrue: boolean, standing: Standing): ConditionUpdate {
  return { type, status: isTrue ? "True" : "False", ...standing }
}

/** A condition that is only there when it is true, or once was. */
function optional(
  type: CronJobCondition,
  isTrue: boolean,
  standing: Standing,
  before: readonly Condition[] | undefined,
): ConditionUpdate[] {
  return isTrue || findCondition(before, type) !== undefined ? [condition(type, isTrue, standing)] : []
}
