import type { Cloud, CloudAccount, Clouds, Vm } from "../../clouds/cloud.ts"
import { accountOf } from "../../clouds/cloud.ts"
import { vmsOf } from "../../clouds/definitions.ts"
import { pause } from "../../core/apis/backoff.ts"
import { type Clock, secondsBetween } from "../../core/apis/clock.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { LABELS } from "../../core/apis/meta.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { ifFound } from "../../core/kube/errors.ts"
import type { Store } from "../../core/kube/store.ts"
import { LAUNCHES } from "../../core/resources.ts"
import { vmNameOf } from "../../core/reuse/reuse.ts"
import { type Fence, NotLeaderError } from "../fence.ts"
import { inRounds } from "../rounds.ts"
import { overSince } from "./decide.ts"
import { accountKey } from "./observe.ts"
import type { GarbageCollectionSettings } from "./settings.ts"

export interface GarbageCollectorOptions extends GarbageCollectionSettings {
  client: Pick<KubeClient, "get" | "list">
  clouds: Clouds
  launches: Store<StoredLaunch>
  systemNamespace: string
  installation: string
  fence: Fence
  clock: Clock
  logger: Logger
}

/** VM of this installation without a current Launch. */
interface Orphan {
  vm: Vm
  cloud: Cloud
  account: CloudAccount
  /** True if its Launch is over. An ended Launch never comes back, so one live read proves that its VM is unneeded. */
  isOver: boolean
}

/**
 * Time from the start of a term in which a request of an earlier leader may arrive, seconds. Linux sends the data of a
 * broken connection again until the first timer after 924.6 s, which is at most 120 s later, also after the process has
 * ended (`tcp_retries2` in https://www.kernel.org/doc/html/latest/networking/ip-sysctl.html).
 */
const LATE_SECONDS = 1080
/** Interval of the rounds in that time, seconds. */
const LATE_INTERVAL_SECONDS = 30

/**
 * Terminates orphaned VMs, as the last protection from paying for forgotten ones. It never trusts a cache. A VM whose
 * Launch is over is terminated at once. A VM without a Launch is terminated only if live reads in two consecutive rounds
 * found none. A failed list proves nothing.
 */
export class GarbageCollector {
  readonly #options: GarbageCollectorOptions
  /** Ids of the VMs that were orphans in the previous round. */
  #suspects = new Set<string>()

  constructor(options: GarbageCollectorOptions) {
    this.#options = options
  }

  /** Runs rounds until the signal is aborted. */
  run(signal: AbortSignal): Promise<void> {
    const { clock, logger, intervalSeconds = 300 } = this.#options
    return inRounds(
      () => this.round(),
      { clock, logger, intervalSeconds, failure: "garbage collection of VMs failed" },
      signal,
    )
  }

  /**
   * Looks more often for the VMs of ended Launches while requests of an earlier leader may arrive, on clouds that create a
   * VM again under the name of a deleted one.
   */
  async runAfterTakeover(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options
    const isOver = new AbortController()
    const end = AbortSignal.any([signal, isOver.signal])
    void pause(clock, LATE_SECONDS, signal).then(
      () => isOver.abort(),
      () => undefined,
    )
    await inRounds(
      () => this.#lateRound(),
      { clock, logger, intervalSeconds: LATE_INTERVAL_SECONDS, failure: "the look for late VMs failed" },
      end,
    )
  }

