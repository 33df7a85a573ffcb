import { type ConditionUpdate, findCondition, setCondition } from "../../apis/conditions.ts"
import { isTerminal, JobCondition, JobReason, type JobStatus, type StoredJob } from "../../apis/job.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import type { Condition } from "../../apis/schema.ts"

/**
 * The conditions that tell of a status. For kstatus (Helm, Flux, Argo CD): Reconciling until the container has started,
 * then Ready, as it treats batch Jobs; failed and cancelled ones are Stalled, as nothing will come of them any more.
 * `Complete` is there only for success, so that `kubectl wait --for=condition=Complete` waits for just that; a
 * cancelled job is `Failed` with the reason Cancelled. Pure.
 */
export function conditionsOf(
  job: StoredJob,
  status: JobStatus,
  launch: StoredLaunch | undefined,
  now: Date,
): Condition[] {
  const before = job.status?.conditions
  const updates = [...progress(status, launch, before), ...ends(status, before), ...kstatus(status, before)]
  return updates.reduce<Condition[]>(
    (conditions, update) => setCondition(conditions, update, job.metadata.generation, now),
    [...(before ?? [])],
  )
}

function condition(type: JobCondition, isTrue: boolean, { reason, message }: { reason: string; message: string }) {
  return { type, status: isTrue ? "True" : "False", reason, message } as const
}

/** Why a status is as it is, in a condition's words. */
function cause({ reason, message }: JobStatus): { reason: string; message: string } {
  return { reason: reason ?? JobReason.Queued, message: message ?? "" }
}

function progress(
  status: JobStatus,
  launch: StoredLaunch | undefined,
  before: readonly Condition[] | undefined,
): ConditionUpdate[] {
  const { placement } = status
  const why = cause(status)
  const placed = placement === undefined ? why : { reason: JobReason.Placed, message: placement.reason }
  const updates: ConditionUpdate[] = [condition(JobCondition.Placed, placement !== undefined, placed)]
  if (launch === undefined && isTerminal(status.phase)) return [...updates, ...kept(before)]
  const agent = launch?.status?.agent
  const registered = agent !== undefined
  const vm = registered
    ? { reason: "Registered", message: `agent ${agent.version ?? ""} (${agent.runtime ?? ""})` }
    : why
  updates.push(condition(JobCondition.VMReady, registered, vm))
  const started = agent?.startTime !== undefined
  const start = started ? { reason: JobReason.Started, message: "the container was started" } : why
  updates.push(condition(JobCondition.Started, started, start))
  const message = "the command runs on the VM itself, without its image: no Docker engine was found"
  return [
    ...updates,
    ...optional(JobCondition.Unisolated, agent?.runtime === "process", { reason: "ProcessRuntime", message }, before),
  ]
}

/** What an ended job has come to stays true, also when the record of its Launch is deleted. */
function kept(before: readonly Condition[] | undefined): ConditionUpdate[] {
  const types: string[] = [JobCondition.VMReady, JobCondition.Started, JobCondition.Unisolated]
  return (before ?? []).filter(({ type }) => types.includes(type))
}

function ends(status: JobStatus, before: readonly Condition[] | undefined): ConditionUpdate[] {
  const why = cause(status)
  return [
    ...optional(JobCondition.Complete, status.phase === "succeeded", why, before),
    ...optional(JobCondition.Failed, status.phase === "failed" || status.phase === "cancelled", why, before),
  ]
}

function kstatus(status: JobStatus, before: readonly Condition[] | undefined): ConditionUpdate[] {
  const { phase, reason } = status
  const why = cause(status)
  const isReady = phase === "running" || phase === "succeeded"
  const isStalled = phase === "failed" || phase === "cancelled" || reason === JobReason.Held
  return [
    condition(JobCondition.Ready, isReady, why),
    condition(JobCondition.Reconciling, !isReady && !isStalled, why),
    ...optional(JobCondition.Stalled, isStalled, why, before),
  ]
}

/** A condition that is only there when it is true, or once was. */
function optional(
  type: JobCondition,
  isTrue: boolean,
  why: { reason: string; message: string },
  before: readonly Condition[] | undefined,
): ConditionUpdate[] {
  return isTrue || findCondition(before, type) !== undefined ? [condition(type, isTrue, why)] : []
}
