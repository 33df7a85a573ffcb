import { secondsBetween, timestamp } from "../../apis/clock.ts"
import { cutTo } from "../../apis/conditions.ts"
import { VM_STATES } from "../../apis/job.ts"
import { isOver, LAUNCH_FINALIZER, type LaunchPhase, type LaunchStatus, type StoredLaunch } from "../../apis/launch.ts"
import type { Vm } from "../../cloud/provider.ts"
import type { EventNote } from "../../kube/events.ts"
import { billedUntil, bornAt, latestEnd, longestLife } from "./billing.ts"
import type { LaunchSettings } from "./settings.ts"
import { type Attempts, silenceToTell } from "./unanswered.ts"

/**
 * What is known of a Launch's VM. `unknown`: no list has told yet, which says nothing of the VM. `lastSeen`: when a list of
 * this process last showed it.
 */
export type Sighting = { seen: "unknown" } | { seen: "absent"; lastSeen?: Date } | { seen: "present"; vm: Vm }

/** Everything that a decision on a Launch is made from, besides the Launch itself. */
export interface LaunchObservation {
  sighting: Sighting
  /** Whether a launch call may have been made whose outcome nobody knows. */
  outstanding: boolean
  /** What this leader's attempts at a VM have met, as long as no answer has come. */
  attempts?: Attempts
  /** Not heard for too long, while others were. */
  silent: boolean
  /** Seconds since this process asked the cloud to end the VM, if it did. */
  terminateAskedSecondsAgo?: number
  /**
   * `gone`: no such Job. `recorded`: it ended and has written down what it needs of its Launches. `unaware`: it lives, and
   * its status does not count this Launch yet.
   */
  job: "unaware" | "alive" | "recorded" | "gone"
  /** Until when what this Launch cost still counts, although its Job is gone (a monthly cap). */
  countsUntil?: Date
}

/** What the controller writes of the status; `agent` and `bootFailure` are the gateway's. */
export type OwnStatus = Omit<LaunchStatus, "agent" | "bootFailure" | "conditions" | "observedGeneration">

export type LaunchAction =
  | { do: "addFinalizer" }
  /** Ask the cloud for the VM, or find out what became of an earlier, identical call. */
  | { do: "launch" }
  | { do: "terminate"; vmId: string }
  | { do: "dropFinalizer" }
  | { do: "delete" }

export interface LaunchDecision {
  /** What the status becomes before the actions; absent: nothing to write. */
  status?: OwnStatus
  actions: LaunchAction[]
  events: EventNote[]
  requeueAfter?: number
}

/** Phases that the agent's reports bring; they are for people, as the job controller reads the reports themselves. */
const LAZY_PHASES: readonly LaunchPhase[] = ["registered", "running"]

/**
 * What is to be done about a Launch now. Pure. An unknown outcome comes before everything else: as long as nobody
 * knows whether there is a VM, the identical call is replayed, whatever is wanted of the Launch.
 */
export function decide(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): LaunchDecision {
  if (isOver(launch)) return decideRecord(launch, observed, now, settings)
  if (!isDeleting(launch) && !hasFinalizer(launch)) return { actions: [{ do: "addFinalizer" }], events: [] }
  if (launch.status?.vm?.id === undefined) return decideUnsettled(launch, observed, now, settings)
  return decideVm(launch, observed, now, settings)
}

function isDeleting(launch: StoredLaunch): boolean {
  return launch.metadata.deletionTimestamp !== undefined
}

function hasFinalizer(launch: StoredLaunch): boolean {
  return launch.metadata.finalizers?.includes(LAUNCH_FINALIZER) ?? false
}

/** Nothing runs any more: what remains is a record, kept until it has served. */
function decideRecord(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): LaunchDecision {
  if (isDeleting(launch)) {
    // Its number must not be given again: a call of a leader that died may still be about to make the next one.
    const mayGo = hasFinalizer(launch) && observed.job !== "unaware"
    return { actions: mayGo ? [{ do: "dropFinalizer" }] : [], events: [] }
  }
  if (observed.job === "alive" || observed.job === "unaware") return { actions: [], events: [] }
  const kept = settings.retentionSeconds - secondsBetween(overSince(launch), now)
  const left = Math.max(kept, observed.countsUntil === undefined ? 0 : secondsBetween(now, observed.countsUntil))
  return left > 0 ? { actions: [], events: [], requeueAfter: left } : { actions: [{ do: "delete" }], events: [] }
}

