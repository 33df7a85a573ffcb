import { secondsBetween } from "../apis/clock.ts"
import type { StoredJob } from "../apis/job.ts"
import {
  type AgentStatus,
  bootFailureOf,
  type FinishReason,
  isOver,
  pricesOf,
  type StoredLaunch,
} from "../apis/launch.ts"
import { LABELS, type ObjectMeta } from "../apis/meta.ts"
import { costOf, sumOfParts } from "../apis/price.ts"
import type { Reuse } from "../apis/reuse.ts"

/**
 * Reuse of a VM by a chain of Launches. The first one creates the VM (the root). Each other one takes it over from its
 * predecessor, whose bill ends at that instant. At any time exactly one Launch of a chain is not over, and holds the VM.
 */

/** Installation's default of the reuse of VMs. */
export interface ReuseDefault {
  /** Seconds that the VMs of jobs without `reuse` wait for another job. Absent: they don't wait. */
  reuseIdleSeconds?: number
}

/**
 * Returns the reuse of a job; undefined: it has a VM of its own. The jobs of an array without a key share VMs with each
 * other only, so a VM ends as soon as the array has no job left for it.
 */
export function reuseOf(
  { metadata, spec }: Pick<StoredJob, "spec"> & { metadata?: Pick<ObjectMeta, "labels"> },
  { reuseIdleSeconds = 0 }: ReuseDefault,
): Reuse | undefined {
  const { reuse = { idleSeconds: reuseIdleSeconds } } = spec
  if (reuse.idleSeconds === 0) return undefined
  const array = metadata?.labels?.[LABELS.arrayUid]
  return array === undefined ? reuse : { key: arrayKey(array), ...reuse }
}

/** Returns the key by which the jobs of an array share VMs, unless they have another one. */
export function arrayKey(uid: string): string {
  return `array-${uid}`
}

/** Longest time from the end of a run until its VM is clean, seconds. */
export const CLEAN_SECONDS = 120

/** Time in which the agent of an idle VM has to register for the Launch that takes it over, seconds. */
export const TAKEOVER_SECONDS = 60

/** Further time for which a root's VM may live, so that later jobs fit into it, seconds. */
export const WARM_VM_SECONDS = 86_400

/** Time that an idle VM has to end itself, before the controller terminates it, seconds. */
const END_SLACK_SECONDS = 30

/** Ends after which a VM can run another job. All others say that the VM or its way to the gateway may be broken. */
const REUSABLE: readonly FinishReason[] = ["Succeeded", "ContainerFailed", "DeadlineExceeded"]

/** Returns why no other job gets a VM after this end of its run; undefined: it may get one. For agent and operator. */
export function whyNotReusable({
  finish,
  preemptionNotice,
}: Partial<Pick<AgentStatus, "finish" | "preemptionNotice">>): string | undefined {
  if (finish !== undefined && !REUSABLE.includes(finish.reason)) return `a VM is not reused after ${finish.reason}`
  if (finish?.keptUntil !== undefined) return "a VM that was kept for sessions is not reused"
  return preemptionNotice === undefined ? undefined : "the cloud takes this VM back"
}

/** State of a VM after its job. */
export type Idleness =
  /** `why`: the reason, if its job asked for the reuse of the VM. */
  | { is: "none"; why?: string }
  /**
   * It removes everything of its job, waits for another one, or is kept for sessions (`debug`), from a time on for so many
   * seconds at most. RFC 3339.
   */
  | { is: "cleaning" | "idle" | "debug"; since: string; seconds: number }

/** Returns what the VM of a Launch does after its job. Pure: it doesn't look at the time. */
export function idlenessOf(launch: StoredLaunch): Idleness {
  const { spec, status } = launch
  const { reuse } = spec.run
  const { agent } = status ?? {}
  const finish = agent?.finish
  if (finish === undefined || isOver({ ...(status && { status }) })) return { is: "none" }
  if (finish.keptUntil !== undefined && whyEnding(launch) === undefined)
    return { is: "debug", since: finish.time, seconds: secondsBetween(finish.time, finish.keptUntil) }
  if (reuse === undefined) return { is: "none" }
  const why = whyNeverIdle(launch)
  if (why !== undefined) return { is: "none", why }
  if (agent?.idleTime !== undefined) return { is: "idle", since: agent.idleTime, seconds: reuse.idleSeconds }
  return { is: "cleaning", since: agent?.lastHeartbeatTime ?? finish.time, seconds: CLEAN_SECONDS }
}

