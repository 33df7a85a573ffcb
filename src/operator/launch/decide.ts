import { isDeepStrictEqual } from "node:util"
import type { Vm } from "../../clouds/cloud.ts"
import { freeSecondsOf } from "../../clouds/machines/machines.ts"
import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import { VM_STATES } from "../../core/apis/job.ts"
import {
  bootFailureOf,
  firstMessageTime,
  isOver,
  LAUNCH_FINALIZER,
  type LaunchPhase,
  type LaunchStatus,
  pricesOf,
  type StoredLaunch,
} from "../../core/apis/launch.ts"
import { LABELS } from "../../core/apis/meta.ts"
import { costOf, sumOfParts } from "../../core/apis/price.ts"
import type { EventNote } from "../../core/kube/events.ts"
import {
  CLEAN_SECONDS,
  debugUntil,
  idlenessOf,
  idleSecondsLeft,
  idleUsd,
  mayHandOver,
  minimumBilledSecondsOf,
  vmLifetimeOf,
  vmSince,
} from "../../core/reuse/reuse.ts"
import { bootProgress, preemptionWitness } from "../../market/placement/outcome.ts"
import { settlesIn } from "../elapsed.ts"
import type { LaunchSettings } from "./settings.ts"

/**
 * Last known state of a VM. `unknown`: not listed since this process started. `lastSeen`: time at which this process last
 * listed it.
 */
export type InstanceView = { is: "unknown" } | { is: "notFound"; lastSeen?: Date } | { is: "found"; vm: Vm }

type StoredLaunchError = NonNullable<LaunchStatus["unanswered"]>

/** Error of a create call that left open whether there is a VM. */
export type LaunchError = Pick<StoredLaunchError, "class" | "message">

/** Latest error of consecutive create calls that failed with the same class. */
export interface RepeatedLaunchError extends LaunchError {
  since: Date
  /** Time of the last write into the status. */
  lastReported?: Date
}

/** Time of a look at a VM's console: while the VM should be booting, or at its end. */
export type ConsoleReading = "booting" | "ended"

/** Everything that a decision on a Launch depends on, besides the Launch itself. */
export interface LaunchObservation {
  instance: InstanceView
  /** True if a create call may have been made whose outcome is unknown. */
  inFlight: boolean
  /** Set while this leader's create calls fail and leave the outcome open. */
  launchError?: RepeatedLaunchError
  /** True if the agent sent no heartbeat for too long while others did. */
  heartbeatTimedOut: boolean
  /** Age of the VM in seconds. Absent: it is counted by the calendar. */
  vmSeconds?: number
  /** Last time that this process read the VM's console. */
  consoleRead?: ConsoleReading
  /** Seconds since this process requested the VM's termination. */
  terminateRequestedSecondsAgo?: number
  /**
   * State of the Job. `deleted`: it does not exist. `settled`: its status has everything that it needs of its Launches.
   * `ending`: it has ended, and is about to be settled. `unobserved`: its status does not count this Launch yet.
   */
  job: "unobserved" | "active" | "ending" | "settled" | "deleted"
  /** True if the Statements of its months count its cost, or if it cost nothing. */
  isCounted: boolean
  /** True while the Launch that gets this one's VM has to read from this record which VM that is. Absent: no. */
  isHandoverOpen?: boolean
}

/** The controller's part of the status. The gateway writes `agent` and `bootFailure`. */
export type OwnStatus = Omit<LaunchStatus, "agent" | "bootFailure" | "conditions" | "observedGeneration">

export type LaunchAction =
  | { do: "addFinalizer" }
  /** Request the VM from the cloud, or settle the outcome of an earlier, identical call. */
  | { do: "createInstance" }
  /** Take over the idle VM of the Launch that the spec names, or find that it is another one's. */
  | { do: "takeOver" }
  /** Write the VM that the cloud lists, after the create call that may have been cut off is completed. */
  | { do: "recordInstance"; vm: Vm }
  /** List the account of a VM that no list has shown in its whole lifetime. */
  | { do: "findInstance" }
  | { do: "terminate"; vmId: string }
  /** Look for the cause on the console of a VM whose agent has not registered, and decide again. */
  | { do: "readConsole"; vmId: string; reading: ConsoleReading }
  /** Mark its cost as counted and remove the finalizer, in one write. `needed`: its Job still needs the record. */
  | { do: "release"; needed: boolean }
  | { do: "delete" }

