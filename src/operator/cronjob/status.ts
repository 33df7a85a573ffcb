import { timestamp } from "../../core/apis/clock.ts"
import {
  type ConditionCause,
  changedCondition,
  condition,
  conditionOnceTrue,
  findCondition,
  setConditions,
} from "../../core/apis/conditions.ts"
import { CronJobCondition, CronJobReason, type CronJobStatus, type StoredCronJob } from "../../core/apis/cronjob.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { countTicks } from "../../core/apis/schedule.ts"
import type { EventNote } from "../../core/kube/events.ts"
import type { JobSummary } from "../settled-jobs.ts"

/** Cause of the Ready condition. */
export interface Cause extends ConditionCause {
  reason: CronJobReason
}

/** Inputs of a status. An absent input keeps the old value, except `next`. */
export interface StatusInputs {
  cause: Cause
  countsFrom?: Date
  lastTriggered?: Date | undefined
  next?: Date | undefined
}

/** The tick to create a Job for. */
export interface Run {
  tick: Date
  /** The last earlier tick that has its Job or was skipped. */
  done: Date
  /** The first tick in the future. */
  next?: Date | undefined
}

/** Reasons for which a user must change something. */
const STALLED: readonly CronJobReason[] = [
  CronJobReason.InvalidSchedule,
  CronJobReason.InvalidDefinition,
  CronJobReason.JobRefused,
  CronJobReason.ProjectLimit,
  CronJobReason.ProjectDeleting,
]

/**
 * Returns the status of a CronJob. For kstatus (Helm, Flux, Argo CD) it is Ready while its schedule is in force or paused,
 * and Stalled while it can't create Jobs.
 */
export function nextStatus(
  cronJob: StoredCronJob,
  { cause, countsFrom, lastTriggered, next }: StatusInputs,
  now: Date,
): CronJobStatus {
  const { status: before, metadata, spec } = cronJob
  const isStalled = STALLED.includes(cause.reason)
  const updates = [
    condition(CronJobCondition.Ready, !isStalled, cause),
    conditionOnceTrue(CronJobCondition.Stalled, isStalled, cause),
  ]
  const counted = countsFrom === undefined ? before?.countsFrom : timestamp(countsFrom)
  const triggered = lastTriggered === undefined ? before?.lastTriggeredTime : timestamp(lastTriggered)
  return {
    observedGeneration: metadata.generation,
    conditions: setConditions(before?.conditions, updates, metadata.generation, now),
    observedSchedule: spec.schedule,
    ...defined({ countsFrom: counted, lastTriggeredTime: triggered }),
    ...(next !== undefined && { nextTriggerTime: timestamp(next) }),
  }
}

/** Reasons for which a tick got no Job. They stay until a tick gets one. */
const REJECTIONS = [CronJobReason.JobRefused, CronJobReason.ProjectLimit, CronJobReason.ProjectDeleting]

/** Returns the cause for which the last tick of this definition got no Job; undefined if it got one. */
export function findRejection({ metadata, status }: StoredCronJob): Cause | undefined {
  const ready = findCondition(status?.conditions, CronJobCondition.Ready)
  const isCurrent = status?.observedGeneration === metadata.generation
  const reason = REJECTIONS.find((one) => one === ready?.reason)
  return isCurrent && ready !== undefined && reason !== undefined ? { reason, message: ready.message } : undefined
}

/** A Job that the API server rejected. */
export interface Rejection {
  run: Run
  message: string
  /** True if the definition is invalid, so the tick is skipped. Otherwise the tick is retried. */
  isFinal: boolean
}

/** Returns the status after a rejected Job; undefined if the CronJob has it already. */
export function rejectedStatus(
  cronJob: StoredCronJob,
  { run: { tick, done, next }, message, isFinal }: Rejection,
  now: Date,
): CronJobStatus | undefined {
  const cause = { reason: CronJobReason.JobRefused, message }
  const status = nextStatus(cronJob, { cause, countsFrom: isFinal ? tick : done, next }, now)
  const { countsFrom, nextTriggerTime } = cronJob.status ?? {}
  const isSame = countsFrom === status.countsFrom && nextTriggerTime === status.nextTriggerTime
  return isSame && findRejection(cronJob) !== undefined ? undefined : status
}

