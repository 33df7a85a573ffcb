import { isDeepStrictEqual } from "node:util"
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
import {
  type Finding,
  holderOf,
  longestSilence,
  type RunState,
  runOn,
  SILENT_SECONDS,
  whyUnavailable,
} from "../../core/machines/machine.ts"
import type { LimitReached } from "../../core/quota/project-limits.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"

/** Facts that a decision on a Machine is based on, besides the object. */
export interface MachineObservation {
  /** False: its namespace belongs to no Project. */
  hasProject: boolean
  /** True if no Launch that had the machine needs it any more. */
  areLaunchesOver: boolean
  /** Seconds for which this process has seen no heartbeat of the host. Absent: no host has joined. */
  silentSeconds?: number
  /** Limit of machines that keeps this one from working. */
  overLimit?: LimitReached
}

/** `end` asks for the end of the run, and `lose` says that the host's lease has ended. */
export type MachineAction = { do: "addFinalizer" } | { do: "end" } | { do: "lose" } | { do: "dropFinalizer" }

/** Decides what to do with a machine, besides the Launches that it has. Pure. */
export function decide(
  machine: StoredMachine,
  observed: MachineObservation,
  now: Date,
): Decision<MachineStatus, MachineAction> {
  const { metadata } = machine
  const run = runOn(machine)
  const host = machine.status?.host
  const hasFinalizer = metadata.finalizers?.includes(MACHINE_FINALIZER) === true
  // A heartbeat in the meantime changes the version, and this write fails.
  const isLost = holderOf(machine) !== undefined && isLeaseOver(host, observed)
  const losing: MachineAction[] = isLost ? [{ do: "lose" }] : []
  if (metadata.deletionTimestamp !== undefined) {
    if (!hasFinalizer || isLost) return { actions: losing }
    const next = removal(run, host, observed)
    return next.actions.some(({ do: it }) => it === "dropFinalizer") ? next : withStatus(next, machine, observed, now)
  }
  const actions: MachineAction[] = [...losing, ...(hasFinalizer ? [] : [{ do: "addFinalizer" } as const])]
  const requeueAfter = changesIn(host, observed)
  return withStatus({ actions, ...defined({ requeueAfter }) }, machine, observed, now)
}

/** Adds the machine's status to a decision, if it has changed. */
function withStatus(
  decision: Decision<MachineStatus, MachineAction>,
  machine: StoredMachine,
  observed: MachineObservation,
  now: Date,
): Decision<MachineStatus, MachineAction> {
  const status = nextStatus(machine, observed, now)
  if (isDeepStrictEqual(status, machine.status)) return decision
  return { status, ...decision, events: buildEvents(machine.status, status) }
}

/** Delay before the next check if a Launch has ended, seconds. */
const AGAIN_SECONDS = 2

/**
 * A job may still run on the host of a deleted machine, so the finalizer stays until nothing of it does. It also stays until
 * each Launch has seen its end: a machine that is not there any more says less than one whose run has ended.
 */
function removal(
  run: RunState,
  host: Host | undefined,
  observed: MachineObservation,
): Decision<MachineStatus, MachineAction> {
  if (run.is === "none" || (run.is === "over" && observed.areLaunchesOver))
    return { actions: [{ do: "dropFinalizer" }] }
  if (run.is === "over") return { actions: [], requeueAfter: AGAIN_SECONDS }
  return {
    actions: run.is === "ending" ? [] : [{ do: "end" }],
    ...defined({ requeueAfter: changesIn(host, observed) }),
  }
}

function isLeaseOver(host: Host | undefined, { silentSeconds = 0 }: MachineObservation): boolean {
  return host !== undefined && silentSeconds >= longestSilence(host)
}

/** Returns the time until time alone changes what is known of a host, seconds; undefined: it doesn't. */
function changesIn(host: Host | undefined, { silentSeconds = 0 }: MachineObservation): number | undefined {
  if (host === undefined) return undefined
  const left = [SILENT_SECONDS, longestSilence(host)].map((limit) => limit - silentSeconds).filter((each) => each > 0)
  return left.length === 0 ? undefined : Math.min(...left)
}

