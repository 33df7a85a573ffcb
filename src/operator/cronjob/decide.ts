import { isDeepStrictEqual } from "node:util"
import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import {
  CANCEL_JOBS_FINALIZER,
  CronJobReason,
  type CronJobStatus,
  type StoredCronJob,
} from "../../core/apis/cronjob.ts"
import { isTerminal, JOB, type StoredJob } from "../../core/apis/job.ts"
import { scheduleError } from "../../core/apis/schedule.ts"
import { errorsOfObject } from "../../core/apis/validate.ts"
import type { EventNote } from "../../core/kube/events.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"
import type { JobSummary } from "../settled-jobs.ts"
import { buildJob, latestMade, surplusJobs } from "./jobs.ts"
import { type CronJobObservation, delaySeconds, type ScheduleState, scheduleState } from "./schedule.ts"
import {
  blockedEvent,
  type Cause,
  createdEvent,
  deadlineEvent,
  findRejection,
  nextStatus,
  notInForceEvents,
  type Run,
  replacedEvent,
  type StatusInputs,
  skippedEvents,
  waitingEvent,
} from "./status.ts"

export type CronJobAction =
  | { do: "cancelJob"; job: StoredJob }
  | { do: "createJob"; run: Run }
  | { do: "deleteJob"; job: JobSummary }
  | { do: "dropFinalizer" }

export interface CronJobDecision extends Decision<CronJobStatus, CronJobAction> {
  actions: CronJobAction[]
  events: EventNote[]
}

/**
 * Decides what to do with a CronJob. A tick takes two decisions: the first creates its Job, the second writes into the
 * status that the Job exists. After a crash in between, the next reconcile continues from the objects that exist. Pure.
 */
export function decide(cronJob: StoredCronJob, observed: CronJobObservation, now: Date): CronJobDecision {
  if (cronJob.metadata.deletionTimestamp !== undefined) return decideDeletion(cronJob, observed)
  const cause = notInForce(cronJob)
  if (cause !== undefined) return withStatus(cronJob, observed, { inputs: { cause }, now })
  const state = scheduleState(cronJob, observed, now)
  const decision = decideTick(cronJob, observed, state, now)
  return state.next === undefined ? decision : { ...decision, requeueAfter: delaySeconds(cronJob, state.next, now) }
}

/**
 * Returns no actions without the finalizer. With it, unfinished Jobs are cancelled, and the deletion doesn't wait for
 * their end.
 */
function decideDeletion({ metadata }: StoredCronJob, { jobs }: CronJobObservation): CronJobDecision {
  if (!metadata.finalizers?.includes(CANCEL_JOBS_FINALIZER)) return { actions: [], events: [] }
  return { actions: [...cancelAll(jobs), { do: "dropFinalizer" }], events: [] }
}

/** Returns why the schedule is not in force; undefined if it is. */
function notInForce(cronJob: StoredCronJob): Cause | undefined {
  const { spec } = cronJob
  const error = scheduleError(spec.schedule)
  if (error !== undefined) return { reason: CronJobReason.InvalidSchedule, message: `schedule ${error}` }
  const errors = errorsOfObject(JOB, buildJob(cronJob, PROBE))
  if (errors.length > 0) {
    const message = errors.map(({ detail }) => detail.replaceAll(/\bspec\./g, "jobDefinition.")).join("; ")
    return { reason: CronJobReason.InvalidDefinition, message }
  }
  if (spec.active === false) return { reason: CronJobReason.Paused, message: "active is false: the schedule is paused" }
  return undefined
}

const PROBE = { tick: new Date(0), createdAt: "" }