export interface LaunchDecision {
  /** Status to write before the actions; absent if nothing changes. */
  status?: OwnStatus
  actions: LaunchAction[]
  events: EventNote[]
  requeueAfter?: number
}

/** Phases that the agent's reports cause. They are for people: the job controller reads the reports themselves. */
const LAZY_PHASES: readonly LaunchPhase[] = ["registered", "running", "finished", "idle"]

/**
 * Decides the next step of a Launch. An unknown outcome takes precedence, even for a Launch that is to end. The
 * identical create call is replayed until it is known if there is a VM.
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

/** Returns true until a Launch is released: its record is needed. */
export function hasFinalizer(launch: StoredLaunch): boolean {
  return launch.metadata.finalizers?.includes(LAUNCH_FINALIZER) ?? false
}

/**
 * Decides on an ended Launch. Its finalizer holds the record until its cost and its number are counted. Then the
 * record stays for the retention, unless someone deletes it.
 */
function decideRecord(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): LaunchDecision {
  if (hasFinalizer(launch)) {
    // Its number must not be used twice. A call of a dead leader may be about to create the Launch of the next number.
    // The record of a job that is about to be settled is released after that, so that many are deleted together.
    const isNeeded = observed.isHandoverOpen === true || observed.job === "unobserved" || observed.job === "ending"
    const isReleased = observed.isCounted && !isNeeded
    return { actions: isReleased ? [{ do: "release", needed: observed.job === "active" }] : [], events: [] }
  }
  const isUnneeded = observed.isCounted && (observed.job === "settled" || observed.job === "deleted")
  if (isDeleting(launch) || !isUnneeded) return { actions: [], events: [] }
  // Records with the label are deleted together (records.ts). Here only one that was left is deleted.
  const slack = launch.metadata.labels?.[LABELS.released] === undefined ? 0 : COLLECTION_SLACK_SECONDS
  const left = settings.retentionSeconds + slack - secondsBetween(overSince(launch), now)
  return left > 0 ? { actions: [], events: [], requeueAfter: left } : { actions: [{ do: "delete" }], events: [] }
}

/** Time that the deletion of many records has, from the end of the retention, seconds. */
const COLLECTION_SLACK_SECONDS = 3600

/** Returns the time since which a Launch is over. */
export function overSince(launch: StoredLaunch): string {
  return launch.status?.vm?.terminationTime ?? launch.status?.refusal?.time ?? launch.metadata.creationTimestamp
}

/** Decides on a Launch without a recorded VM: there is none, or its answer was lost. */
function decideUnsettled(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): LaunchDecision {
  const since = firstMessageTime(launch.status)
  const isTakeover = launch.spec.takesOver !== undefined
  if (since !== undefined && !isTakeover) return decideUnrecorded(launch, since, { observed, now, settings })
  const end = reasonToEnd(launch, observed, now, settings)
  if (end !== undefined && !observed.inFlight && since === undefined) return withoutVm(launch, now)
  // Not even a Launch that is to end concludes that it has no VM while an earlier write may still give it one.
  if (isTakeover) return { actions: [{ do: "takeOver" }], events: [] }
  const { launchError } = observed
  const unanswered = launchError && launchErrorToReport(launch, launchError, now, settings)
  if (unanswered === undefined) return { actions: [{ do: "createInstance" }], events: [] }
  const status: OwnStatus = { phase: "requested", message: `no VM yet: ${unanswered.message}`, unanswered }
  return { status, actions: [{ do: "createInstance" }], events: [] }
}

/**
 * Decides on a Launch whose VM has sent a message before its creation was recorded. The message proves the VM, so no
 * create call is repeated: a cloud that forgets ended VMs would create another one. Only a list settles the outcome.
 * @param since time of the first message, from which a VM is billed that no list shows
 */
