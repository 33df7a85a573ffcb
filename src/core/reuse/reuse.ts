import { secondsBetween } from "../apis/clock.ts"
import { type AgentStatus, bootFailureOf, type FinishReason, isOver, type StoredLaunch } from "../apis/launch.ts"

/**
 * Reuse of a VM by a chain of Launches. The first one creates the VM (the root). Each other one takes it over from its
 * predecessor, whose bill ends at that instant. At any time exactly one Launch of a chain is not over, and holds the VM.
 */

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
  return preemptionNotice === undefined ? undefined : "the cloud takes this VM back"
}

/** Activity of a VM after its job. */
export type Idleness =
  /** `why`: the reason, if its job asked for the reuse of the VM. */
  | { is: "none"; why?: string }
  /** It removes everything of its job, or waits for another one, from a time on for so many seconds at most. RFC 3339. */
  | { is: "cleaning" | "idle"; since: string; seconds: number }

/** Returns what the VM of a Launch does after its job. Pure: it doesn't look at the time. */
export function idlenessOf({ metadata, spec, status }: StoredLaunch): Idleness {
  const { reuse } = spec.run
  const { agent } = status ?? {}
  const finish = agent?.finish
  const isEnding = spec.ended === true || metadata.deletionTimestamp !== undefined
  if (reuse === undefined || finish === undefined || isOver({ ...(status && { status }) })) return { is: "none" }
  if (isEnding) return { is: "none", why: "Berth ends this VM" }
  const unusable = whyNotReusable(agent ?? {})
  if (unusable !== undefined) return { is: "none", why: unusable }
  const broken = status?.loss ?? bootFailureOf(status)
  if (broken !== undefined || agent?.conflictTime !== undefined) return { is: "none", why: "this VM is not trusted" }
  if (agent?.unfit !== undefined) return { is: "none", why: agent.unfit }
  if (agent?.leaveTime !== undefined) return { is: "none", why: `no job took it over within ${reuse.idleSeconds} s` }
  if (agent?.idleTime !== undefined) return { is: "idle", since: agent.idleTime, seconds: reuse.idleSeconds }
  return { is: "cleaning", since: agent?.lastHeartbeatTime ?? finish.time, seconds: CLEAN_SECONDS }
}

/** Returns true if the run of a Launch has ended, and its VM cleans up or waits for another job. */
export function isKept(launch: StoredLaunch): boolean {
  return idlenessOf(launch).is !== "none"
}

/** Returns the seconds for which a VM may still clean up or wait; 0 or less: its time is over. */
export function idleSecondsLeft({ since, seconds }: { since: string; seconds: number }, now: Date): number {
  return seconds + END_SLACK_SECONDS - secondsBetween(since, now)
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
  return Math.max(0, minimumBilledSeconds - secondsBetween(bootTime, createTime))
}

/** Part of a Launch on which it depends whose idle VM it may take over. */
export type Taker = Pick<StoredLaunch, "metadata" | "spec">

/** Returns why a Launch can't take over the VM of another one; undefined: it can. */
export function whyNotTakeable(taker: Taker, holder: StoredLaunch, now: Date): string | undefined {
  const idleness = idlenessOf(holder)
  if (holder.status?.handedTo !== undefined) return "another job took it first"
  if (idleness.is !== "idle") return idleness.is === "none" ? (idleness.why ?? "it has ended") : "it is not clean yet"
  if (idleSecondsLeft(idleness, now) <= END_SLACK_SECONDS) return "its time is over"
  const [own, other] = [taker.spec, holder.spec]
  const isShared =
    own.job.namespace === other.job.namespace &&
    own.connection === other.connection &&
    own.account === other.account &&
    own.run.reuse?.key === other.run.reuse?.key &&
    own.run.reuse !== undefined &&
    own.root === vmNameOf(holder)
  if (!isShared) return "it is of another project, connection or key"
  if (holder.status?.vm?.id === undefined) return "the cloud has not named it yet"
  const left = vmLifetimeOf(other) - secondsBetween(vmSince(holder), now)
  return left < own.lifetimeSeconds ? `it powers itself off in ${Math.max(0, Math.floor(left))} s` : undefined
}
