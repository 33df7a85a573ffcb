import { timestamp } from "../../core/apis/clock.ts"
import {
  type BootFailure,
  bootFailureOf,
  type Finish,
  type FinishReason,
  isOver,
  type LaunchStatus,
  type StoredLaunch,
} from "../../core/apis/launch.ts"
import { OWN_CLOUD } from "../../core/apis/machine.ts"

/** Outcome of a Launch for its job. It does not say if the VM still exists: see `isOver`. */
export type Outcome =
  | { kind: "live" }
  | { kind: "finished"; finish: Finish }
  | { kind: "refused"; refusal: NonNullable<LaunchStatus["refusal"]> }
  | { kind: "lost"; reason: "VMLost" | "Preempted"; message: string; time: string }
  /** The host of the VM was powered off as planned. The job runs again, and this is not a lost VM. */
  | { kind: "poweredOff" }
  /** The VM cannot run containers (BootFailed), or its Launch was ended because no container started in time. */
  | { kind: "bootFailed"; reason: "BootFailed" | "BootDeadlineExceeded"; message: string; time: string }
  /** The Launch was ended before it had a VM, as far as known. */
  | { kind: "unused" }

/** Ends of the agent that are not the job's own result: the VM was lost or failed. */
const VM_FINISHES: readonly FinishReason[] = ["Stopped", "Preempted", "AgentFailed", "MachineFailed"]

/**
 * Returns the outcome of a Launch whose job has not ended. The agent's report about the container takes precedence over
 * the VM's end.
 * The Launch of such a job ends for only two reasons: its boot deadline, or a VM that cannot run containers.
 */
export function launchOutcome(launch: StoredLaunch): Outcome {
  // The idle VM of another Launch has ended, or never came: that says nothing about the machine or the job.
  return hasLostTakeover(launch) ? { kind: "unused" } : outcomeOf(launch)
}

function outcomeOf(launch: StoredLaunch): Outcome {
  const { status, spec } = launch
  const finish = status?.agent?.finish
  if (finish !== undefined && !VM_FINISHES.includes(finish.reason))
    return { kind: "finished", finish: toJobFinish(finish) }
  if (status?.refusal !== undefined) return { kind: "refused", refusal: status.refusal }
  const failure = machineFailureOf(status)
  if (failure !== undefined) return reportedFailure(failure)
  if (status?.loss !== undefined) return lossOf(status.loss)
  if (finish?.reason === "Preempted" && preemptionWitness(launch) !== undefined) {
    return lostOutcome("Preempted", finish.message ?? "the cloud preempted the VM", finish.time)
  }
  const isEnded = isOver(launch) || spec.ended === true
  if (isEnded && status?.vm === undefined) return { kind: "unused" }
  if (spec.ended === true) return bootFailed(launch)
  if (finish !== undefined)
    return lostOutcome("VMLost", finish.message ?? `the agent failed: ${finish.reason}`, finish.time)
  return isOver(launch) ? deletedOutcome(launch) : { kind: "live" }
}

/** Returns true if a Launch was to take over a VM, whose agent never registered for it, and is ending or over. */
export function hasLostTakeover(launch: StoredLaunch): boolean {
  const { spec, status } = launch
  const isEnding = isOver(launch) || spec.ended === true || status?.loss !== undefined
  return spec.takesOver !== undefined && status?.agent === undefined && isEnding
}

/**
 * Returns who says that the cloud took back a VM: the cloud, or only its agent, whose keys its tenant may have. Undefined:
 * it was not. This is the only definition of a preemption. Clouds take back no VMs but spot VMs, and a limit of lost VMs
 * must hold for the others.
 * @param isConfirmed true if the cloud lists the VM as preempted
 */
export function preemptionWitness(
  { spec, status }: Pick<StoredLaunch, "spec" | "status">,
  isConfirmed: boolean = status?.vm?.preempted === true,
): "cloud" | "agent" | undefined {
  if (isConfirmed) return "cloud"
  const { finish, preemptionNotice } = status?.agent ?? {}
  const isReported = finish?.reason === "Preempted" || preemptionNotice !== undefined
  return isReported && spec.offer.provisioning === "spot" ? "agent" : undefined
}

/** Returns the finish in the words of jobs. A registry without an answer is a failed pull that may pass. */
function toJobFinish(finish: Finish): Finish {
  return finish.reason === "RegistryUnavailable" ? { ...finish, reason: "ImagePullFailed", transient: true } : finish
}

/** Returns the report that the VM cannot run the container: of its user data at boot, or of its agent. */
function machineFailureOf(status: LaunchStatus | undefined): MachineFailure | undefined {
  const finish = status?.agent?.finish
  const failure = bootFailureOf(status)
  if (failure !== undefined || finish?.reason !== "MachineFailed") return failure
  return { reason: finish.reason, message: finish.message ?? "no details", time: finish.time }
}

