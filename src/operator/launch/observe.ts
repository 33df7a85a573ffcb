import type { CloudAccount, Clouds, Vm } from "../../clouds/cloud.ts"
import { accountOf } from "../../clouds/cloud.ts"
import { pause } from "../../core/apis/backoff.ts"
import { type Clock, secondsBetween, timestamp } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import {
  firstMessageTime,
  type HeartbeatTimes,
  isOver,
  type StoredLaunch,
  withHeartbeat,
} from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { keyOf } from "../../core/apis/meta.ts"
import type { Store } from "../../core/kube/store.ts"
import { vmNameOf } from "../../core/reuse/reuse.ts"
import type { Source } from "../../core/runtime/controller.ts"
import type { InstanceView } from "./decide.ts"
import { HEARTBEAT_DEFAULTS, type HeartbeatSettings } from "./settings.ts"

export interface VmObserverOptions {
  clouds: Clouds
  launches: Store<StoredLaunch>
  /** Heartbeats that are not in the Launches. */
  heartbeatTimes?: HeartbeatTimes | undefined
  /** Id of this installation: only its VMs are listed. */
  installation: string
  clock: Clock
  logger: Logger
  /** Seconds between two lists of an account. Default 10. */
  intervalSeconds?: number
  heartbeats?: HeartbeatSettings
}

interface Tracked {
  /** Monotonic seconds at which this process first knew that the VM exists. */
  since: number
  view: InstanceView
  /** Time at which a list last showed the VM before its end. */
  seenAt?: Date
}

/**
 * Observes the VMs of all followed Launches by one `list` per account, region and round. Requeues exactly the Launches whose
 * VM has changed. A failed list changes nothing. A VM that is not listed counts as not found only if the list began after
 * the cloud's consistency window.
 */
export class VmObserver {
  readonly #options: VmObserverOptions
  readonly #tracked = new Map<string, Tracked>()
  readonly #listing = new Set<string>()
  readonly #handlers = new Set<(key: string) => void>()
  /** By Launch. */
  #heard = new Map<string, Heard>()
  #receiving: ReceivingSince
  /** Time of the last look at the heartbeats. */
  #lookedAt: Date | undefined
  #timedOut = new Set<string>()

  constructor(options: VmObserverOptions) {
    this.#options = options
  }

  /** Returns the VM of a Launch as the last list showed it. */
  view(launchName: string): InstanceView {
    return this.#tracked.get(launchName)?.view ?? { is: "unknown" }
  }

  /** Returns true if the Launch's agent sent no heartbeat for too long. */
  heartbeatTimedOut(launchName: string): boolean {
    return this.#timedOut.has(launchName)
  }

  /** Source of requeued Launches, for a controller. */
  get source(): Source {
    return {
      subscribe: (add) => {
        this.#handlers.add(add)
        return () => this.#handlers.delete(add)
      },
      whenSynced: () => Promise.resolve(),
    }
  }

