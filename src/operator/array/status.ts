import { timestamp } from "../../core/apis/clock.ts"
import {
  type ConditionCause,
  changedCondition,
  condition,
  conditionOnceTrue,
  setConditions,
} from "../../core/apis/conditions.ts"
import {
  type ArrayCounts,
  type ArrayPhase,
  DEFAULT_PARALLELISM,
  JobArrayCondition,
  JobArrayReason,
  type JobArrayStatus,
  type StoredJobArray,
} from "../../core/apis/jobarray.ts"
import { NEEDS_USER } from "../../core/apis/trouble.ts"
import type { EventNote } from "../../core/kube/events.ts"
import { jobName } from "./jobs.ts"

/** Cause of the Ready condition. */
export interface Cause extends ConditionCause {
  reason: JobArrayReason
}

/** Phase of an array, and its cause. */
export interface Verdict extends Cause {
  phase: ArrayPhase
  /** True if the array creates no more jobs and all its jobs have ended. */
  isOver: boolean
}

/** Causes for which an array waits. Time or a user ends them. */
const WAITS: readonly JobArrayReason[] = [
  JobArrayReason.ProjectLimit,
  JobArrayReason.ProjectDeleting,
  JobArrayReason.JobRefused,
  JobArrayReason.WaitsForJob,
  JobArrayReason.JobMissing,
]

/** Returns the verdict on an array that has jobs to create, or unfinished ones. `waiting`: why it creates none now. */
export function runningVerdict(
  { spec, status }: StoredJobArray,
  counts: ArrayCounts,
  waiting: Cause | undefined,
): Verdict {
  const { running, succeeded, failed, cancelled, pending } = counts
  const hasBegun = running + succeeded + failed + cancelled > 0 || status?.phase === "running"
  const phase = hasBegun ? "running" : "queued"
  if (waiting?.reason === JobArrayReason.DependencyFailed) return { phase: "failed", ...waiting, isOver: true }
  if (waiting !== undefined && pending > 0) return { phase, ...waiting, isOver: false }
  const { parallelism = DEFAULT_PARALLELISM } = spec
  const message = `at most ${parallelism} jobs at the same time`
  return { phase, reason: hasBegun ? JobArrayReason.Running : JobArrayReason.Queued, message, isOver: false }
}

/** Returns the verdict on an array that has ended. */
export function endVerdict({ spec }: StoredJobArray, counts: ArrayCounts): Verdict {
  const { succeeded, failed, cancelled, pending } = counts
  const parts = [`${succeeded} indexes succeeded`, `${failed} failed`, `${cancelled} were cancelled`]
  const message = parts.join(", ")
  const end = (phase: ArrayPhase, reason: JobArrayReason, why: string): Verdict => {
    return { phase, reason, message: why, isOver: true }
  }
  if (pending > 0) {
    const why = `${message}, ${pending} have no job: more than maxFailed, ${spec.maxFailed}, failed. retry runs them`
    return end("failed", JobArrayReason.MaxFailedExceeded, why)
  }
  if (failed + cancelled === 0) return end("succeeded", JobArrayReason.Succeeded, message)
  if (spec.cancelled === true && cancelled > 0) return end("cancelled", JobArrayReason.Cancelled, message)
  return end("failed", JobArrayReason.IndexesFailed, `${message}. retry runs the failed ones again`)
}

/**
 * Returns the conditions of an array. For kstatus (Helm, Flux, Argo CD) an array is Reconciling until it has begun, and while
 * something keeps it from creating jobs. Then it is Ready, like batch Jobs. A failed or cancelled one is Stalled.
 */
export function buildConditions({ metadata, status }: StoredJobArray, verdict: Verdict, now: Date) {
  const before = status?.conditions
  const { phase, reason, message } = verdict
  const cause = { reason, message }
  const hasFailed = phase === "failed" || phase === "cancelled"
  const isStalled = hasFailed || NEEDS_USER.includes(reason)
  const isReconciling = !isStalled && (phase === "queued" || WAITS.includes(reason))
  const causeIf = (isTrue: boolean) => (isTrue ? cause : { ...cause, message: "" })
  const updates = [
    condition(JobArrayCondition.Ready, !isStalled && !isReconciling, cause),
    condition(JobArrayCondition.Reconciling, isReconciling, causeIf(isReconciling)),
    conditionOnceTrue(JobArrayCondition.Stalled, isStalled, causeIf(isStalled)),
    conditionOnceTrue(JobArrayCondition.Complete, phase === "succeeded", causeIf(phase === "succeeded")),
    conditionOnceTrue(JobArrayCondition.Failed, hasFailed, causeIf(hasFailed)),
  ]
  return setConditions(before, updates, metadata.generation, now)
}

/** Returns the times of a status. An array that runs again has no end. */
export function arrayTimes({ status }: StoredJobArray, isOver: boolean, now: Date): Partial<JobArrayStatus> {
  const startTime = status?.startTime ?? timestamp(now)
  return { startTime, ...(isOver && { completionTime: status?.completionTime ?? timestamp(now) }) }
}

/** Returns the event of a new reason; none if the reason is the same. */
export function reasonEvents(before: JobArrayStatus | undefined, after: JobArrayStatus): EventNote[] {
  const ready = changedCondition(before?.conditions, after.conditions, JobArrayCondition.Ready)
  if (ready === undefined) return []
  const { reason, message } = ready
  const isEnd = after.phase === "succeeded" || after.phase === "cancelled"
  const isExpected = reason === JobArrayReason.Queued || reason === JobArrayReason.WaitsForJob
  return [{ type: isEnd || isExpected || ready.status === "True" ? "Normal" : "Warning", reason, message }]
}

/** Returns the event of indexes that run again. */
export function retriedEvent(indexes: readonly number[]): EventNote {
  const message = indexes.length === 0 ? "no index to run again" : `${indexes.length} indexes run again`
  return { type: "Normal", reason: JobArrayReason.Retried, message }
}

/** Returns the event of an index whose Job needs another name. */
export function nameTakenEvent(array: StoredJobArray, index: number, attempt: number): EventNote {
  const [name, instead] = [attempt, attempt + 1].map((number) => jobName(array, index, number))
  const message = `Job ${name} exists and was not created by this array: creating Job ${instead} instead`
  return { type: "Warning", reason: JobArrayReason.NameTaken, message }
}
