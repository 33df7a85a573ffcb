import { pause } from "../../apis/backoff.ts"
import type { Clock } from "../../apis/clock.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import { keyOf } from "../../apis/meta.ts"
import type { CloudAccount, Clouds, Vm } from "../../cloud/provider.ts"
import type { Store } from "../../kube/store.ts"
import type { Source } from "../../runtime/controller.ts"
import { accountKey, accountOf } from "./account.ts"
import type { Sighting } from "./decide.ts"
import {
  type ReceivingSince,
  receivingSince,
  SILENCE_DEFAULTS,
  type SilenceSettings,
  silentLaunches,
} from "./silence.ts"

export interface VmObserverOptions {
  clouds: Clouds
  launches: Store<StoredLaunch>
  /** This installation's id: only its VMs are seen. */
  installation: string
  clock: Clock
  logger: Logger
  /** Between two looks at an account. Default 10. */
  intervalSeconds?: number
  silence?: SilenceSettings
}

interface Tracked {
  /** Monotonic seconds when this process first knew that the VM exists. */
  since: number
  sighting: Sighting
  /** When a list showed it last, not yet ended. */
  seenAt?: Date
}

/**
 * Watches the VMs of all live Launches: one `list` per account and region and round, however many they are, and wakes
 * exactly the Launches whose VM has changed. A list that failed changes nothing. A VM that a list doesn't show counts
 * as absent only when the list began after the cloud's consistency window.
 */
export class VmObserver {
  readonly #options: VmObserverOptions
  readonly #tracked = new Map<string, Tracked>()
  readonly #listing = new Set<string>()
  readonly #handlers = new Set<(key: string) => void>()
  #receiving: ReceivingSince
  #silent = new Set<string>()

  constructor(options: VmObserverOptions) {
    this.#options = options
  }

  /** What the last list told of a Launch's VM. */
  sighting(launchName: string): Sighting {
    return this.#tracked.get(launchName)?.sighting ?? { seen: "unknown" }
  }

  /** Whether the Launch's agent has been silent for too long. */
  isSilent(launchName: string): boolean {
    return this.#silent.has(launchName)
  }

  /** Wakes Launches, for a controller. */
  get source(): Source {
    return {
      subscribe: (add) => {
        this.#handlers.add(add)
        return () => this.#handlers.delete(add)
      },
      whenSynced: () => Promise.resolve(),
    }
  }

  /** Looks again and again until the signal; an account that answers slowly doesn't hold up the others. */
  async run(signal: AbortSignal): Promise<void> {
    const rounds = new Set<Promise<void>>()
    while (!signal.aborted) {
      const round = this.poll().finally(() => rounds.delete(round))
      rounds.add(round)
      await pause(this.#options.clock, this.#options.intervalSeconds ?? 10, signal).catch(() => undefined)
    }
    await Promise.all(rounds)
  }

  /** One look at every account that isn't being looked at already. Never rejects: what fails is logged. */
  async poll(): Promise<void> {
    const launches = this.#options.launches.list()
    this.#listen(launches)
    const accounts = new Map<string, { account: CloudAccount; launches: StoredLaunch[] }>()
    const live = new Set<string>()
    for (const launch of launches) {
      if (isOver(launch) || launch.status?.vm?.id === undefined) continue
      live.add(launch.metadata.name)
      this.#track(launch.metadata.name)
      const account = accountOf(launch)
      const key = accountKey(account)
      const group = accounts.get(key)
      if (group === undefined) accounts.set(key, { account, launches: [launch] })
      else group.launches.push(launch)
    }
    for (const name of this.#tracked.keys()) if (!live.has(name)) this.#tracked.delete(name)
    await Promise.all([...accounts].map(([key, group]) => this.#look(key, group.account, group.launches)))
  }

  #track(name: string): Tracked {
    let tracked = this.#tracked.get(name)
    if (tracked === undefined) {
      tracked = { since: this.#options.clock.monotonic(), sighting: { seen: "unknown" } }
      this.#tracked.set(name, tracked)
    }
    return tracked
  }

  #listen(launches: readonly StoredLaunch[]): void {
    const settings = this.#options.silence ?? SILENCE_DEFAULTS
    const now = this.#options.clock.now()
    this.#receiving = receivingSince(this.#receiving, launches, now, settings)
    const silent = silentLaunches(launches, this.#receiving, now, settings)
    this.#silent = new Set(silent.map((launch) => launch.metadata.name))
    for (const launch of silent) this.#wake(launch)
  }

  async #look(key: string, account: CloudAccount, launches: readonly StoredLaunch[]): Promise<void> {
    if (this.#listing.has(key)) return
    this.#listing.add(key)
    try {
      const begunAt = this.#options.clock.monotonic()
      const cloud = await this.#options.clouds.open(account)
      const vms = await cloud.list({ installation: this.#options.installation, region: account.region })
      const byId = new Map(vms.map((vm) => [vm.id, vm]))
      for (const launch of launches) {
        this.#see(launch, byId.get(launch.status?.vm?.id ?? ""), begunAt - cloud.consistencySeconds)
      }
    } catch (error) {
      const { cloud, region } = account
      this.#options.logger.warn({ err: error, cloud, region }, "the VMs could not be listed: nothing is concluded")
    } finally {
      this.#listing.delete(key)
    }
  }

  /** @param decisiveBefore monotonic seconds: VMs known since then must be in the list if they are there */
  #see(launch: StoredLaunch, vm: Vm | undefined, decisiveBefore: number): void {
    const tracked = this.#tracked.get(launch.metadata.name)
    if (tracked === undefined) return
    if (vm === undefined && tracked.since > decisiveBefore) return
    if (vm !== undefined && vm.state !== "terminated") tracked.seenAt = this.#options.clock.now()
    const sighting = sightingOf(vm, tracked.seenAt)
    const isNews = newsOf(sighting) !== newsOf(tracked.sighting)
    tracked.sighting = sighting
    if (isNews) this.#wake(launch)
  }

  #wake(launch: StoredLaunch): void {
    for (const add of this.#handlers) add(keyOf(launch))
  }
}

function sightingOf(vm: Vm | undefined, seenAt: Date | undefined): Sighting {
  if (vm !== undefined) return { seen: "present", vm }
  return { seen: "absent", ...(seenAt !== undefined && { lastSeen: seenAt }) }
}

/** What of a sighting matters; equal ones wake nobody. */
function newsOf(sighting: Sighting): string {
  if (sighting.seen !== "present") return sighting.seen
  const { id, state, ipAddress, preempted, terminationTime } = sighting.vm
  return JSON.stringify([id, state, ipAddress, preempted, terminationTime])
}