  /** Polls until the signal is aborted. An account that answers slowly does not delay the others. */
  async run(signal: AbortSignal): Promise<void> {
    const rounds = new Set<Promise<void>>()
    while (!signal.aborted) {
      const round = this.poll().finally(() => rounds.delete(round))
      rounds.add(round)
      await pause(this.#options.clock, this.#options.intervalSeconds ?? 10, signal).catch(() => undefined)
    }
    await Promise.all(rounds)
  }

  /** Lists every account that is not being listed already. Never rejects: failures are logged. */
  async poll(): Promise<void> {
    const launches = this.#options.launches.list()
    this.#checkHeartbeats(launches)
    const accounts = new Map<string, { account: CloudAccount; launches: StoredLaunch[] }>()
    const live = new Set<string>()
    for (const launch of launches) {
      if (!isFollowed(launch)) continue
      live.add(launch.metadata.name)
      this.#track(launch.metadata.name)
      const account = accountOf(launch)
      const key = accountKey(account)
      const group = accounts.get(key)
      if (group === undefined) accounts.set(key, { account, launches: [launch] })
      else group.launches.push(launch)
    }
    for (const name of this.#tracked.keys()) if (!live.has(name)) this.#tracked.delete(name)
    await Promise.all([...accounts].map(([key, group]) => this.#listAccount(key, group.account, group.launches)))
  }

  #track(name: string): void {
    if (this.#tracked.has(name)) return
    this.#tracked.set(name, { since: this.#options.clock.monotonic(), view: { is: "unknown" } })
  }

  #checkHeartbeats(cached: readonly StoredLaunch[]): void {
    const settings = this.#options.heartbeats ?? HEARTBEAT_DEFAULTS
    const now = this.#options.clock.now()
    const heard = new Map<string, Heard>()
    const launches = cached.map((one) => {
      const launch = withHeartbeat(one, this.#options.heartbeatTimes)
      const stored = lastHeartbeat(launch)
      if (stored === undefined) return launch
      const { name } = launch.metadata
      const latest = nextHeard(this.#heard.get(name), stored, now, settings)
      heard.set(name, latest)
      return latest.at === stored ? launch : heardAt(launch, latest.at)
    })
    this.#heard = heard
    // After the sleep of a laptop one agent reports first, and the others are only about to.
    const isGap = this.#lookedAt !== undefined && secondsBetween(this.#lookedAt, now) > settings.receivingSeconds
    this.#lookedAt = now
    this.#receiving = receivingSince(isGap ? undefined : this.#receiving, launches, now, settings)
    const timedOut = timedOutLaunches(launches, this.#receiving, now, settings)
    this.#timedOut = new Set(timedOut.map((launch) => launch.metadata.name))
    for (const launch of timedOut) this.#requeue(launch)
  }

  async #listAccount(key: string, account: CloudAccount, launches: readonly StoredLaunch[]): Promise<void> {
    if (this.#listing.has(key)) return
    this.#listing.add(key)
    try {
      const begunAt = this.#options.clock.monotonic()
      const cloud = await this.#options.clouds.open(account)
      const vms = await cloud.list({ installation: this.#options.installation, region: account.region })
      const byId = new Map(vms.map((vm) => [vm.id, vm]))
      for (const launch of launches) {
        const id = launch.status?.vm?.id
        const vm = id === undefined ? vmOf(launch, vms) : byId.get(id)
        this.#update(launch, vm, begunAt - cloud.consistencySeconds)
      }
    } catch (error) {
      const { cloud, region } = account
      this.#options.logger.warn({ err: error, cloud, region }, "listing the VMs failed: their last known state is kept")
    } finally {
      this.#listing.delete(key)
    }
  }

  /** @param decisiveBefore monotonic seconds: a list must show every existing VM that was known before */
  #update(launch: StoredLaunch, vm: Vm | undefined, decisiveBefore: number): void {
    const tracked = this.#tracked.get(launch.metadata.name)
    if (tracked === undefined) return
    if (vm === undefined && tracked.since > decisiveBefore) return
    if (vm !== undefined && vm.state !== "terminated") tracked.seenAt = this.#options.clock.now()
    const view = viewOf(vm, tracked.seenAt)
    const isNews = relevantPart(view) !== relevantPart(tracked.view)
    tracked.view = view
    if (isNews) this.#requeue(launch)
  }

  #requeue(launch: StoredLaunch): void {
    for (const add of this.#handlers) add(keyOf(launch))
  }
}

/**
 * Returns true for a Launch that has a VM for certain: its creation is recorded, or the VM has sent a message. Lists
 * show what became of it.
 */
export function isFollowed(launch: StoredLaunch): boolean {
  const { status } = launch
  return !isOver(launch) && (status?.vm?.id !== undefined || firstMessageTime(status) !== undefined)
}

/** Returns the VM of a Launch whose VM's id is not recorded. An ended one counts only if there is no other. */
function vmOf(launch: StoredLaunch, vms: readonly Vm[]): Vm | undefined {
  const own = vms.filter((vm) => vm.launch === vmNameOf(launch))
  return own.find(({ state }) => state !== "terminated") ?? own[0]
}

function viewOf(vm: Vm | undefined, seenAt: Date | undefined): InstanceView {
  if (vm !== undefined) return { is: "found", vm }
  return { is: "notFound", ...defined({ lastSeen: seenAt }) }
}

/** Returns the part of a view whose change requeues the Launch. */
function relevantPart(view: InstanceView): string {
  if (view.is !== "found") return view.is
  const { id, state, ipAddress, preempted, terminationTime } = view.vm
  return JSON.stringify([id, state, ipAddress, preempted, terminationTime])
}

/**
 * Returns the key of an account and region: one list serves all their Launches. Each project that shares an account is
 * listed with its own credentials. So a revoked key affects no other project.
 */
export function accountKey({ cloud, region, account, project, sealedCredentials }: CloudAccount): string {
  const unnamed = account === undefined ? (sealedCredentials ?? "") : ""
  return JSON.stringify([cloud, region, account ?? "", project ?? "", unnamed])
}

/** Time since which the gateway has received heartbeats without a gap; undefined: it receives none now. */
export type ReceivingSince = Date | undefined

/** Returns the time of an agent's last heartbeat; undefined before it has registered. */
function lastHeartbeat(launch: StoredLaunch): Date | undefined {
  const { agent } = launch.status ?? {}
  return agent === undefined ? undefined : new Date(agent.lastHeartbeatTime ?? agent.registrationTime)
}

/** Last heartbeat of an agent: the time that the gateway stored, and the time by this process's clock. */
export interface Heard {
  stored: Date
  at: Date
}

/**
 * Returns when an agent was last heard, by this process's clock. The clock of the gateway may be wrong. Then a changed time
 * says only that there was a heartbeat since the last look, and an unchanged one nothing new.
 */
export function nextHeard(
  before: Heard | undefined,
  stored: Date,
  now: Date,
  { receivingSeconds }: Pick<HeartbeatSettings, "receivingSeconds">,
): Heard {
  if (before?.stored.getTime() === stored.getTime()) return before
  const isPlausible = Math.abs(secondsBetween(stored, now)) <= receivingSeconds
  // At the first look, an old time may be that of an agent that has been silent since.
  const at = isPlausible || (before === undefined && stored < now) ? stored : now
  return { stored, at }
}

/** Returns the Launch with another time of its agent's last heartbeat. */
function heardAt(launch: StoredLaunch, at: Date): StoredLaunch {
  const { status } = launch
  if (status?.agent === undefined) return launch
  return { ...launch, status: { ...status, agent: { ...status.agent, lastHeartbeatTime: timestamp(at) } } }
}

/**
 * Returns since when the gateway has received heartbeats of any Launch. A gap (an outage of the façade, a restart of
 * this process, its sleep) restarts the time. Afterwards every agent has the full timeout again.
 */
export function receivingSince(
  before: ReceivingSince,
  launches: readonly StoredLaunch[],
  now: Date,
  settings: HeartbeatSettings,
): ReceivingSince {
  const isFresh = (time: Date | undefined) =>
    time !== undefined && secondsBetween(time, now) <= settings.receivingSeconds
  return launches.some((launch) => isFresh(lastHeartbeat(launch))) ? (before ?? now) : undefined
}

/**
 * Returns the Launches whose agents sent no heartbeat for the timeout while others did, the oldest heartbeat first.
 * Returns no more than the eviction rate allows. If many agents time out at once, the VMs are not the cause.
 */
export function timedOutLaunches(
  launches: readonly StoredLaunch[],
  receiving: ReceivingSince,
  now: Date,
  settings: HeartbeatSettings,
): StoredLaunch[] {
  if (receiving === undefined) return []
  const watched = launches.filter((launch) => isNeeded(launch) && lastHeartbeat(launch) !== undefined)
  const timedOut = watched.filter((launch) => {
    const last = lastHeartbeat(launch) ?? receiving
    return secondsBetween(last > receiving ? last : receiving, now) >= settings.timeoutSeconds
  })
  const evicted = launches.filter(({ status }) => {
    const loss = status?.loss
    return loss?.reason === "Silent" && secondsBetween(loss.time, now) < settings.timeoutSeconds
  })
  const allowed = Math.max(1, Math.floor(watched.length * settings.evictionRate)) - evicted.length
  return timedOut.sort((a, b) => Number(lastHeartbeat(a)) - Number(lastHeartbeat(b))).slice(0, Math.max(0, allowed))
}

/** Returns true while nothing has ended this VM or requested its end. */
function isNeeded(launch: StoredLaunch): boolean {
  const { status, spec } = launch
  return !isOver(launch) && spec.ended !== true && status?.loss === undefined && status?.agent?.finish === undefined
}