/** Returns the event of a new Job. */
export function createdEvent({ metadata }: JobSummary): EventNote {
  return normal(CronJobReason.JobCreated, `created Job ${metadata.name}`)
}

/** Returns the event of the ticks between two others. Those ticks get no Job. Empty if there are no such ticks. */
export function skippedEvents({ spec }: StoredCronJob, done: Date, due: Date): EventNote[] {
  const count = countTicks(spec.schedule, done, due)
  if (count === 0) return []
  const message = `skipped ${countText(count)} after ${timestamp(done)}: only the latest missed tick gets a Job`
  return [warning(CronJobReason.TicksSkipped, message)]
}

/** Returns the event of a tick that missed its deadline, together with the ticks before it. */
export function deadlineEvent({ spec }: StoredCronJob, done: Date, due: Date): EventNote {
  const count = countTicks(spec.schedule, done, due) + 1
  const message =
    `skipped ${countText(count)} after ${timestamp(done)}: ` +
    `the latest, ${timestamp(due)}, missed its startingDeadlineSeconds of ${spec.startingDeadlineSeconds}`
  return warning(CronJobReason.DeadlineExceeded, message)
}

/** Returns the event of a tick that gets no Job for a reason of its project, with those before it. */
export function blockedEvent(
  { spec }: StoredCronJob,
  { done, due }: { done: Date; due: Date },
  { reason, message }: ConditionCause,
): EventNote {
  const count = countTicks(spec.schedule, done, due) + 1
  return warning(reason, `skipped ${countText(count)} after ${timestamp(done)}: ${message}`)
}

/** Returns the event of a tick that waits, by concurrencyPolicy Forbid. */
export function waitingEvent(tick: Date, unfinished: readonly StoredJob[]): EventNote {
  const message = `the tick of ${timestamp(tick)} waits until the end of ${namesOf(unfinished)} (concurrencyPolicy Forbid)`
  return normal(CronJobReason.JobActive, message)
}

/** Returns the event of a tick that cancels the Jobs before it, by concurrencyPolicy Replace. */
export function replacedEvent(unfinished: readonly StoredJob[], tick: Date): EventNote {
  const message = `cancelled ${namesOf(unfinished)} for the tick of ${timestamp(tick)} (concurrencyPolicy Replace)`
  return normal(CronJobReason.JobReplaced, message)
}

/** Returns the event of a tick whose Job needs another name. */
export function nameTakenEvent(name: string, instead: string): EventNote {
  const message = `Job ${name} exists and was not created by this CronJob: creating Job ${instead} instead`
  return warning(CronJobReason.NameTaken, message)
}

/** Returns the event of a Job that the API server rejected. */
export function rejectedEvent(message: string): EventNote {
  return warning(CronJobReason.JobRefused, message)
}

/** Returns the event of a schedule that is no longer in force. Empty if the reason was the same before. */
export function notInForceEvents(before: CronJobStatus | undefined, after: CronJobStatus): EventNote[] {
  const ready = changedCondition(before?.conditions, after.conditions, CronJobCondition.Ready)
  if (ready === undefined || ready.reason === CronJobReason.Scheduled) return []
  const { reason, message } = ready
  return [reason === CronJobReason.Paused ? normal(reason, message) : warning(reason, message)]
}

function normal(reason: string, message: string): EventNote {
  return { type: "Normal", reason, message }
}

function warning(reason: string, message: string): EventNote {
  return { type: "Warning", reason, message }
}

function countText(count: number): string {
  return count === 1 ? "1 tick" : `${count} ticks`
}

const MOST_NAMED = 5

function namesOf(jobs: readonly StoredJob[]): string {
  const names = jobs.slice(0, MOST_NAMED).map(({ metadata }) => metadata.name)
  const more = jobs.length - names.length
  return `Job ${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`
}
