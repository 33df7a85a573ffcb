import { timestamp } from "../apis/clock.ts"
import {
  type BootFailure,
  type Finish,
  type FinishReason,
  isOver,
  type LaunchStatus,
  type StoredLaunch,
} from "../apis/launch.ts"

/** What became of a Launch, as its job sees it. Whether its VM is gone by now is another question: `isOver`. */
export type Outcome =
  | { kind: "live" }
  | { kind: "finished"; finish: Finish }
  | { kind: "refused"; refusal: NonNullable<LaunchStatus["refusal"]> }
  | { kind: "lost"; reason: "VMLost" | "Preempted"; message: string; time: string }
  /** It ended with its machine, as planned: the job runs again, and this does not count as a lost VM. */
  | { kind: "poweredOff" }
  /** It was ended because its container did not start in time, or its VM said that none can. */
  | { kind: "bootFailed"; message: string; time: string }
  /** It was ended before there was a VM, as far as is known. */
  | { kind: "unused" }

/** Ends of the agent's work that say nothing of the job's own: its VM went, or failed under it. */
const VM_FINISHES: readonly FinishReason[] = ["Stopped", "Preempted", "AgentFailed"]

/**
 * What became of a Launch of a job that has not ended. What the agent said of the container's end counts before what
 * happened to its VM. The only reasons to end the Launch of such a job are its boot deadline, and a VM that says that it
 * can run no container.
 */
export function outcomeOf(launch: StoredLaunch): Outcome {
  const { status, spec } = launch
  const finish = status?.agent?.finish
  if (finish !== undefined && !VM_FINISHES.includes(finish.reason)) return { kind: "finished", finish }
  if (status?.refusal !== undefined) return { kind: "refused", refusal: status.refusal }
  if (status?.bootFailure !== undefined) return reportedFailure(status.bootFailure)
  if (status?.loss !== undefined) return lossOf(status.loss)
  if (finish?.reason === "Preempted") {
    return lost("Preempted", finish.message ?? "the cloud took the VM back", finish.time)
  }
  const isEnded = isOver(launch) || spec.ended === true
  if (isEnded && status?.vm === undefined) return { kind: "unused" }
  if (spec.ended === true) return bootFailed(launch)
  if (finish !== undefined) return lost("VMLost", finish.message ?? `the agent gave up: ${finish.reason}`, finish.time)
  return isOver(launch) ? deleted(launch) : { kind: "live" }
}

function lossOf({ reason, message, time }: NonNullable<LaunchStatus["loss"]>): Outcome {
  if (reason === "PoweredOff") return { kind: "poweredOff" }
  return lost(reason === "Preempted" ? "Preempted" : "VMLost", message, time)
}

/** Somebody deleted the Launch of a job that still needed it. */
function deleted({ status, metadata }: StoredLaunch): Outcome {
  return lost("VMLost", "its Launch was deleted", status?.vm?.terminationTime ?? metadata.creationTimestamp)
}

function lost(reason: "VMLost" | "Preempted", message: string, time: string): Outcome {
  return { kind: "lost", reason, message, time }
}

function reportedFailure({ reason, message, time }: BootFailure): Outcome {
  return { kind: "bootFailed", message: `its VM can run no container (${reason}): ${message}`, time }
}

function bootFailed(launch: StoredLaunch): Outcome {
  const { terminationTime } = launch.status?.vm ?? {}
  const deadline = bootDeadline(launch) ?? new Date(launch.metadata.creationTimestamp)
  // One that came to light when its Launch had been ended has not had its whole time.
  const isEarlier = terminationTime !== undefined && new Date(terminationTime) < deadline
  const message = `the container had not started in ${launch.spec.bootDeadlineSeconds} s`
  return { kind: "bootFailed", message, time: timestamp(isEarlier ? new Date(terminationTime) : deadline) }
}

/**
 * When the container of a Launch must have started, or the cloud have said whether there is a VM. Undefined: neither is
 * under way yet, as clouds are asked for others first.
 */
export function bootDeadline({ status, spec, metadata }: StoredLaunch): Date | undefined {
  const { vm, unanswered } = status ?? {}
  const since = vm === undefined ? unanswered?.since : (vm.createTime ?? metadata.creationTimestamp)
  return since === undefined ? undefined : new Date(Date.parse(since) + spec.bootDeadlineSeconds * 1000)
}
