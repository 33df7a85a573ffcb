import {
  type ConditionCause,
  type ConditionUpdate,
  condition,
  conditionOnceTrue,
  setConditions,
} from "../../apis/conditions.ts"
import { isTerminal, JobCondition, JobReason, type JobStatus, type StoredJob } from "../../apis/job.ts"
import { REFUSALS, type StoredLaunch } from "../../apis/launch.ts"
import type { Condition } from "../../apis/schema.ts"
import type { EventNote } from "../../kube/events.ts"
import { usd } from "../../router/explain.ts"
import { refusalKey } from "./launches.ts"

/**
 * Returns the conditions of a status. For kstatus (Helm, Flux, Argo CD) a job is Reconciling until the container has
 * started, then Ready, like batch Jobs. A failed or cancelled job is Stalled.
 * `Complete` exists only for success, so that `kubectl wait --for=condition=Complete` waits for success. A cancelled
 * job is `Failed` with the reason Cancelled. Pure.
 */
export function conditionsOf(
  job: StoredJob,
  status: JobStatus,
  launch: StoredLaunch | undefined,
  now: Date,
): Condition[] {
  const before = job.status?.conditions
  const updates = [...progress(status, launch, before), ...ends(status, before), ...kstatus(status, before)]
  return setConditions(before, updates, job.metadata.generation, now)
}

/** Returns the cause of a status as reason and message of a condition. */
function causeOf({ reason, message }: JobStatus): ConditionCause {
  return { reason: reason ?? JobReason.Queued, message: message ?? "" }
}

function progress(
  status: JobStatus,
  launch: StoredLaunch | undefined,
  before: readonly Condition[] | undefined,
): ConditionUpdate[] {
  const { placement } = status
  const cause = causeOf(status)
  const placed = placement === undefined ? cause : { reason: JobReason.Placed, message: placement.reason }
  const updates: ConditionUpdate[] = [condition(JobCondition.Placed, placement !== undefined, placed)]
  if (launch === undefined && isTerminal(status.phase)) return [...updates, ...kept(before)]
  const agent = launch?.status?.agent
  const registered = agent !== undefined
  const vm = registered
    ? { reason: "Registered", message: `agent ${agent.version ?? ""} (${agent.runtime ?? ""})` }
    : cause
  updates.push(condition(JobCondition.VMReady, registered, vm))
  const started = agent?.startTime !== undefined
  const start = started ? { reason: JobReason.Started, message: "the container has started" } : cause
  updates.push(condition(JobCondition.Started, started, start))
  const message = "the command runs directly on the host, without its image: no Docker engine was found"
  return [
    ...updates,
    ...conditionOnceTrue(
      JobCondition.Unisolated,
      agent?.runtime === "process",
      { reason: "ProcessRuntime", message },
      before,
    ),
  ]
}

/** Keeps the conditions of an ended job, also after its Launch is deleted. */
function kept(before: readonly Condition[] | undefined): ConditionUpdate[] {
  const types: string[] = [JobCondition.VMReady, JobCondition.Started, JobCondition.Unisolated]
  return (before ?? []).filter(({ type }) => types.includes(type))
}

function ends(status: JobStatus, before: readonly Condition[] | undefined): ConditionUpdate[] {
  const cause = causeOf(status)
  return [
    ...conditionOnceTrue(JobCondition.Complete, status.phase === "succeeded", cause, before),
    ...conditionOnceTrue(JobCondition.Failed, status.phase === "failed" || status.phase === "cancelled", cause, before),
  ]
}

function kstatus(status: JobStatus, before: readonly Condition[] | undefined): ConditionUpdate[] {
  const { phase, reason } = status
  const cause = causeOf(status)
  const isReady = phase === "running" || phase === "succeeded"
  const isStalled = phase === "failed" || phase === "cancelled" || reason === JobReason.Held
  return [
    condition(JobCondition.Ready, isReady, cause),
    condition(JobCondition.Reconciling, !isReady && !isStalled, cause),
    ...conditionOnceTrue(JobCondition.Stalled, isStalled, cause, before),
  ]
}