function overSince(launch: StoredLaunch): string {
  return launch.status?.vm?.terminationTime ?? launch.status?.refusal?.time ?? launch.metadata.creationTimestamp
}

/** Nobody has written down a VM: there may be none, or one that a lost answer told of. */
function decideUnsettled(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): LaunchDecision {
  const end = reasonToEnd(launch, observed, now, settings)
  if (end !== undefined && !observed.outstanding) return withoutVm(launch, now)
  const { attempts } = observed
  const unanswered = attempts && silenceToTell(launch, attempts, now, settings)
  if (unanswered === undefined) return { actions: [{ do: "launch" }], events: [] }
  const status: OwnStatus = { phase: "requested", message: `no VM yet: ${unanswered.message}`, unanswered }
  return { status, actions: [{ do: "launch" }], events: [] }
}

/** There surely is no VM. A cloud that gave no answer in all the time that a boot may take has refused by that. */
function withoutVm(launch: StoredLaunch, now: Date): LaunchDecision {
  const { unanswered } = launch.status ?? {}
  if (unanswered === undefined || secondsBetween(unanswered.since, now) < launch.spec.bootDeadlineSeconds) {
    const message = "ended before any VM was asked for"
    return { status: { phase: "terminated", message, costUsd: 0 }, actions: [], events: [] }
  }
  const { message } = unanswered
  const refusal = { class: "Unavailable", message, time: timestamp(now) } as const
  const status: OwnStatus = { phase: "refused", message: `Unavailable: ${message}`, refusal, costUsd: 0 }
  return { status, actions: [], events: [{ type: "Warning", reason: "Refused", message }] }
}

/**
 * The status of a Launch whose cloud can't be asked any more (its credentials are gone) although a VM may have been
 * made: once the finite lifetime that each VM ends itself by is over, there is none. Undefined before. A VM that is known
 * is taken to have lived as long as it could.
 */
export function givenUp(launch: StoredLaunch, now: Date, settings: LaunchSettings): OwnStatus | undefined {
  const { vm, unanswered, loss } = launch.status ?? {}
  // Calls that are refused make no VM, so that the last one which may have was made before.
  const refusedSince = unanswered?.class === "Credentials" ? unanswered.since : undefined
  const since = vm?.createTime ?? refusedSince
  if (since === undefined || secondsBetween(since, now) < longestLife(launch, settings)) return undefined
  const over = (message: string) =>
    ({ phase: "terminated", message, loss: loss ?? { reason: "VMLost", message, time: timestamp(now) } }) as const
  if (vm === undefined) {
    return over("the cloud could not be asked; any VM has ended itself by its lifetime, and what it cost is not known")
  }
  const end = latestEnd(launch, { lastSeen: undefined, now }, settings)
  const told = over(`the cloud could not be asked; the VM has ended itself, and counts as billed until ${end}`)
  return { ...told, ...billedUntil(launch, end) }
}

/** There was a VM: follow it, end it when it is time, and close the account when it is gone. */
function decideVm(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): LaunchDecision {
  const end = reasonToEnd(launch, observed, now, settings)
  const before = launch.status ?? {}
  const loss = before.loss ?? end?.loss
  const next: OwnStatus = { ...ownStatus(before), ...(loss !== undefined && { loss }) }
  const gone = goneVm(observed.sighting)
  const doubt = end === undefined && observed.sighting.seen === "absent" ? heardForSeconds(launch, now, settings) : 0
  if (gone !== undefined && doubt > 0) return { actions: [], events: [], requeueAfter: doubt }
  if (gone !== undefined) {
    const { lastSeen } = observed.sighting.seen === "absent" ? observed.sighting : {}
    const terminationTime = gone.terminationTime ?? latestEnd(launch, { lastSeen, now }, settings)
    return closed(launch, { next, gone: { ...gone, terminationTime }, expected: end !== undefined, now })
  }
  next.vm = { ...next.vm, ...seenVm(launch, observed.sighting, end !== undefined) }
  return end === undefined
    ? following(launch, next, now, settings)
    : ending(launch, { next, message: end.message, observed, settings })
}