/** Returns why no other job can ever have the VM of a Launch that is not over. No later version of it is without the fact. */
function whyNeverIdle(launch: StoredLaunch): string | undefined {
  const { agent } = launch.status ?? {}
  const why = whyEnding(launch) ?? whyNotReusable(agent ?? {}) ?? agent?.unfit
  if (why !== undefined || agent?.leaveTime === undefined) return why
  return `no job took it over within ${launch.spec.run.reuse?.idleSeconds} s`
}

/** Returns why the VM of a Launch that is not over is to end in any case. */
function whyEnding({ metadata, spec, status }: StoredLaunch): string | undefined {
  const isEnded = spec.ended === true || metadata.deletionTimestamp !== undefined || status?.phase === "terminating"
  if (isEnded) return "Berth ends this VM"
  const broken = status?.loss ?? bootFailureOf(status)
  return broken !== undefined || status?.agent?.conflictTime !== undefined ? "this VM is not trusted" : undefined
}

/**
 * Returns true if a later version of a Launch may have handed over its VM. Then the VM may be another Launch's, and no one
 * may end it by this version alone.
 */
export function mayHandOver(launch: StoredLaunch): boolean {
  return launch.spec.run.reuse !== undefined && whyNeverIdle(launch) === undefined
}

/** Returns true if the run of a Launch has ended, and its VM cleans up, waits for another job, or is kept for sessions. */
export function isKept(launch: StoredLaunch): boolean {
  return idlenessOf(launch).is !== "none"
}

/** Returns true if the run of a Launch has ended, and its VM cleans up, or waits for another job. */
export function isKeptForJobs(launch: StoredLaunch): boolean {
  return ["cleaning", "idle"].includes(idlenessOf(launch).is)
}

/** Returns the seconds for which a VM may still clean up or wait; 0 or less: its time is over. */
export function idleSecondsLeft({ since, seconds }: { since: string; seconds: number }, now: Date): number {
  return seconds + END_SLACK_SECONDS - secondsBetween(since, now)
}

/** Returns the time until which an idle VM waits for another job; undefined: it doesn't wait. */
export function idleUntil(launch: StoredLaunch): Date | undefined {
  const idleness = idlenessOf(launch)
  return idleness.is === "idle" ? new Date(Date.parse(idleness.since) + idleness.seconds * 1000) : undefined
}

/** Returns the time until which a VM is kept for sessions, RFC 3339; undefined: it is not kept. */
export function debugUntil(launch: StoredLaunch): string | undefined {
  return idlenessOf(launch).is === "debug" ? launch.status?.agent?.finish?.keptUntil : undefined
}

/** Returns the part of a VM's cost until a time in which it waited for another job, USD; undefined if it never waited. */
export function idleUsd(launch: StoredLaunch, end: Date): number | undefined {
  const { idleTime } = launch.status?.agent ?? {}
  if (idleTime === undefined) return undefined
  const seconds = Math.max(0, secondsBetween(idleTime, end))
  return sumOfParts(costOf(pricesOf(launch), { seconds, minimumBilledSeconds: 0 }))
}

/** Returns the name that a Launch's VM has as a tag: that of the Launch that created it. */
export function vmNameOf({ metadata, spec }: Pick<StoredLaunch, "metadata" | "spec">): string {
  return spec.root ?? metadata.name
}

/** Returns the time at which the billing of a Launch's VM began, under its first Launch. */
export function vmSince({ metadata, status }: Pick<StoredLaunch, "metadata" | "status">): string {
  return status?.vm?.bootTime ?? status?.vm?.createTime ?? metadata.creationTimestamp
}