/** Reason of the event for a deleted VM. The message has the cost. */
export const VM_TERMINATED = "VMTerminated"

/**
 * Returns the events between the last written status and the next one. Each event is emitted once, because each status
 * is written once. Pure.
 */
export function eventsOf(job: StoredJob, next: JobStatus, number?: number): EventNote[] {
  const before = job.status ?? {}
  return [
    ...refusals(before, next),
    ...waiting(before, next),
    ...placed(next, number),
    ...machine(before, next),
    ...container(before, next),
    ...ended(before, next),
  ]
}

function normal(reason: string, message: string): EventNote {
  return { type: "Normal", reason, message }
}

function warning(reason: string, message: string): EventNote {
  return { type: "Warning", reason, message }
}

/** Rejections whose reason is the cloud's. The other reasons have their own events. */
const CLOUD_REFUSALS: readonly string[] = REFUSALS

function refusals(before: JobStatus, next: JobStatus): EventNote[] {
  const known = new Set(before.refusedOffers?.map(refusalKey))
  const fresh = next.refusedOffers?.filter((refused) => !known.has(refusalKey(refused))) ?? []
  return fresh.map(({ reason, cloud, instanceType, region, message }) => {
    const where = `${cloud} ${instanceType} in ${region}`
    const isRefusal = CLOUD_REFUSALS.includes(reason)
    return warning(isRefusal ? JobReason.OfferRefused : reason, `${where}: ${isRefusal ? `${reason}: ` : ""}${message}`)
  })
}

/** Reasons that already have an event from `refusals`. */
const HAS_EVENT: readonly string[] = [
  JobReason.BootDeadlineExceeded,
  JobReason.BootFailed,
  JobReason.VMLost,
  JobReason.Preempted,
]

function waiting(before: JobStatus, next: JobStatus): EventNote[] {
  const { reason = "", message = "" } = next
  if (next.phase !== "queued" || before.reason === reason || HAS_EVENT.includes(reason)) return []
  return [reason === JobReason.Queued ? normal(reason, message) : warning(reason, message)]
}

function placed(next: JobStatus, number: number | undefined): EventNote[] {
  if (number === undefined) return []
  return [normal(JobReason.Placed, `launch ${number}: ${next.placement?.reason ?? ""}`)]
}

function machine(before: JobStatus, next: JobStatus): EventNote[] {
  const { vm } = next
  if (vm?.id === undefined || vm.id === before.vm?.id || isTerminal(next.phase)) return []
  return [normal(JobReason.Booting, `VM ${vm.id} is created`)]
}

function container(before: JobStatus, next: JobStatus): EventNote[] {
  const notes: EventNote[] = []
  if (next.phase === "running" && before.phase !== "running") notes.push(normal(JobReason.Started, next.message ?? ""))
  const retries = next.retryCount ?? 0
  if (retries > (before.retryCount ?? 0)) {
    const code = next.exitCode === undefined ? "" : ` after exit code ${next.exitCode}`
    notes.push(warning(JobReason.ContainerRestarted, `retry ${retries}${code}`))
  }
  return notes
}

function ended(before: JobStatus, next: JobStatus): EventNote[] {
  const notes: EventNote[] = []
  const { phase, reason = "", message = "" } = next
  if (isTerminal(phase) && !isTerminal(before.phase)) {
    const isGood = phase === "succeeded" || phase === "cancelled"
    notes.push(isGood ? normal(reason, message) : warning(reason, message))
  }
  const actualUsd = next.cost?.actualUsd
  if (actualUsd !== undefined && before.cost?.actualUsd === undefined && next.vm?.id !== undefined) {
    notes.push(normal(VM_TERMINATED, `VM ${next.vm.id} is deleted; the job cost ${usd(actualUsd)}`))
  }
  return notes
}