  async #lateRound(): Promise<void> {
    // Of a cloud without a definition, Berth doesn't know.
    const accounts = this.#accounts().filter(({ cloud }) => vmsOf(cloud)?.createsLate ?? true)
    await this.#terminateAll((await this.#orphans(accounts)).filter(({ isOver }) => isOver))
  }

  /** Runs one round over all accounts. Returns the VMs that it terminated. */
  async round(): Promise<Vm[]> {
    const orphans = await this.#orphans(this.#accounts())
    const certain = orphans.filter(({ vm, isOver }) => isOver || this.#suspects.has(vm.id))
    this.#suspects = new Set(orphans.map(({ vm }) => vm.id))
    return await this.#terminateAll(certain)
  }

  async #orphans(accounts: readonly CloudAccount[]): Promise<Orphan[]> {
    const orphans: Orphan[] = []
    for (const account of accounts) orphans.push(...(await this.#orphansOf(account)))
    return orphans
  }

  async #terminateAll(certain: readonly Orphan[]): Promise<Vm[]> {
    const terminated: Vm[] = []
    for (const orphan of certain.slice(0, this.#options.maxPerRound ?? 10)) {
      if (await this.#terminate(orphan)) terminated.push(orphan.vm)
    }
    return terminated
  }

  #accounts(): CloudAccount[] {
    const known = [...this.#options.launches.list().map(accountOf), ...(this.#options.accounts?.() ?? [])]
    return [...new Map(known.map((account) => [accountKey(account), account])).values()]
  }

  async #orphansOf(account: CloudAccount): Promise<Orphan[]> {
    const { clouds, installation, clock, logger, minAgeSeconds = 300 } = this.#options
    const { cloud: name, region } = account
    try {
      const cloud = await clouds.open(account)
      const now = clock.now()
      const orphans: Orphan[] = []
      for (const vm of await cloud.list({ installation, region })) {
        if (vm.state === "terminated" || vm.state === "terminating" || vm.installation !== installation) continue
        const launch = await this.#launchOf(vm)
        if (owns(launch, vm)) continue
        // A list may still show a VM whose end another list has proved.
        const isEnded = isOverFor(launch, cloud.consistencySeconds, now)
        if (isEnded || secondsBetween(vm.createTime, now) >= minAgeSeconds) {
          orphans.push({ vm, cloud, account, isOver: isEnded })
        }
      }
      return orphans
    } catch (error) {
      logger.warn({ err: error, cloud: name, region }, "an account could not be checked for orphaned VMs")
      return []
    }
  }

  /** Returns the Launch that a VM names, or the one that has taken over the VM: from the cache if it owns the VM, else live. */
  async #launchOf(vm: Vm): Promise<StoredLaunch | undefined> {
    const { client, launches, systemNamespace: namespace } = this.#options
    const ref = { namespace, name: vm.launch }
    const cached = launches.get(ref)
    if (owns(cached, vm)) return cached
    const root = await ifFound(client.get(LAUNCHES, ref))
    if (owns(root, vm)) return root
    const labelSelector = `${LABELS.rootLaunch}=${vm.launch}`
    const { items } = await client.list(LAUNCHES, { namespace, labelSelector })
    return items.find((heir) => owns(heir, vm)) ?? root
  }

  async #terminate({ vm, cloud, account, isOver }: Orphan): Promise<boolean> {
    const { fence, logger } = this.#options
    const about = { vm: vm.id, launch: vm.launch, cloud: account.cloud, region: account.region }
    try {
      fence()
      await cloud.terminate({ id: vm.id, launch: vm.launch, region: vm.region }, fence)
      logger.warn(about, `terminated an orphaned VM: ${isOver ? "its Launch is over" : "it has no Launch"}`)
      return true
    } catch (error) {
      if (error instanceof NotLeaderError) throw error
      logger.warn({ ...about, err: error }, "an orphaned VM could not be terminated")
      return false
    }
  }
}

/** Returns true if the Launch is current and does not have another VM. */
export function owns(launch: StoredLaunch | undefined, vm: Vm): boolean {
  if (launch === undefined || isOver(launch)) return false
  const id = launch.status?.vm?.id
  return vmNameOf(launch) === vm.launch && (id === undefined || id === vm.id)
}

/** Returns true if the Launch has been over for so many seconds. */
function isOverFor(launch: StoredLaunch | undefined, seconds: number, now: Date): boolean {
  return launch !== undefined && isOver(launch) && secondsBetween(overSince(launch), now) >= seconds
}
