import { type ConditionUpdate, condition, conditionOnceTrue, setConditions } from "../../core/apis/conditions.ts"
import {
  bootFailureOf,
  LaunchCondition,
  type LaunchPhase,
  type LaunchStatus,
  type StoredLaunch,
} from "../../core/apis/launch.ts"
import type { Condition } from "../../core/apis/schema.ts"

/**
 * Returns the conditions of a Launch that is about to get this status. For kstatus (Helm, Flux, Argo CD) it is
 * Reconciling until its agent has registered, then Ready. While its VM is terminated it is Reconciling again. Afterwards
 * it is Ready, or Stalled if the cloud refused the VM, or the VM was lost or could not run containers. Pure.
 */
export function buildConditions(launch: StoredLaunch, status: LaunchStatus, now: Date): Condition[] {
  const before = launch.status?.conditions
  return setConditions(before, updatesOf({ ...launch.status, ...status }), launch.metadata.generation, now)
}

function updatesOf(status: LaunchStatus): ConditionUpdate[] {
  const { phase = "requested", message = "" } = status
  const failure = phase === "refused" || phase === "terminated" ? failureOf(status) : undefined
  const cause = { reason: failure ?? REASONS[phase], message }
  const isReady = READY.includes(phase) && failure === undefined
  const isStalled = failure !== undefined
  const isReconciling = !isReady && !isStalled
  // The message is in the status already, and in Ready.
  const causeIf = (isTrue: boolean) => (isTrue ? cause : { ...cause, message: "" })
  return [
    condition(LaunchCondition.Ready, isReady, cause),
    condition(LaunchCondition.Reconciling, isReconciling, causeIf(isReconciling)),
    conditionOnceTrue(LaunchCondition.Stalled, isStalled, causeIf(isStalled)),
  ]
}

/** Returns the reason why an ended VM was of no use; undefined if it served its job. */
function failureOf(status: LaunchStatus): string | undefined {
  return status.refusal?.class ?? status.loss?.reason ?? bootFailureOf(status)?.reason
}

const READY: readonly LaunchPhase[] = ["registered", "running", "finished", "idle", "terminated", "handedOver"]

const REASONS: Record<LaunchPhase, string> = {
  requested: "Requested",
  created: "Booting",
  registered: "Registered",
  running: "Started",
  finished: "Finished",
  idle: "Idle",
  terminating: "Terminating",
  terminated: "Terminated",
  handedOver: "HandedOver",
  refused: "Refused",
}