function decideUnrecorded(
  launch: StoredLaunch,
  since: string,
  { observed, now, settings }: { observed: LaunchObservation; now: Date; settings: LaunchSettings },
): LaunchDecision {
  const { instance } = observed
  if (instance.is === "found") return { actions: [{ do: "recordInstance", vm: instance.vm }], events: [] }
  if (instance.is === "unknown") {
    const left = longestVmLife(launch, settings) - secondsBetween(since, now)
    if (left > 0) return { actions: [], events: [], requeueAfter: left + 1 }
    return { actions: [{ do: "findInstance" }], events: [], requeueAfter: settings.terminateRetrySeconds }
  }
  const decision = decideVm(createdBy(launch, since), observed, now, settings)
  if (decision.status === undefined) return decision
  const message = `${decision.status.message}; it ended before Berth recorded it, and is billed from its first message at ${since}`
  return { ...decision, status: { ...decision.status, message: cutTo(message, 4096) } }
}

/** Returns the Launch with the time at which its VM certainly existed, as long as its creation is not recorded. */
function createdBy(launch: StoredLaunch, since: string): StoredLaunch {
  return { ...launch, status: { ...launch.status, vm: { state: "running", createTime: since } } }
}

/**
 * Returns the launch error to write into the status, once it has lasted. An error of the same class is written again at
 * most once per `launchErrorIntervalSeconds`. Undefined: nothing to write.
 */
function launchErrorToReport(
  { status }: StoredLaunch,
  error: RepeatedLaunchError,
  now: Date,
  settings: LaunchSettings,
): StoredLaunchError | undefined {
  if (secondsBetween(error.since, now) < settings.settleSeconds) return undefined
  const before = status?.unanswered?.class === error.class ? status.unanswered : undefined
  const { lastReported } = error
  const isRecent = lastReported !== undefined && secondsBetween(lastReported, now) < settings.launchErrorIntervalSeconds
  if (before !== undefined && isRecent) return undefined
  // An earlier leader may have recorded the same error.
  const since = before?.since ?? timestamp(error.since)
  const next = { class: error.class, message: error.message, since }
  return isDeepStrictEqual(before, next) ? undefined : next
}

/** Decides on a Launch that has no VM. A cloud without an answer for the whole boot deadline counts as a refusal. */
function withoutVm(launch: StoredLaunch, now: Date): LaunchDecision {
  const { unanswered } = launch.status ?? {}
  if (unanswered === undefined || secondsBetween(unanswered.since, now) < launch.spec.bootDeadlineSeconds) {
    const message = "ended before a VM was requested"
    return { status: { phase: "terminated", message, costUsd: 0 }, actions: [], events: [] }
  }
  const { message } = unanswered
  const refusal = { class: "Unavailable", message, time: timestamp(now) } as const
  const status: OwnStatus = { phase: "refused", message: `Unavailable: ${message}`, refusal, costUsd: 0 }
  return { status, actions: [], events: [{ type: "Warning", reason: "Refused", message }] }
}

/**
 * Returns the final status of a Launch whose cloud rejects the credentials although a VM may exist. Every VM ends itself
 * after its finite lifetime. A known VM counts as billed for its longest possible life. Undefined: it may still run.
 */
export function abandonedStatus(stored: StoredLaunch, now: Date, settings: LaunchSettings): OwnStatus | undefined {
  const heardSince = stored.status?.vm === undefined ? firstMessageTime(stored.status) : undefined
  const launch = heardSince === undefined ? stored : createdBy(stored, heardSince)
  const { vm, unanswered, loss } = launch.status ?? {}
  // Rejected calls create no VM. The last call that may have created one was made before the first rejection.
  const rejectedSince = unanswered?.class === "Credentials" ? unanswered.since : undefined
  const since = vm?.bootTime ?? vm?.createTime ?? rejectedSince
  if (since === undefined || secondsBetween(since, now) < longestVmLife(launch, settings)) return undefined
  const over = (message: string) =>
    ({ phase: "terminated", message, loss: loss ?? { reason: "VMLost", message, time: timestamp(now) } }) as const
  if (vm === undefined) {
    return over("the cloud rejects the credentials; any VM has ended by its lifetime, and its cost is unknown")
  }
  const end = latestEnd(launch, { lastSeen: undefined, now }, settings)
  const message = `the cloud rejects the credentials; the VM has ended by its lifetime and is billed until ${end}`
  return { ...over(message), ...billedUntil(launch, end) }
}

