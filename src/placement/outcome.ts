import { timestamp } from "../apis/clock.ts"
import {
  type BootFailure,
  type Finish,
  type FinishReason,
  isOver,
  type LaunchStatus,
  type StoredLaunch,
} from "../apis/launch.ts"

/** Outcome of a Launch for its job. It does not say if the VM still exists: see `isOver`. */
export type Outcome =
  | { kind: "live" }
  | { kind: "finished"; finish: Finish }
  | { kind: "refused"; refusal: NonNullable<LaunchStatus["refusal"]> }
  | { kind: "lost"; reason: "VMLost" | "Preempted"; message: string; time: string }
  /** The host of the VM was powered off as planned. The job runs again, and this is not a lost VM. */
  | { kind: "poweredOff" }
  /** The Launch was ended because its container did not start in time, or its VM cannot run containers. */
  | { kind: "bootFailed"; message: string; time: string }
  /** The Launch was ended before it had a VM, as far as known. */
  | { kind: "unused" }

/** Ends of the agent that are not the job's own result: the VM was lost or failed. */
const VM_FINISHES: readonly FinishReason[] = ["Stopped", "Preempted", "AgentFailed"]

/**
 * Returns the outcome of a Launch whose job has not ended. The agent's report about the container takes precedence over
 * the VM's end.
 * The Launch of such a job ends for only two reasons: its boot deadline, or a VM that cannot run containers.
 */
export function outcomeOf(launch: StoredLaunch): Outcome {
  const { status, spec } = launch
  const finish = status?.agent?.finish
  if (finish !== undefined && !VM_FINISHES.includes(finish.reason)) return { kind: "finished", finish }
  if (status?.refusal !== undefined) return { kind: "refused", refusal: status.refusal }
  if (status?.bootFailure !== undefined) return reportedFailure(status.bootFailure)
  if (status?.loss !== undefined) return lossOf(status.loss)
  if (finish?.reason === "Preempted") {
    return lost("Preempted", finish.message ?? "the cloud preempted the VM", finish.time)
  }
  const isEnded = isOver(launch) || spec.ended === true
  if (isEnded && status?.vm === undefined) return { kind: "unused" }
  if (spec.ended === true) return bootFailed(launch)
  if (finish !== undefined) return lost("VMLost", finish.message ?? `the agent failed: ${finish.reason}`, finish.time)
  return isOver(launch) ? deleted(launch) : { kind: "live" }
}

function lossOf({ reason, message, time }: NonNullable<LaunchStatus["loss"]>): Outcome {
  if (reason === "PoweredOff") return { kind: "poweredOff" }
  return lost(reason === "Preempted" ? "Preempted" : "VMLost", message, time)
}

/** Returns the outcome of a Launch that a user deleted while its job needed it. */
function deleted({ status, metadata }: StoredLaunch): Outcome {
  return lost("VMLost", "its Launch was deleted", status?.vm?.terminationTime ?? metadata.creationTimestamp)
}

function lost(reason: "VMLost" | "Preempted", message: string, time: string): Outcome {
  return { kind: "lost", reason, message, time }
}

function reportedFailure({ reason, message, time }: BootFailure): Outcome {
  return { kind: "bootFailed", message: `its VM cannot run containers (${reason}): ${message}`, time }
}

function bootFailed(launch: StoredLaunch): Outcome {
  const { terminationTime } = launch.status?.vm ?? {}
  const deadline = bootDeadline(launch) ?? new Date(launch.metadata.creationTimestamp)
  // A VM that was discovered after its Launch ended did not have its full boot time.
  const isEarlier = terminationTime !== undefined && new Date(terminationTime) < deadline
  const message = `the container did not start within ${launch.spec.bootDeadlineSeconds} s`
  return { kind: "bootFailed", message, time: timestamp(isEarlier ? new Date(terminationTime) : deadline) }
}

/**
 * Returns the time by which the container must have started, or the cloud must have answered. Undefined if neither has
 * begun: the Launch is still queued.
 */
export function bootDeadline({ status, spec, metadata }: StoredLaunch): Date | undefined {
  const { vm, unanswered } = status ?? {}
  const since = vm === undefined ? unanswered?.since : (vm.createTime ?? metadata.creationTimestamp)
  return since === undefined ? undefined : new Date(Date.parse(since) + spec.bootDeadlineSeconds * 1000)
}