function decideTick(
  cronJob: StoredCronJob,
  observed: CronJobObservation,
  state: ScheduleState,
  now: Date,
): CronJobDecision {
  const { due, done, next } = state
  if (due === undefined) return withoutRun(cronJob, observed, { state, now })
  const { concurrencyPolicy, startingDeadlineSeconds } = cronJob.spec
  if (startingDeadlineSeconds !== undefined && Math.floor(secondsBetween(due, now)) > startingDeadlineSeconds) {
    const event = deadlineEvent(cronJob, done, due)
    return withoutRun(cronJob, observed, { state: { ...state, done: due }, now, event })
  }
  const { blocked } = observed
  if (blocked !== undefined) {
    const event = blockedEvent(cronJob, { done, due }, blocked)
    return withoutRun(cronJob, observed, { state: { ...state, done: due }, now, event, cause: blocked })
  }
  const unfinished = observed.jobs.filter(({ status }) => !isTerminal(status?.phase))
  if (concurrencyPolicy === "Forbid" && unfinished.length > 0) {
    return withoutRun(cronJob, observed, { state, now, event: waitingEvent(due, unfinished) })
  }
  const cancelled = concurrencyPolicy === "Replace" ? cancelAll(unfinished) : []
  const events = skippedEvents(cronJob, done, due)
  if (cancelled.length > 0) events.push(replacedEvent(unfinished, due))
  return { actions: [...cancelled, { do: "createJob", run: { tick: due, done, next } }], events }
}

/** Returns a decision that creates no Job. `event` is the reason, if a tick is due. */
function withoutRun(
  cronJob: StoredCronJob,
  observed: CronJobObservation,
  { state, now, event, cause }: { state: ScheduleState; now: Date; event?: EventNote; cause?: Cause },
): CronJobDecision {
  const { done, next } = state
  const { schedule } = cronJob.spec
  const scheduled = { reason: CronJobReason.Scheduled, message: `fires at ${JSON.stringify(schedule)}, in UTC` }
  const rejection = findUnrecorded(cronJob, observed, now) === undefined ? findRejection(cronJob) : undefined
  const inputs = { cause: cause ?? rejection ?? scheduled, countsFrom: done, next }
  const decision = withStatus(cronJob, observed, { inputs, now })
  // Emits one event for each tick, not one for each reconcile.
  const isNews = next !== undefined && cronJob.status?.nextTriggerTime !== timestamp(next)
  if (event === undefined || !isNews) return decision
  // The event of a tick has the message of the condition too.
  return { ...decision, events: [...decision.events.filter(({ reason }) => reason !== event.reason), event] }
}

/** Returns the status if it has changed, and the deletion of finished Jobs beyond the limits. */
function withStatus(
  cronJob: StoredCronJob,
  observed: CronJobObservation,
  { inputs, now }: { inputs: StatusInputs; now: Date },
): CronJobDecision {
  const made = findUnrecorded(cronJob, observed, now)
  const status = nextStatus(cronJob, { ...inputs, lastTriggered: made?.tick }, now)
  const actions = surplusJobs(cronJob, allOf(observed)).map((job): CronJobAction => ({ do: "deleteJob", job }))
  if (isDeepStrictEqual(status, cronJob.status)) return { actions, events: [] }
  const created = made === undefined ? [] : [createdEvent(made.job)]
  return { status, actions, events: [...created, ...notInForceEvents(cronJob.status, status)] }
}

/** Returns the latest Job if the status does not have its tick yet. */
function findUnrecorded({ status }: StoredCronJob, observed: CronJobObservation, now: Date) {
  const made = latestMade(allOf(observed), now)
  const recorded = status?.lastTriggeredTime
  return made === undefined || (recorded !== undefined && made.tick <= new Date(recorded)) ? undefined : made
}

function allOf({ jobs, settled = [] }: CronJobObservation): JobSummary[] {
  return [...jobs, ...settled]
}

function cancelAll(jobs: readonly StoredJob[]): CronJobAction[] {
  return jobs
    .filter(({ spec, status }) => spec.cancelled !== true && !isTerminal(status?.phase))
    .map((job) => ({ do: "cancelJob", job }))
}