interface End {
  message: string
  loss?: NonNullable<OwnStatus["loss"]>
}

/** Why the VM shall be no more, in the order in which the reasons count; undefined while it is wanted. */
function reasonToEnd(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): End | undefined {
  const { agent, bootFailure, loss, vm } = launch.status ?? {}
  if (agent?.finish !== undefined) return { message: `the agent has finished: ${agent.finish.reason}` }
  if (bootFailure !== undefined) return { message: `the VM can run no container: ${bootFailure.message}` }
  if (launch.spec.ended === true) return { message: "the job needs it no more" }
  if (loss !== undefined) return { message: loss.message, loss }
  if (isDeleting(launch)) return { message: "the Launch is being deleted" }
  if (observed.job === "gone") return { message: "its Job is gone" }
  // The Job knew of no such Launch when it ended: a leader that had stood still made it late.
  if (observed.job === "recorded") return { message: "its Job had ended" }
  if (agent?.conflictTime !== undefined) {
    return lost("KeyConflict", "another key than the agent's tried to register", now)
  }
  if (observed.silent) return lost("Silent", "the agent was not heard while others were", now)
  // However long it waits for its turn to be asked for, what isn't there outlives nothing.
  const age = vm === undefined ? 0 : secondsBetween(bornAt(launch), now)
  if (age > longestLife(launch, settings)) return lost("VMLost", "the VM outlived its lifetime", now)
  return undefined
}

function lost(reason: NonNullable<OwnStatus["loss"]>["reason"], message: string, now: Date): End {
  return { message, loss: { reason, message, time: timestamp(now) } }
}

/** What is known of a VM that is no more. */
interface Gone {
  terminationTime: string
  preempted?: boolean
}

/** The VM as the cloud last showed it when it is no more; an empty object when the cloud doesn't show it at all. */
function goneVm(sighting: Sighting): Partial<Vm> | undefined {
  if (sighting.seen === "absent") return {}
  return sighting.seen === "present" && sighting.vm.state === "terminated" ? sighting.vm : undefined
}

/** For how many more seconds what the agent last said counts for more than a list that doesn't show its VM. */
function heardForSeconds({ status }: StoredLaunch, now: Date, { heardSeconds }: LaunchSettings): number {
  const { lastHeartbeatTime, preemptionNotice } = status?.agent ?? {}
  if (lastHeartbeatTime === undefined || preemptionNotice !== undefined) return 0
  return Math.min(heardSeconds, heardSeconds - secondsBetween(lastHeartbeatTime, now))
}

function closed(
  launch: StoredLaunch,
  { next, gone, expected, now }: { next: OwnStatus; gone: Gone; expected: boolean; now: Date },
): LaunchDecision {
  const { preempted, terminationTime } = gone
  const status: OwnStatus = { ...next, phase: "terminated", ...billedUntil(launch, terminationTime) }
  if (expected)
    return { status: { ...status, message: next.loss?.message ?? "the VM is gone" }, actions: [], events: [] }
  const isTaken = preempted === true || launch.status?.agent?.preemptionNotice !== undefined
  const message = isTaken ? "the cloud took the VM back" : "the VM is gone, and nobody had ended it"
  const loss = { reason: isTaken ? "Preempted" : "VMLost", message, time: timestamp(now) } as const
  return {
    status: { ...status, loss, message },
    actions: [],
    events: [{ type: "Warning", reason: loss.reason, message }],
  }
}