/** Decides on a Launch with a VM. It is followed, terminated when a reason appears, and billed when it has ended. */
function decideVm(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): LaunchDecision {
  const end = reasonToEnd(launch, observed, now, settings)
  const reading = consoleReading(launch, observed, { end, now, settings })
  if (reading !== undefined) return { actions: [reading], events: [], requeueAfter: 0 }
  const before = launch.status ?? {}
  const loss = before.loss ?? end?.loss
  const next: OwnStatus = { ...ownStatus(before), ...defined({ loss }) }
  const { instance } = observed
  const ended = endedVm(instance)
  const doubt = end === undefined && instance.is === "notFound" ? heartbeatOutweighsFor(launch, now, settings) : 0
  if (ended !== undefined && doubt > 0) return { actions: [], events: [], requeueAfter: doubt }
  if (ended !== undefined) {
    const { lastSeen } = instance.is === "notFound" ? instance : {}
    const terminationTime =
      ended.terminationTime ??
      (instance.is === "notFound" ? endOfMissing : latestEnd)(launch, { lastSeen, now }, settings)
    // A VM that waits for another job may end itself at any time.
    const expected = end !== undefined || idlenessOf(launch).is !== "none"
    return closeLaunch(launch, { next, ended: { ...ended, terminationTime }, expected, now })
  }
  next.vm = { ...next.vm, ...observedVm(launch, instance, end !== undefined) }
  return end === undefined
    ? following(launch, { next, observed, now, settings })
    : ending(launch, { next, message: end.message, observed, settings })
}

/**
 * Returns the action that reads the console of a VM whose agent has not registered: once after a while, and once at its
 * unexpected end or boot deadline. Undefined if the cause is known, no one needs it, or the console was just read.
 */
function consoleReading(
  launch: StoredLaunch,
  observed: LaunchObservation,
  { end, now, settings }: { end: End | undefined; now: Date; settings: LaunchSettings },
): Extract<LaunchAction, { do: "readConsole" }> | undefined {
  const { status, spec } = launch
  const { instance, consoleRead, job } = observed
  const vmId = status?.vm?.id
  const isExplained = status?.agent !== undefined || status?.loss !== undefined || bootFailureOf(status) !== undefined
  if (vmId === undefined || isExplained || !(job === "active" || job === "unobserved")) return undefined
  if (instance.is === "found" && instance.vm.preempted === true) return undefined
  const age = ageOf(launch, observed, now)
  const isDeadline = spec.ended === true && age >= spec.bootDeadlineSeconds
  if (isDeadline || (end === undefined && endedVm(instance) !== undefined)) {
    return consoleRead === "ended" ? undefined : { do: "readConsole", vmId, reading: "ended" }
  }
  const isDue = end === undefined && age >= settings.consoleSeconds && consoleRead === undefined
  return isDue ? { do: "readConsole", vmId, reading: "booting" } : undefined
}

type LossReason = NonNullable<OwnStatus["loss"]>["reason"]

interface End {
  message: string
  loss?: NonNullable<OwnStatus["loss"]>
}

interface EndFacts {
  launch: StoredLaunch
  status: LaunchStatus
  observed: LaunchObservation
  now: Date
  settings: LaunchSettings
}

interface EndCheck {
  /** Returns the message if the check applies. */
  why: (facts: EndFacts) => string | false | undefined
  /** Set if the VM counts as lost. */
  loss?: LossReason
}