function nextStatus(machine: StoredMachine, observed: MachineObservation, now: Date): MachineStatus {
  const { generation } = machine.metadata
  const ready = readyOf(machine, observed)
  const isReady = READY.includes(ready.reason)
  const isStalled = STALLED.includes(ready.reason)
  const updates = [
    condition(MachineCondition.Ready, isReady, ready),
    condition(MachineCondition.Reconciling, !isReady && !isStalled, ready),
    condition(MachineCondition.Stalled, isStalled, ready),
  ]
  const conditions = setConditions(machine.status?.conditions, updates, generation, now)
  return { ...machine.status, observedGeneration: generation, conditions }
}

const READY: readonly string[] = [MachineReason.Joined, MachineReason.Unschedulable]

/** Reasons that are no fault. */
const NORMAL: readonly string[] = [...READY, MachineReason.NotJoined, MachineReason.Removing]

/** Reasons that only a person ends. */
const STALLED: readonly string[] = [MachineReason.ProjectLimit, MachineReason.Unfit]

function readyOf(machine: StoredMachine, observed: MachineObservation): ConditionCause {
  const why = whyUnavailable(machine, findingOf(observed))
  switch (why) {
    case "deleted":
      return {
        reason: MachineReason.Removing,
        message: "the machine is removed as soon as nothing of a job runs on it",
      }
    case "overLimit":
      return {
        reason: MachineReason.ProjectLimit,
        message: `the machine gets no job: ${observed.overLimit?.message ?? "its project has too many"}`,
      }
    case "noProject":
      return { reason: MachineReason.NoProject, message: "the namespace belongs to no Project yet" }
    case "unschedulable":
      return {
        reason: MachineReason.Unschedulable,
        message: "the machine is drained: it gets no job until `berth machine drain --undo`",
      }
    case "busy":
    case undefined:
      return {
        reason: MachineReason.Joined,
        message: `the host takes jobs at ${machine.spec.hourlyPriceUsd ?? 0} USD/h`,
      }
    default:
      return hostFault(machine.status?.host, observed, why)
  }
}

function findingOf({ hasProject, overLimit, silentSeconds = 0 }: MachineObservation): Finding {
  return { hasProject, isOverLimit: overLimit !== undefined, isSilent: silentSeconds >= SILENT_SECONDS }
}

/** Returns the condition of a machine whose host can take no job. */
function hostFault(
  host: Host | undefined,
  observed: MachineObservation,
  why: "notJoined" | "silent" | "unfit" | "cleaning",
): ConditionCause {
  if (host === undefined || why === "notJoined") {
    const message = "no host has joined yet; run the command of `berth machine join` on the host"
    return { reason: MachineReason.NotJoined, message }
  }
  if (why === "unfit") return { reason: MachineReason.Unfit, message: `the host can run no job: ${host.unfit}` }
  if (why === "cleaning") {
    const message =
      "the host is back after its lease ended; it gets a job once it has removed what is left of its last one"
    return { reason: MachineReason.CleaningUp, message }
  }
  const since = `the host has sent nothing since ${host.lastHeartbeatTime}`
  if (isLeaseOver(host, observed)) {
    const message = `${since}, and its lease has ended: nothing of a job runs on it. Start the host, or remove the machine`
    return { reason: MachineReason.LeaseExpired, message }
  }
  const message = `${since}; it gets no job, and a job on it is given up ${longestSilence(host)} s after that. Check its network and its agent`
  return { reason: MachineReason.Silent, message }
}

function buildEvents(before: MachineStatus | undefined, after: MachineStatus): EventNote[] {
  const ready = changedCondition(before?.conditions, after.conditions, MachineCondition.Ready)
  if (ready === undefined) return []
  const isNormal = NORMAL.includes(ready.reason)
  return [{ type: isNormal ? "Normal" : "Warning", reason: ready.reason, message: ready.message }]
}