/** Asks for the VM's end, again when that shows no effect; what was lost is written down before. */
function ending(
  launch: StoredLaunch,
  context: { next: OwnStatus; message: string; observed: LaunchObservation; settings: LaunchSettings },
): LaunchDecision {
  const { next, message, observed, settings } = context
  const askedAgo = observed.terminateAskedSecondsAgo
  const isNewLoss = next.loss !== undefined && launch.status?.loss === undefined
  // Usually the VM is gone when this Launch is looked at next: then the write in between is saved.
  const lingers = (askedAgo ?? 0) >= settings.settleSeconds || launch.status?.phase === "terminating"
  const vmId = next.vm?.id
  const ask = vmId !== undefined && (askedAgo === undefined || askedAgo >= settings.terminateRetrySeconds)
  const status: OwnStatus = { ...next, phase: "terminating", message: cutTo(message, 1024) }
  return {
    ...((lingers || isNewLoss) && changed(launch, status)),
    actions: ask ? [{ do: "terminate", vmId }] : [],
    events: isNewLoss ? [{ type: "Warning", reason: next.loss?.reason ?? "VMLost", message }] : [],
    requeueAfter: lingers ? settings.terminateRetrySeconds : settings.settleSeconds,
  }
}

function following(launch: StoredLaunch, next: OwnStatus, now: Date, settings: LaunchSettings): LaunchDecision {
  const phase = livePhase(launch)
  const status: OwnStatus = { ...next, phase, message: LIVE_MESSAGES[phase] ?? "" }
  const overdue = longestLife(launch, settings) - secondsBetween(bornAt(launch), now)
  const calm: LaunchDecision = { actions: [], events: [], requeueAfter: Math.max(1, overdue + 1) }
  const wait = settings.settleSeconds - secondsBetween(phaseSince(launch, phase) ?? timestamp(now), now)
  const isLazy = LAZY_PHASES.includes(phase) && next.vm?.ipAddress === launch.status?.vm?.ipAddress
  if (!isLazy || wait <= 0) return { ...calm, ...changed(launch, status) }
  if (changed(launch, status) === undefined) return calm
  return { ...calm, requeueAfter: Math.min(wait, settings.settleSeconds) }
}

const LIVE_MESSAGES: Partial<Record<LaunchPhase, string>> = {
  created: "the VM boots",
  registered: "the agent prepares the container",
  running: "the container runs",
}

function livePhase(launch: StoredLaunch): LaunchPhase {
  const agent = launch.status?.agent
  if (agent === undefined) return "created"
  return agent.startTime === undefined ? "registered" : "running"
}

function phaseSince(launch: StoredLaunch, phase: LaunchPhase): string | undefined {
  const agent = launch.status?.agent
  return phase === "running" ? agent?.startTime : agent?.registrationTime
}

/** The VM's state and address now. A state never goes back: lists may be older than what was written. */
function seenVm(launch: StoredLaunch, sighting: Sighting, isEnding: boolean): NonNullable<OwnStatus["vm"]> {
  const before = launch.status?.vm
  const vm = sighting.seen === "present" ? sighting.vm : undefined
  const seen = isEnding || vm?.state === "terminating" ? "terminating" : launch.status?.agent ? "running" : "booting"
  const known = before?.state ?? "provisioning"
  return {
    ...before,
    state: VM_STATES.indexOf(seen) > VM_STATES.indexOf(known) ? seen : known,
    ...(vm?.ipAddress !== undefined && { ipAddress: vm.ipAddress }),
  }
}

/** The status of a Launch whose VM's image has been found out, and whose cloud has not been asked yet. */
export function imageStatus(imageId: string): OwnStatus {
  return { phase: "requested", message: "the cloud is asked for a VM", imageId }
}

/** The status of a Launch whose cloud has accepted it. */
export function createdStatus(vm: Vm): OwnStatus {
  const { id, ipAddress, createTime } = vm
  return {
    phase: "created",
    message: "the VM boots",
    vm: { state: "booting", id, createTime, ...(ipAddress !== undefined && { ipAddress }) },
  }
}

function ownStatus(status: LaunchStatus): OwnStatus {
  const { agent: _, bootFailure: __, conditions: ___, observedGeneration: ____, ...own } = status
  return own
}

function changed(launch: StoredLaunch, status: OwnStatus): { status: OwnStatus } | undefined {
  const before = launch.status ?? {}
  const same =
    before.phase === status.phase &&
    before.message === status.message &&
    before.loss?.reason === status.loss?.reason &&
    before.vm?.state === status.vm?.state &&
    before.vm?.ipAddress === status.vm?.ipAddress
  return same ? undefined : { status }
}