/** Reasons to terminate a VM in order of precedence. The first one that applies counts. */
const END_CHECKS: Record<string, EndCheck> = {
  agentFinished: { why: ({ launch, now }) => whyFinished(launch, now) },
  bootFailed: {
    why: ({ status }) => {
      const failure = bootFailureOf(status)
      return failure && `the VM cannot run containers: ${failure.message}`
    },
  },
  endRequested: { why: ({ launch }) => launch.spec.ended === true && "the job no longer needs this VM" },
  alreadyLost: { why: ({ status: { loss } }) => loss?.message },
  launchDeleted: { why: ({ launch }) => isDeleting(launch) && "the Launch is being deleted" },
  jobDeleted: { why: ({ observed }) => observed.job === "deleted" && "the Job was deleted" },
  // The Job never counted this Launch: a leader that had stalled created it after the Job's end.
  jobSettled: { why: ({ observed }) => observed.job === "settled" && "the Job had already ended" },
  keyConflict: {
    why: ({ status: { agent } }) => agent?.conflictTime !== undefined && "a second key tried to register as its agent",
    loss: "KeyConflict",
  },
  heartbeatTimedOut: {
    why: ({ observed, status: { agent } }) =>
      observed.heartbeatTimedOut &&
      `no heartbeat from the agent since ${agent?.lastHeartbeatTime ?? agent?.registrationTime}, while others sent theirs`,
    loss: "Silent",
  },
  // A Launch without a VM cannot outlive its lifetime, however long it waits for its first create call.
  lifetimeExceeded: {
    why: ({ launch, status, observed, now, settings }) => {
      const age = status.vm === undefined ? 0 : ageOf(launch, observed, now)
      const limit = longestLife(launch, settings)
      return age > limit && `the VM exceeded its maximum lifetime of ${limit} s`
    },
    loss: "VMLost",
  },
}

/** Reasons to end a VM that has used its time after the run. */
const TIME_OVER = {
  cleaning: "it was not clean",
  idle: "no job took it over",
  debug: "it was kept for sessions, and did not end itself",
} as const

/** Returns the message of a VM whose agent has finished; undefined while it runs, cleans up, waits for a job, or is kept. */
function whyFinished(launch: StoredLaunch, now: Date): string | undefined {
  const finish = launch.status?.agent?.finish
  if (finish === undefined) return undefined
  const finished = `the agent finished: ${finish.reason}`
  const idleness = idlenessOf(launch)
  if (idleness.is === "none") return idleness.why === undefined ? finished : `${finished}; ${idleness.why}`
  if (idleSecondsLeft(idleness, now) > 0) return undefined
  return `${finished}; ${TIME_OVER[idleness.is]} within ${idleness.seconds} s`
}

/** Returns why the VM has to end; undefined while it is needed. */
function reasonToEnd(
  launch: StoredLaunch,
  observed: LaunchObservation,
  now: Date,
  settings: LaunchSettings,
): End | undefined {
  const facts = { launch, status: launch.status ?? {}, observed, now, settings }
  for (const { why, loss } of Object.values(END_CHECKS)) {
    const message = why(facts)
    if (typeof message !== "string") continue
    return { message, ...(loss !== undefined && { loss: { reason: loss, message, time: timestamp(now) } }) }
  }
  return undefined
}

interface EndedVm {
  terminationTime: string
  preempted?: boolean
}

/** Returns the VM as the cloud last listed it after its end. Returns an empty object if the cloud does not list it. */
function endedVm(instance: InstanceView): Partial<Vm> | undefined {
  if (instance.is === "notFound") return {}
  return instance.is === "found" && instance.vm.state === "terminated" ? instance.vm : undefined
}

/** Returns for how many more seconds the last heartbeat outweighs a list without the VM. */
function heartbeatOutweighsFor({ status }: StoredLaunch, now: Date, settings: LaunchSettings): number {
  const { lastHeartbeatTime, preemptionNotice } = status?.agent ?? {}
  if (lastHeartbeatTime === undefined || preemptionNotice !== undefined) return 0
  const { recentHeartbeatSeconds: most } = settings
  return Math.min(most, most - secondsBetween(lastHeartbeatTime, now))
}