interface MachineFailure extends Omit<BootFailure, "reason"> {
  reason: string
}

function lossOf({ reason, message, time }: NonNullable<LaunchStatus["loss"]>): Outcome {
  if (reason === "PoweredOff") return { kind: "poweredOff" }
  return lostOutcome(reason === "Preempted" ? "Preempted" : "VMLost", message, time)
}

/** Returns the outcome of a Launch that a user deleted while its job needed it. */
function deletedOutcome({ status, metadata }: StoredLaunch): Outcome {
  return lostOutcome("VMLost", "its Launch was deleted", status?.vm?.terminationTime ?? metadata.creationTimestamp)
}

function lostOutcome(reason: "VMLost" | "Preempted", message: string, time: string): Outcome {
  return { kind: "lost", reason, message, time }
}

function reportedFailure({ reason, message, time }: MachineFailure): Outcome {
  return {
    kind: "bootFailed",
    reason: "BootFailed",
    message: `its VM cannot run containers (${reason}): ${message}`,
    time,
  }
}

function bootFailed(launch: StoredLaunch): Outcome {
  const { terminationTime } = launch.status?.vm ?? {}
  const deadline = deadlineOf(bootStage(launch)) ?? new Date(launch.metadata.creationTimestamp)
  // A VM that was discovered after its Launch ended did not have its full boot time.
  const isEarlier = terminationTime !== undefined && new Date(terminationTime) < deadline
  const time = timestamp(isEarlier ? new Date(terminationTime) : deadline)
  return { kind: "bootFailed", reason: "BootDeadlineExceeded", message: bootOverrun(launch), time }
}

/** Returns which deadline a VM missed that did not start its container, and how far it came. */
export function bootOverrun(launch: StoredLaunch): string {
  const { spec, status } = launch
  const missed =
    status?.agent === undefined
      ? `its agent did not register within ${spec.bootDeadlineSeconds} s`
      : `the container did not start within ${spec.startDeadlineSeconds} s after the agent registered`
  return `${missed}: ${bootProgress(launch)}`
}

/**
 * Returns how far a VM came that did not start its container in time. A VM without a way to the gateway can't report the
 * cause, so the message names what to check.
 */
export function bootProgress({ spec, status }: StoredLaunch): string {
  if (status?.agent !== undefined) return "it was still preparing the container, for example pulling its image"
  if (spec.offer.cloud === OWN_CLOUD)
    return `the host of machine ${spec.offer.instanceType} did not begin it. Check that the host runs and reaches ${spec.gatewayUrl}`
  if (spec.network?.publicAddress === false) {
    const advice = "give the subnet a NAT gateway or another way out, or set `publicAddress: true` in the connection"
    return `its VM has no public address, because the connection says so, and never reached ${spec.gatewayUrl}: ${advice}`
  }
  const checks = "the subnet's route to the internet, DNS, the firewall for outbound HTTPS, the gateway's certificate"
  return `its VM never reached ${spec.gatewayUrl}. Check ${checks}`
}

/** Part of a boot that has a deadline of its own. */
export interface BootStage {
  /** RFC 3339. */
  since: string
  /** Time that it may take, seconds. */
  seconds: number
}

/**
 * Returns the present part of a boot: until the agent registers, or then until the container starts. Undefined if
 * neither has begun: the Launch is still queued.
 */
export function bootStage(launch: StoredLaunch): BootStage | undefined {
  const { spec, status } = launch
  const registered = status?.agent?.registrationTime
  if (registered !== undefined) return { since: registered, seconds: spec.startDeadlineSeconds }
  const since = bootSince(launch)
  return since === undefined ? undefined : { since, seconds: spec.bootDeadlineSeconds }
}

/**
 * Returns the time by which the agent must have registered, or the cloud must have answered. Undefined if neither has
 * begun.
 */
export function bootDeadline(launch: StoredLaunch): Date | undefined {
  const since = bootSince(launch)
  return deadlineOf(since === undefined ? undefined : { since, seconds: launch.spec.bootDeadlineSeconds })
}

function deadlineOf(stage: BootStage | undefined): Date | undefined {
  return stage && new Date(Date.parse(stage.since) + stage.seconds * 1000)
}

/** Returns the time from which the boot deadline counts; undefined if it does not count yet. */
export function bootSince({ status, metadata }: StoredLaunch): string | undefined {
  const { vm, unanswered } = status ?? {}
  return vm === undefined ? unanswered?.since : (vm.createTime ?? metadata.creationTimestamp)
}
