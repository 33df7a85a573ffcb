import { isDeepStrictEqual } from "node:util"
import { secondsBetween, timestamp } from "../../apis/clock.ts"
import { CANCEL_JOBS_FINALIZER, CronJobReason, type CronJobStatus, type StoredCronJob } from "../../apis/cronjob.ts"
import { isTerminal, JOB, type StoredJob } from "../../apis/job.ts"
import { scheduleFault } from "../../apis/schedule.ts"
import { faultsOfObject } from "../../apis/validate.ts"
import type { EventNote } from "../../kube/events.ts"
import { changes, created, replaced, skippedBetween, tooLate, waits } from "./events.ts"
import { surplusJobs } from "./history.ts"
import { jobOf } from "./job-object.ts"
import { type CronJobObservation, latestMade, type Reckoning, reckon } from "./reckoning.ts"
import { type Firing, refusalOf, type Standing, statusOf, type Told } from "./status.ts"

/** What is to be done, in this order. */
export type CronJobAction =
  | { do: "cancelJob"; job: StoredJob }
  | { do: "createJob"; firing: Firing }
  | { do: "writeStatus"; status: CronJobStatus }
  | { do: "deleteJob"; job: StoredJob }
  | { do: "dropFinalizer" }

export interface CronJobDecision {
  actions: CronJobAction[]
  /** Told once the actions are done. */
  events: EventNote[]
  /** When time alone changes the decision; undefined: never. */
  wakeAt?: Date
}

/**
 * What is to be done about a CronJob now, pure. A tick takes two decisions: to make its Job, while there is none, and
 * to write down that there is one. So whatever crashes in between, the next look goes on where the world is.
 */
export function decide(cronJob: StoredCronJob, observed: CronJobObservation, now: Date): CronJobDecision {
  if (cronJob.metadata.deletionTimestamp !== undefined) return decideDeletion(cronJob, observed)
  const standing = outOfForce(cronJob)
  if (standing !== undefined) return settled(cronJob, observed, { told: { standing }, now })
  const reckoning = reckon(cronJob, observed, now)
  const wake = reckoning.next === undefined ? {} : { wakeAt: reckoning.next }
  return { ...decideTick(cronJob, observed, reckoning, now), ...wake }
}

/** Nothing holds a deletion up where nobody asked for it; else all that has not ended is cancelled, not waited for. */
function decideDeletion({ metadata }: StoredCronJob, { jobs }: CronJobObservation): CronJobDecision {
  if (!metadata.finalizers?.includes(CANCEL_JOBS_FINALIZER)) return { actions: [], events: [] }
  return { actions: [...cancelAll(jobs), { do: "dropFinalizer" }], events: [] }
}

/** Why the schedule is not in force; undefined when it is. */
function outOfForce(cronJob: StoredCronJob): Standing | undefined {
  const { spec } = cronJob
  const fault = scheduleFault(spec.schedule)
  if (fault !== undefined) return { reason: CronJobReason.InvalidSchedule, message: `schedule ${fault}` }
  const faults = faultsOfObject(JOB, jobOf(cronJob, PROBE))
  if (faults.length > 0) {
    const message = faults.map(({ detail }) => detail.replaceAll(/\bspec\./g, "jobDefinition.")).join("; ")
    return { reason: CronJobReason.InvalidDefinition, message }
  }
  if (spec.active === false) return { reason: CronJobReason.Paused, message: "active is false: the schedule is paused" }
  return undefined
}

const PROBE = { tick: new Date(0), createdAt: "" }

function decideTick(
  cronJob: StoredCronJob,
  observed: CronJobObservation,
  reckoning: Reckoning,
  now: Date,
): CronJobDecision {
  const { due, done, next } = reckoning
  if (due === undefined) return inForce(cronJob, observed, { reckoning, now })
  const { concurrencyPolicy, startingDeadlineSeconds } = cronJob.spec
  if (startingDeadlineSeconds !== undefined && Math.floor(secondsBetween(due, now)) > startingDeadlineSeconds) {
    const passedOver = { ...reckoning, done: due }
    return inForce(cronJob, observed, { reckoning: passedOver, now, note: tooLate(cronJob, done, due) })
  }
  const unfinished = observed.jobs.filter(({ status }) => !isTerminal(status?.phase))
  if (concurrencyPolicy === "Forbid" && unfinished.length > 0) {
    return inForce(cronJob, observed, { reckoning, now, note: waits(due, unfinished) })
  }
  const cancelled = concurrencyPolicy === "Replace" ? cancelAll(unfinished) : []
  const events = skippedBetween(cronJob, done, due)
  if (cancelled.length > 0) events.push(replaced(unfinished, due))
  return { actions: [...cancelled, { do: "createJob", firing: { tick: due, done, next } }], events }
}

/** No Job is to be made now; `note` tells why not, where a tick has come. */
function inForce(
  cronJob: StoredCronJob,
  observed: CronJobObservation,
  { reckoning, now, note }: { reckoning: Reckoning; now: Date; note?: EventNote },
): CronJobDecision {
  const { done, next } = reckoning
  const { schedule } = cronJob.spec
  const scheduled = { reason: CronJobReason.Scheduled, message: `fires at ${JSON.stringify(schedule)}, in UTC` }
  const refusal = unrecorded(cronJob, observed, now) === undefined ? refusalOf(cronJob) : undefined
  const told = { standing: refusal ?? scheduled, countsFrom: done, next }
  const decision = settled(cronJob, observed, { told, now })
  // Once for each tick, and not each time that it is looked at.
  const isNews = next !== undefined && cronJob.status?.nextTriggerTime !== timestamp(next)
  if (note !== undefined && isNews) decision.events.push(note)
  return decision
}

/** The status as it is to be, written where it is another one, and finished Jobs deleted that are too many. */
function settled(
  cronJob: StoredCronJob,
  observed: CronJobObservation,
  { told, now }: { told: Told; now: Date },
): CronJobDecision {
  const made = unrecorded(cronJob, observed, now)
  const status = statusOf(cronJob, { ...told, lastTriggered: made?.tick }, now)
  const surplus = surplusJobs(cronJob, observed.jobs)
  const actions: CronJobAction[] = surplus.map((job) => ({ do: "deleteJob", job }))
  if (isDeepStrictEqual(status, cronJob.status)) return { actions, events: [] }
  const events = made === undefined ? [] : [created(made.job)]
  return {
    actions: [{ do: "writeStatus", status }, ...actions],
    events: [...events, ...changes(cronJob.status, told.standing)],
  }
}

/** The latest Job, when it is not written down yet that it was made. */
function unrecorded({ status }: StoredCronJob, { jobs }: CronJobObservation, now: Date) {
  const made = latestMade(jobs, now)
  const recorded = status?.lastTriggeredTime
  return made === undefined || (recorded !== undefined && made.tick <= new Date(recorded)) ? undefined : made
}

function cancelAll(jobs: readonly StoredJob[]): CronJobAction[] {
  return jobs
    .filter(({ spec, status }) => spec.cancelled !== true && !isTerminal(status?.phase))
    .map((job) => ({ do: "cancelJob", job }))
}