function closeLaunch(
  launch: StoredLaunch,
  { next, ended, expected, now }: { next: OwnStatus; ended: EndedVm; expected: boolean; now: Date },
): LaunchDecision {
  const { preempted, terminationTime } = ended
  const isMachineFree = preempted === true && isFreeIfPreempted(launch, terminationTime)
  const billed = billedUntil(launch, terminationTime, { isMachineFree })
  const status: OwnStatus = {
    ...next,
    phase: "terminated",
    ...billed,
    ...(preempted === true && billed.vm !== undefined && { vm: { ...billed.vm, preempted } }),
  }
  if (expected) {
    const message = next.loss?.message ?? "the VM was terminated"
    return { status: { ...status, message }, actions: [], events: [] }
  }
  const isPreempted = preemptionWitness(launch, preempted === true) !== undefined
  const message = isPreempted ? "the cloud preempted the VM" : disappearance(launch)
  const loss = { reason: isPreempted ? "Preempted" : "VMLost", message, time: timestamp(now) } as const
  return {
    status: { ...status, loss, message },
    actions: [],
    events: [{ type: "Warning", reason: loss.reason, message }],
  }
}

/** Returns the message of a VM that ended unexpectedly. Without an agent, it may never have had a way to the gateway. */
function disappearance(launch: StoredLaunch): string {
  const message = "the VM disappeared, and Berth had not terminated it"
  return launch.status?.agent === undefined ? cutTo(`${message}: ${bootProgress(launch)}`, 1024) : message
}

/**
 * Terminates the VM, and again if that has no effect. A loss is written before. So is the end of a VM that another Launch
 * could take over: the write fails if one has it already, and none can get it afterwards.
 */
function ending(
  launch: StoredLaunch,
  context: { next: OwnStatus; message: string; observed: LaunchObservation; settings: LaunchSettings },
): LaunchDecision {
  const { next, message, observed, settings } = context
  const requestedAgo = observed.terminateRequestedSecondsAgo
  const isNewLoss = next.loss !== undefined && launch.status?.loss === undefined
  // Usually the VM has ended before the next reconcile. That saves the write of `terminating`.
  const lingers = (requestedAgo ?? 0) >= settings.settleSeconds || launch.status?.phase === "terminating"
  const isWritten = lingers || isNewLoss || mayHandOver(launch)
  const vmId = next.vm?.id
  const isDue = vmId !== undefined && (requestedAgo === undefined || requestedAgo >= settings.terminateRetrySeconds)
  const first = launch.status?.phase === "terminating" ? launch.status.message : undefined
  const status: OwnStatus = { ...next, phase: "terminating", message: first ?? cutTo(message, 1024) }
  return {
    ...(isWritten && changeOf(launch, status)),
    actions: isDue ? [{ do: "terminate", vmId }] : [],
    events: isNewLoss ? [{ type: "Warning", reason: next.loss?.reason ?? "VMLost", message }] : [],
    requeueAfter: lingers ? settings.terminateRetrySeconds : settings.settleSeconds,
  }
}

function following(
  launch: StoredLaunch,
  context: { next: OwnStatus; observed: LaunchObservation; now: Date; settings: LaunchSettings },
): LaunchDecision {
  const { next, observed, now, settings } = context
  const phase = livePhase(launch)
  const status: OwnStatus = { ...next, phase, message: liveMessage(launch, phase) }
  const age = ageOf(launch, observed, now)
  const isUnread = launch.status?.agent === undefined && observed.consoleRead === undefined
  const idleness = idlenessOf(launch)
  const life = longestLife(launch, settings)
  const due = Math.min(
    (isUnread ? Math.min(settings.consoleSeconds, life) : life) - age,
    idleness.is === "none" ? Number.POSITIVE_INFINITY : idleSecondsLeft(idleness, now),
  )
  const unchanged: LaunchDecision = { actions: [], events: [], requeueAfter: Math.max(1, due + 1) }
  const since = phaseSince(launch, phase)
  const wait = since === undefined ? settings.settleSeconds : settlesIn(since, now, settings)
  const isLazy = LAZY_PHASES.includes(phase) && next.vm?.ipAddress === launch.status?.vm?.ipAddress
  if (!isLazy || wait <= 0) return { ...unchanged, ...changeOf(launch, status) }
  if (changeOf(launch, status) === undefined) return unchanged
  return { ...unchanged, requeueAfter: wait }
}

