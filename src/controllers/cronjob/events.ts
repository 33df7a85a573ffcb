import { timestamp } from "../../apis/clock.ts"
import { findCondition } from "../../apis/conditions.ts"
import { CronJobCondition, CronJobReason, type CronJobStatus, type StoredCronJob } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import { countTicks } from "../../apis/schedule.ts"
import type { EventNote } from "../../kube/events.ts"
import type { Standing } from "./status.ts"

/** A tick has its Job. */
export function created({ metadata }: StoredJob): EventNote {
  return normal(CronJobReason.JobCreated, `created Job ${metadata.name}`)
}

/** Ticks between two that were dealt with are made up for by the later one; none: no event. */
export function skippedBetween({ spec }: StoredCronJob, done: Date, due: Date): EventNote[] {
  const count = countTicks(spec.schedule, done, due)
  if (count === 0) return []
  const message = `skipped ${counted(count)} after ${timestamp(done)}: only the latest that was missed is made up for`
  return [warning(CronJobReason.TicksSkipped, message)]
}

/** A tick is too late for its deadline, and so are those before it. */
export function tooLate({ spec }: StoredCronJob, done: Date, due: Date): EventNote {
  const count = countTicks(spec.schedule, done, due) + 1
  const message =
    `skipped ${counted(count)} after ${timestamp(done)}: ` +
    `the latest, ${timestamp(due)}, is later than startingDeadlineSeconds, ${spec.startingDeadlineSeconds}, allows`
  return warning(CronJobReason.DeadlineExceeded, message)
}

/** A tick waits, as concurrencyPolicy Forbid has it. */
export function waits(tick: Date, unfinished: readonly StoredJob[]): EventNote {
  const message = `the tick of ${timestamp(tick)} waits for the end of ${namesOf(unfinished)} (concurrencyPolicy Forbid)`
  return normal(CronJobReason.JobActive, message)
}

/** A tick ends the Jobs before it, as concurrencyPolicy Replace has it. */
export function replaced(unfinished: readonly StoredJob[], tick: Date): EventNote {
  const message = `cancelled ${namesOf(unfinished)} for the tick of ${timestamp(tick)} (concurrencyPolicy Replace)`
  return normal(CronJobReason.JobReplaced, message)
}

/** Somebody else has the name of a tick's Job. */
export function nameTaken(name: string, instead: string): EventNote {
  const message = `Job ${name} exists and was not made by this CronJob: the name ${instead} is taken instead`
  return warning(CronJobReason.NameTaken, message)
}

/** The API server takes no Job for a tick. */
export function refused(message: string): EventNote {
  return warning(CronJobReason.JobRefused, message)
}

/** Why a schedule fires no more, once. */
export function changes(before: CronJobStatus | undefined, { reason, message }: Standing): EventNote[] {
  const was = findCondition(before?.conditions, CronJobCondition.Ready)
  if (was?.reason === reason || reason === CronJobReason.Scheduled) return []
  return [reason === CronJobReason.Paused ? normal(reason, message) : warning(reason, message)]
}

function normal(reason: CronJobReason, message: string): EventNote {
  return { type: "Normal", reason, message }
}

function warning(reason: CronJobReason, message: string): EventNote {
  return { type: "Warning", reason, message }
}

function counted(count: number): string {
  return count === 1 ? "1 tick" : `${count} ticks`
}

const MOST_NAMED = 5

function namesOf(jobs: readonly StoredJob[]): string {
  const names = jobs.slice(0, MOST_NAMED).map(({ metadata }) => metadata.name)
  const more = jobs.length - names.length
  return `Job ${names.join(", ")}${more > 0 ? ` and ${more} more` : ""}`
}
