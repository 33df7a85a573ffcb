import { findCondition } from "../apis/conditions.ts"
import { defined } from "../apis/defined.ts"
import {
  type Host,
  MachineCondition,
  type MachineLaunch,
  MachineReason,
  OWN_CLOUD,
  OWN_REGION,
  type StoredMachine,
} from "../apis/machine.ts"
import type { Offer } from "../apis/offer.ts"

/**
 * A machine of its own runs the jobs of Launches, one at a time. The operator gives it to a Launch by one write of
 * `status.launch`, in the version that was read. The host says when nothing of that Launch is left on it (`freed`). A host
 * that is silent holds a lease: it ends its job by itself before the lease ends, so Berth knows that nothing runs.
 */

/** Age of a host's last heartbeat that may not be written yet, with some margin; seconds. */
export const LEASE_MARGIN_SECONDS = 60

/** Time before the end of its lease at which a host begins to end its job, seconds. It covers the grace time. */
export const LEASE_END_SECONDS = 30

/** Time between two heartbeats of a host that runs a job, seconds. */
export const BEAT_SECONDS = 30

/** Age of a host's last written heartbeat from which the next one is written, seconds. */
export const WRITE_BEAT_SECONDS = 45

/** Time in which a host has to register for a Launch that got its machine, seconds. */
export const MACHINE_START_SECONDS = 120

/** Age of a host's last written heartbeat from which it gets no job, seconds. */
export const SILENT_SECONDS = 150

/** Returns the seconds without a heartbeat after which nothing of a job runs on a host. */
export function longestSilence({ leaseSeconds }: Host): number {
  return leaseSeconds + LEASE_MARGIN_SECONDS
}

/** Returns the end of a lease by the clock of the gateway that wrote the heartbeat, for people. No decision depends on it. */
export function leaseEnd(host: Host): Date {
  return new Date(Date.parse(host.lastHeartbeatTime) + longestSilence(host) * 1000)
}

/** State of a Launch on a machine. Times are RFC 3339. */
export type RunState =
  | { is: "assigned" | "running" | "ending"; launch: MachineLaunch }
  /** Nothing of it runs: the host has said so, or its lease has ended. */
  | { is: "over"; launch: MachineLaunch; endTime: string }
  | { is: "none" }

/**
 * Returns what is known of the Launch that has a machine, or had it last. Pure, and independent of any clock. The gateway
 * writes `running` before it gives the Launch to the host, in the version that was read. So a Launch whose end was asked for
 * before that never runs.
 */
export function runOn({ status }: Pick<StoredMachine, "status">): RunState {
  const { launch, host } = status ?? {}
  if (launch === undefined || host === undefined) return { is: "none" }
  const { name, createTime, endTime, lostTime } = launch
  const over = (at: string): RunState => ({ is: "over", launch, endTime: at })
  if (host.freed === name) return over(host.freedTime ?? createTime)
  if (lostTime !== undefined) return over(lostTime)
  const isGiven = host.running === name
  if (endTime !== undefined) return isGiven ? { is: "ending", launch } : over(endTime)
  return { is: isGiven ? "running" : "assigned", launch }
}

/** Returns the Launch that has a machine now; undefined if none has. Pure. */
export function holderOf(machine: Pick<StoredMachine, "status">): MachineLaunch | undefined {
  const run = runOn(machine)
  return run.is === "none" || run.is === "over" ? undefined : run.launch
}

/** Reason why a machine gets no job now. */
export type Unavailable =
  | "deleted"
  | "overLimit"
  | "noProject"
  | "notJoined"
  | "silent"
  | "unfit"
  | "unschedulable"
  | "cleaning"
  | "busy"

/** Facts about a machine that only its controller finds out. It writes them into the condition Ready. */
export interface Finding {
  isOverLimit: boolean
  hasProject: boolean
  /** True if nothing was heard of the host for SILENT_SECONDS. */
  isSilent: boolean
}

/**
 * Returns why a machine gets no job now; undefined if it can have one. Placement, the condition Ready and the state in REST
 * all follow from it. Pure.
 * @param found default: what the condition says. The controller measures silence by a clock of its own
 */
export function whyUnavailable(machine: StoredMachine, found: Finding = findingOf(machine)): Unavailable | undefined {
  const { metadata, spec, status } = machine
  const host = status?.host
  if (metadata.deletionTimestamp !== undefined) return "deleted"
  if (found.isOverLimit) return "overLimit"
  if (!found.hasProject) return "noProject"
  if (host === undefined) return "notJoined"
  if (found.isSilent) return "silent"
  if (host.unfit !== undefined) return "unfit"
  if (spec.unschedulable === true) return "unschedulable"
  // A host that was lost says what it has left before it gets a job again.
  if (status?.launch?.lostTime !== undefined && host.freed !== status.launch.name) return "cleaning"
  return holderOf(machine) === undefined ? undefined : "busy"
}

function findingOf({ status }: StoredMachine): Finding {
  const { reason = "" } = findCondition(status?.conditions, MachineCondition.Ready) ?? {}
  return {
    isOverLimit: reason === MachineReason.ProjectLimit,
    hasProject: reason !== MachineReason.NoProject,
    isSilent: SILENT.includes(reason),
  }
}

/** Reasons of a machine whose host is not heard of. */
export const SILENT: readonly string[] = [MachineReason.Silent, MachineReason.LeaseExpired]

/** Returns true if jobs of a namespace may run on a machine. */
export function servesNamespace({ metadata, spec }: StoredMachine, namespace: string): boolean {
  return metadata.namespace === namespace || spec.shared === true
}

/**
 * Returns the machine's name as the machine type of an offer to a project: its name, and before it the namespace of another
 * project that shares it.
 */
export function offeredName({ metadata }: StoredMachine, namespace: string): string {
  return metadata.namespace === namespace ? metadata.name : `${metadata.namespace}/${metadata.name}`
}

/** Returns the namespace and the name of the machine that a project knows by this name. */
export function machineOf(offered: string, namespace: string): { namespace: string; name: string } {
  const [owner, name] = offered.split("/")
  return name === undefined ? { namespace, name: owner ?? "" } : { namespace: owner ?? "", name }
}

/** Returns the offer of a machine to a project's jobs; undefined before a host has joined. */
export function offerOf(machine: StoredMachine, namespace: string): Offer | undefined {
  const { spec, status } = machine
  const facts = status?.host?.facts
  if (facts === undefined) return undefined
  const { cpu, memoryGib, architecture, gpu } = facts
  return {
    cloud: OWN_CLOUD,
    region: spec.region ?? OWN_REGION,
    instanceType: offeredName(machine, namespace),
    architecture,
    provisioning: "onDemand",
    cpu,
    memoryGib,
    ...defined({ gpu }),
    hourlyPriceUsd: spec.hourlyPriceUsd ?? 0,
    minimumBilledSeconds: 0,
  }
}