const LIVE_MESSAGES: Partial<Record<LaunchPhase, string>> = {
  created: "the VM is booting",
  registered: "the agent is preparing the container",
  running: "the container is running",
  finished: "the agent removes everything of the job from the VM",
  idle: "the VM waits for another job",
}

function liveMessage(launch: StoredLaunch, phase: LaunchPhase): string {
  const { spec, status } = launch
  // A VM that is taken over does not boot: its first message is still true.
  if (phase === "created" && spec.takesOver !== undefined) return status?.message ?? ""
  const until = debugUntil(launch)
  return until === undefined ? (LIVE_MESSAGES[phase] ?? "") : `the VM is kept for sessions until ${until}`
}

function livePhase(launch: StoredLaunch): LaunchPhase {
  const agent = launch.status?.agent
  if (agent === undefined) return "created"
  if (agent.finish !== undefined) return agent.idleTime === undefined ? "finished" : "idle"
  return agent.startTime === undefined ? "registered" : "running"
}

function phaseSince(launch: StoredLaunch, phase: LaunchPhase): string | undefined {
  const agent = launch.status?.agent
  if (phase === "idle") return agent?.idleTime
  if (phase === "finished") return agent?.lastHeartbeatTime ?? agent?.finish?.time
  return phase === "running" ? agent?.startTime : agent?.registrationTime
}

/** Returns the VM's present state and address. A state never moves back: a list may be older than the status. */
function observedVm(launch: StoredLaunch, instance: InstanceView, isEnding: boolean): NonNullable<OwnStatus["vm"]> {
  const before = launch.status?.vm
  const vm = instance.is === "found" ? instance.vm : undefined
  const seen = isEnding || vm?.state === "terminating" ? "terminating" : launch.status?.agent ? "running" : "booting"
  const known = before?.state ?? "provisioning"
  return {
    ...before,
    state: VM_STATES.indexOf(seen) > VM_STATES.indexOf(known) ? seen : known,
    ...defined({ ipAddress: vm?.ipAddress }),
  }
}

/** Returns the part of a status that the launch controller writes. */
export function ownStatus(status: LaunchStatus): OwnStatus {
  const { agent: _, bootFailure: __, conditions: ___, observedGeneration: ____, ...own } = status
  return own
}

function changeOf(launch: StoredLaunch, status: OwnStatus): { status: OwnStatus } | undefined {
  const before = launch.status ?? {}
  const same =
    before.phase === status.phase &&
    before.message === status.message &&
    before.loss?.reason === status.loss?.reason &&
    before.vm?.state === status.vm?.state &&
    before.vm?.ipAddress === status.vm?.ipAddress
  return same ? undefined : { status }
}

/** Returns the time at which the VM's billing began. */
export function createTimeOf({ metadata, status }: StoredLaunch): string {
  return status?.vm?.createTime ?? metadata.creationTimestamp
}

function ageOf(launch: StoredLaunch, { vmSeconds }: LaunchObservation, now: Date): number {
  return vmSeconds ?? secondsBetween(createTimeOf(launch), now)
}

/** Returns the longest time in seconds for which a Launch needs its VM, with the time for another job. */
function longestLife({ spec }: StoredLaunch, { lifetimeSlackSeconds }: LaunchSettings): number {
  const { reuse } = spec.run
  const kept = reuse === undefined ? 0 : CLEAN_SECONDS + reuse.idleSeconds
  return spec.bootDeadlineSeconds + spec.lifetimeSeconds + kept + lifetimeSlackSeconds
}

/** Returns the longest time in seconds from the request of a VM until it has ended itself, even if its agent hangs. */
function longestVmLife({ spec }: StoredLaunch, { lifetimeSlackSeconds }: LaunchSettings): number {
  return spec.bootDeadlineSeconds + vmLifetimeOf(spec) + lifetimeSlackSeconds
}

