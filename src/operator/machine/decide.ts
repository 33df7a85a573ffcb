import { isDeepStrictEqual } from "node:util"
import { secondsBetween } from "../../core/apis/clock.ts"
import { type ConditionCause, changedCondition, condition, setConditions } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import {
  type Host,
  MACHINE_FINALIZER,
  MachineCondition,
  MachineReason,
  type MachineStatus,
  type StoredMachine,
} from "../../core/apis/machine.ts"
import type { EventNote } from "../../core/kube/events.ts"
import { leaseEnd, type RunState, runOn, SILENT_SECONDS } from "../../core/machines/machine.ts"
import type { LimitReached } from "../../core/quota/project-limits.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"

/** Facts that a decision on a Machine is based on, besides the object. */
export interface MachineObservation {
  /** False: its namespace belongs to no Project. */
  hasProject: boolean
  /** Limit of machines that keeps this one from working. */
  overLimit?: LimitReached
}

/** `end` asks for the end of the run. */
export type MachineAction = { do: "addFinalizer" } | { do: "end" } | { do: "dropFinalizer" }

/** Decides what to do with a machine, besides the Launches that it has. Pure. */
export function decide(
  machine: StoredMachine,
  observed: MachineObservation,
  now: Date,
): Decision<MachineStatus, MachineAction> {
  const { metadata } = machine
  const run = runOn(machine, now)
  const hasFinalizer = metadata.finalizers?.includes(MACHINE_FINALIZER) === true
  if (metadata.deletionTimestamp !== undefined)
    return hasFinalizer ? removal(run, machine.status?.host, now) : { actions: [] }
  const status = nextStatus(machine, run, observed, now)
  const actions: MachineAction[] = hasFinalizer ? [] : [{ do: "addFinalizer" }]
  const requeueAfter = changesIn(machine.status?.host, now)
  const later = { actions, ...defined({ requeueAfter }) }
  if (isDeepStrictEqual(status, machine.status)) return later
  return { status, ...later, events: buildEvents(machine.status, status) }
}

/** A job may still run on the host of a deleted machine: the finalizer stays until nothing of it does. */
function removal(run: RunState, host: Host | undefined, now: Date): Decision<MachineStatus, MachineAction> {
  if (run.is === "none" || run.is === "over") return { actions: [{ do: "dropFinalizer" }] }
  const requeueAfter = host === undefined ? 1 : Math.max(1, secondsBetween(now, leaseEnd(host)))
  return { actions: run.is === "ending" ? [] : [{ do: "end" }], requeueAfter }
}

/** Returns the time until time alone changes the conditions, seconds; undefined: it doesn't. */
function changesIn(host: Host | undefined, now: Date): number | undefined {
  if (host === undefined) return undefined
  const silent = SILENT_SECONDS - secondsBetween(host.lastHeartbeatTime, now)
  const lost = secondsBetween(now, leaseEnd(host))
  const left = [silent, lost].filter((seconds) => seconds >= 0)
  return left.length === 0 ? undefined : Math.min(...left) + 1
}

function nextStatus(machine: StoredMachine, run: RunState, observed: MachineObservation, now: Date): MachineStatus {
  const { generation } = machine.metadata
  const ready = readyOf(machine, observed, now)
  const isReady = READY.includes(ready.reason)
  const isStalled = STALLED.includes(ready.reason)
  const updates = [
    condition(MachineCondition.Ready, isReady, ready),
    condition(MachineCondition.Reconciling, !isReady && !isStalled, ready),
    condition(MachineCondition.Stalled, isStalled, ready),
    condition(MachineCondition.Busy, run.is !== "none" && run.is !== "over", busyOf(run)),
  ]
  const conditions = setConditions(machine.status?.conditions, updates, generation, now)
  return { ...machine.status, observedGeneration: generation, conditions }
}

const READY: readonly string[] = [MachineReason.Joined, MachineReason.Unschedulable]

/** Reasons that only a person ends. */
const STALLED: readonly string[] = [MachineReason.ProjectLimit, MachineReason.Unfit]

function readyOf(machine: StoredMachine, { hasProject, overLimit }: MachineObservation, now: Date): ConditionCause {
  const { spec, status } = machine
  const host = status?.host
  if (overLimit !== undefined)
    return { reason: MachineReason.ProjectLimit, message: `the machine gets no job: ${overLimit.message}` }
  if (!hasProject) return { reason: MachineReason.NoProject, message: "the namespace belongs to no Project yet" }
  if (host === undefined) {
    const message = "no host has joined yet; run the command of `berth machine join` on the host"
    return { reason: MachineReason.NotJoined, message }
  }
  const { lastHeartbeatTime } = host
  if (leaseEnd(host) <= now) {
    const message = `the host has sent nothing since ${lastHeartbeatTime}, and its lease is over: nothing of a job runs on it. Start the host, or remove the machine`
    return { reason: MachineReason.LeaseExpired, message }
  }
  if (secondsBetween(lastHeartbeatTime, now) > SILENT_SECONDS) {
    const message = `the host has sent nothing since ${lastHeartbeatTime}; it gets no job, and a job on it is given up at ${leaseEnd(host).toISOString()}. Check its network and its agent`
    return { reason: MachineReason.Silent, message }
  }
  if (host.unfit !== undefined)
    return { reason: MachineReason.Unfit, message: `the host can run no job: ${host.unfit}` }
  if (spec.unschedulable === true) {
    const message = "the machine is drained: it gets no job until `berth machine drain --undo`"
    return { reason: MachineReason.Unschedulable, message }
  }
  return { reason: MachineReason.Joined, message: `the host takes jobs at ${spec.hourlyPriceUsd ?? 0} USD/h` }
}

function busyOf(run: RunState): ConditionCause {
  if (run.is === "none" || run.is === "over") return { reason: MachineReason.Free, message: "no job has the machine" }
  return { reason: MachineReason.HasJob, message: `launch ${run.launch.name} has the machine` }
}

function buildEvents(before: MachineStatus | undefined, after: MachineStatus): EventNote[] {
  const ready = changedCondition(before?.conditions, after.conditions, MachineCondition.Ready)
  if (ready === undefined) return []
  const isNormal = READY.includes(ready.reason) || ready.reason === MachineReason.NotJoined
  return [{ type: isNormal ? "Normal" : "Warning", reason: ready.reason, message: ready.message }]
}
