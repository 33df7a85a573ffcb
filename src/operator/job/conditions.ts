import {
  type ConditionCause,
  type ConditionUpdate,
  condition,
  conditionOnceTrue,
  findCondition,
  setConditions,
} from "../../core/apis/conditions.ts"
import type { RefusedOffer } from "../../core/apis/job.ts"
import { isTerminal, JobCondition, JobReason, type JobStatus, type StoredJob } from "../../core/apis/job.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { REFUSALS } from "../../core/apis/refusals.ts"
import type { Condition } from "../../core/apis/schema.ts"
import { NEEDS_USER } from "../../core/apis/trouble.ts"
import type { EventNote } from "../../core/kube/events.ts"

/**
 * Returns the conditions of a status. For kstatus (Helm, Flux, Argo CD) a job is Reconciling until the container has
 * started, then Ready, like batch Jobs. A failed or cancelled job is Stalled.
 * `Complete` exists only for success, so that `kubectl wait --for=condition=Complete` waits for success. A cancelled
 * job is `Failed` with the reason Cancelled. Pure.
 */
export function buildConditions(
  job: StoredJob,
  status: JobStatus,
  { launch, fallback }: { launch?: StoredLaunch | undefined; fallback?: string | undefined },
  now: Date,
): Condition[] {
  const before = job.status?.conditions
  const updates = [
    ...progress(status, launch, before),
    ...(fallback === undefined
      ? []
      : [condition(JobCondition.OnDemandFallback, true, { reason: JobReason.Preempted, message: fallback })]),
    ...ends(status),
    ...kstatus(status),
  ]
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
  // The explanations of the choice and of the phase are in the status already, and the latter also in Ready.
  const reasonAlone = { ...cause, message: "" }
  const placed = placement === undefined ? cause : { reason: JobReason.Placed, message: "" }
  const updates: ConditionUpdate[] = [condition(JobCondition.Placed, placement !== undefined, placed)]
  if (launch === undefined && isTerminal(status.phase)) return [...updates, ...keepProgress(before)]
  const agent = launch?.status?.agent
  const registered = agent !== undefined
  const vm = registered
    ? { reason: "Registered", message: `agent ${agent.version ?? ""} (${agent.runtime ?? ""})` }
    : reasonAlone
  updates.push(condition(JobCondition.VMReady, registered, vm))
  const started = agent?.startTime !== undefined
  const start = started ? { reason: JobReason.Started, message: "the container has started" } : reasonAlone
  updates.push(condition(JobCondition.Started, started, start))
  const message = "the command runs directly on the host, without its image: no Docker engine was found"
  return [
    ...updates,
    conditionOnceTrue(JobCondition.Unisolated, agent?.runtime === "process", { reason: "ProcessRuntime", message }),
  ]
}

/** Keeps the conditions of an ended job, also after its Launch is deleted. */
function keepProgress(before: readonly Condition[] | undefined): ConditionUpdate[] {
  const types: string[] = [JobCondition.VMReady, JobCondition.Started, JobCondition.Unisolated]
  return (before ?? []).filter(({ type }) => types.includes(type))
}

function ends(status: JobStatus): ConditionUpdate[] {
  const cause = causeOf(status)
  return [
    conditionOnceTrue(JobCondition.Complete, status.phase === "succeeded", cause),
    conditionOnceTrue(JobCondition.Failed, status.phase === "failed" || status.phase === "cancelled", cause),
  ]
}

function kstatus(status: JobStatus): ConditionUpdate[] {
  const { phase } = status
  const cause = causeOf(status)
  const isReady = phase === "running" || phase === "succeeded"
  const isStalled = phase === "failed" || phase === "cancelled" || NEEDS_USER.includes(cause.reason)
  const isReconciling = !isReady && !isStalled
  const causeIf = (isTrue: boolean) => (isTrue ? cause : { ...cause, message: "" })
  return [
    condition(JobCondition.Ready, isReady, cause),
    condition(JobCondition.Reconciling, isReconciling, causeIf(isReconciling)),
    conditionOnceTrue(JobCondition.Stalled, isStalled, causeIf(isStalled)),
  ]
}

/**
 * Returns the events between the last written status and the next one. Each event is emitted once, because each status
 * is written once. A VM and the end of the job have an event each, and every failure has one. The conditions
 * and the cost say the rest. Pure.
 */
export function buildEvents(job: StoredJob, next: JobStatus): EventNote[] {
  const before = job.status ?? {}
  return [
    ...refusals(before, next),
    ...newVms(before, next),
    ...fellBack(before, next),
    ...placedEvents(before, next),
    ...waiting(before, next),
    ...restarts(before, next),
    ...endEvents(before, next),
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

/** Reasons that already have an event from `refusals` or `newVms`. */
const HAS_EVENT: readonly string[] = [
  JobReason.BootDeadlineExceeded,
  JobReason.BootFailed,
  JobReason.VMLost,
  JobReason.Preempted,
  JobReason.Retrying,
]

function waiting(before: JobStatus, next: JobStatus): EventNote[] {
  const { reason = "", message = "" } = next
  const isExpected = reason === JobReason.Queued || HAS_EVENT.includes(reason)
  if (next.phase !== "queued" || before.reason === reason || isExpected) return []
  return [reason === JobReason.WaitsForJob ? normal(reason, message) : warning(reason, message)]
}

function newVms(before: JobStatus, { launches, retries = [] }: JobStatus): EventNote[] {
  const latest = retries.at(-1)
  if (latest === undefined || (launches?.retried ?? 0) <= (before.launches?.retried ?? 0)) return []
  const { launch, reason, exitCode, memoryGib } = latest
  const code = exitCode === undefined ? "" : `, exit code ${exitCode}`
  const memory = memoryGib === undefined ? "" : `, whose container has at least ${Number(memoryGib.toPrecision(4))} GiB`
  return [warning(JobReason.Retrying, `launch ${launch} failed (${reason}${code}): the job gets another VM${memory}`)]
}

function fellBack(before: JobStatus, next: JobStatus): EventNote[] {
  const type = JobCondition.OnDemandFallback
  const fallback = findCondition(next.conditions, type)
  if (fallback === undefined || findCondition(before.conditions, type) !== undefined) return []
  return [warning(type, fallback.message)]
}

function placedEvents(before: JobStatus, { vm, placement, launches }: JobStatus): EventNote[] {
  if (vm?.id === undefined || vm.id === before.vm?.id || isTerminal(before.phase)) return []
  return [normal(JobReason.Placed, `VM ${vm.id}, launch ${launches?.count}: ${placement?.reason ?? ""}`)]
}

function restarts(before: JobStatus, { retryCount = 0, exitCode }: JobStatus): EventNote[] {
  if (retryCount <= (before.retryCount ?? 0)) return []
  const code = exitCode === undefined ? "" : ` after exit code ${exitCode}`
  return [warning(JobReason.ContainerRestarted, `retry ${retryCount}${code}`)]
}

function endEvents(before: JobStatus, { phase, reason = "", message = "" }: JobStatus): EventNote[] {
  if (!isTerminal(phase) || isTerminal(before.phase)) return []
  const isGood = phase === "succeeded" || phase === "cancelled"
  return [isGood ? normal(reason, message) : warning(reason, message)]
}

/** Returns the key by which rejections are compared: equal for one rejection, different for two. */
export function refusalKey({ cloud, region, instanceType, provisioning, message, time }: RefusedOffer): string {
  return JSON.stringify([cloud, region, instanceType, provisioning, message, time])
}