/**
 * Returns the latest possible end of a VM whose end was not observed. That is now, unless its agent had finished or its
 * lifetime was over before. It is never before this process last listed the VM.
 */
function latestEnd(
  launch: StoredLaunch,
  { lastSeen, now }: { lastSeen: Date | undefined; now: Date },
  settings: LaunchSettings,
): string {
  const seen = lastSeen === undefined ? 0 : lastSeen.getTime() + settings.settleSeconds * 1000
  return timestamp(new Date(Math.min(now.getTime(), Math.max(seen, endedItselfBy(launch, settings)))))
}

/**
 * Returns the end of a VM that the cloud no longer lists. A VM runs at least until its last sign of life: a heartbeat, or
 * a list of this process. Without both, its latest possible end counts.
 */
function endOfMissing(
  launch: StoredLaunch,
  { lastSeen, now }: { lastSeen: Date | undefined; now: Date },
  settings: LaunchSettings,
): string {
  const { finish, lastHeartbeatTime } = launch.status?.agent ?? {}
  const latest = latestEnd(launch, { lastSeen, now }, settings)
  if (finish !== undefined || lastHeartbeatTime === undefined) return latest
  // After a restart this process has not seen the VM. The gateway counted its heartbeats all the time.
  const beat = Date.parse(lastHeartbeatTime) + settings.recentHeartbeatSeconds * 1000
  const seen = lastSeen === undefined ? 0 : lastSeen.getTime() + settings.settleSeconds * 1000
  return timestamp(new Date(Math.min(Date.parse(latest), Math.max(beat, seen))))
}

/**
 * Returns milliseconds since 1970. The later of the VM's and the gateway's clock counts: a VM runs until the gateway has
 * accepted its finish.
 */
function endedItselfBy(launch: StoredLaunch, settings: LaunchSettings): number {
  const { finish, lastHeartbeatTime } = launch.status?.agent ?? {}
  if (finish === undefined) return Date.parse(vmSince(launch)) + longestVmLife(launch, settings) * 1000
  const lastMessage = Math.max(Date.parse(finish.time), Date.parse(lastHeartbeatTime ?? finish.time))
  return Math.max(lastMessage, keptUntil(launch) ?? lastMessage) + settings.powerOffSeconds * 1000
}

/** Returns until when a VM stays after its run at most, milliseconds since 1970; undefined: it does not. */
function keptUntil(launch: StoredLaunch): number | undefined {
  const { idleTime, leaveTime } = launch.status?.agent ?? {}
  if (leaveTime !== undefined) return Date.parse(leaveTime)
  if (idleTime !== undefined) return Date.parse(idleTime) + (launch.spec.run.reuse?.idleSeconds ?? 0) * 1000
  const idleness = idlenessOf(launch)
  return idleness.is === "none" ? undefined : Date.parse(idleness.since) + idleness.seconds * 1000
}

/** Returns true if the machine of a preempted VM costs nothing. A VM that ended itself after a notice costs what others do. */
function isFreeIfPreempted(launch: StoredLaunch, terminationTime: string): boolean {
  return secondsBetween(vmSince(launch), terminationTime) < freeSecondsOf(launch.spec.offer)
}

/** Returns the ended VM and its cost. A VM may have ended before it was taken over: its bill ends where it began then. */
export function billedUntil(
  launch: StoredLaunch,
  endTime: string,
  {
    isMachineFree = false,
    minimumBilledSeconds = minimumBilledSecondsOf(launch),
  }: { isMachineFree?: boolean; minimumBilledSeconds?: number } = {},
): Pick<LaunchStatus, "vm" | "costUsd" | "cost" | "idleUsd"> {
  const since = createTimeOf(launch)
  const seconds = Math.max(0, secondsBetween(since, endTime))
  const terminationTime = seconds > 0 ? endTime : since
  const cost = costOf(pricesOf(launch), { seconds, minimumBilledSeconds, isMachineFree })
  return {
    vm: { ...launch.status?.vm, state: "terminated", terminationTime },
    costUsd: sumOfParts(cost),
    cost,
    ...defined({ idleUsd: idleUsd(launch, new Date(terminationTime)) }),
  }
}