/** Returns the seconds after a VM's first boot at which it powers itself off. */
export function vmLifetimeOf({ vmLifetimeSeconds, lifetimeSeconds }: StoredLaunch["spec"]): number {
  return vmLifetimeSeconds ?? lifetimeSeconds
}

/**
 * Returns the shortest time that a Launch pays for its VM, seconds. The cloud's minimum counts for the whole chain: what
 * earlier Launches have paid is no part of it any more.
 */
export function minimumBilledSecondsOf(launch: Pick<StoredLaunch, "metadata" | "spec" | "status">): number {
  const { minimumBilledSeconds } = launch.spec.offer
  const { bootTime, createTime } = launch.status?.vm ?? {}
  if (bootTime === undefined || createTime === undefined) return minimumBilledSeconds
  return Math.max(0, Math.ceil(minimumBilledSeconds - secondsBetween(bootTime, createTime)))
}

/** Part of a Launch on which it depends whose idle VM it may take over. */
export type Taker = Pick<StoredLaunch, "metadata" | "spec">

/** Time at which a Launch can take over the VM of another one. `soon`: once it is clean. */
export type Availability = { is: "now" } | { is: "soon" } | { is: "never"; why: string }

/** Time for which a job waits until a VM is clean, instead of a new one, seconds. */
const SOON_SECONDS = 20

/** Returns when a Launch can take over the VM of another one. */
export function availabilityOf(taker: Taker, holder: StoredLaunch, now: Date): Availability {
  const never = (why: string): Availability => ({ is: "never", why })
  const idleness = idlenessOf(holder)
  if (holder.status?.handedTo !== undefined) return never("another job took it first")
  if (idleness.is === "none") return never(idleness.why ?? "it has ended")
  if (idleness.is === "debug") return never(whyNeverIdle(holder) ?? "it is kept for sessions")
  if (!isShared(taker, holder)) return never("it is of another project, connection or key")
  if (holder.status?.vm?.id === undefined) return never("the cloud has not named it yet")
  const left = vmLifetimeOf(holder.spec) - secondsBetween(vmSince(holder), now)
  if (left < taker.spec.lifetimeSeconds) return never(`it powers itself off in ${Math.max(0, Math.floor(left))} s`)
  if (idleness.is === "cleaning")
    return secondsBetween(idleness.since, now) < SOON_SECONDS ? { is: "soon" } : never("it is not clean yet")
  return idleSecondsLeft(idleness, now) > END_SLACK_SECONDS ? { is: "now" } : never("its time is over")
}

/** Returns why a Launch can't take over the VM of another one now; undefined: it can. */
export function whyNotTakeable(taker: Taker, holder: StoredLaunch, now: Date): string | undefined {
  const availability = availabilityOf(taker, holder, now)
  if (availability.is === "never") return availability.why
  return availability.is === "soon" ? "it is not clean yet" : undefined
}

/** Returns true if a Launch may have the VM of another one: of the same project, account and key. */
function isShared({ spec: own }: Taker, holder: StoredLaunch): boolean {
  const { spec } = holder
  return (
    own.run.reuse !== undefined &&
    own.run.reuse.key === spec.run.reuse?.key &&
    own.job.namespace === spec.job.namespace &&
    own.connection === spec.connection &&
    own.account === spec.account &&
    own.root === vmNameOf(holder)
  )
}

/** Returns the VMs among a project's Launches that are idle or about to be, and that no other Launch is about to take over. */
export function keptVms(launches: readonly StoredLaunch[]): StoredLaunch[] {
  const taken = new Set(launches.flatMap((launch) => (isOver(launch) ? [] : (launch.spec.takesOver ?? []))))
  const kept = launches.filter((launch) => isKeptForJobs(launch) && !taken.has(launch.metadata.name))
  // The latest idle ones first: the others come to the end of their time, if one VM is enough.
  return kept.sort((a, b) => (idleSinceOf(a) < idleSinceOf(b) ? 1 : -1))
}

/** Returns the time since which a VM is idle; empty before. */
function idleSinceOf({ status }: StoredLaunch): string {
  return status?.agent?.idleTime ?? ""
}
