import { pause } from "../../apis/backoff.ts"
import { type Clock, secondsBetween } from "../../apis/clock.ts"
import { isOver, LAUNCH, type StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import type { Cloud, CloudAccount, Clouds, Vm } from "../../cloud/provider.ts"
import type { KubeClient } from "../../kube/client.ts"
import { isNotFound } from "../../kube/errors.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { Store } from "../../kube/store.ts"
import { type Fence, NotLeaderError } from "../fence.ts"
import { accountKey, accountOf } from "./account.ts"

const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

export interface SweepOptions {
  client: Pick<KubeClient, "get">
  clouds: Clouds
  launches: Store<StoredLaunch>
  /** Further accounts to look at, beside those of all known Launches. */
  accounts?: () => readonly CloudAccount[]
  systemNamespace: string
  installation: string
  fence: Fence
  clock: Clock
  logger: Logger
  /** Between rounds. Default 300. */
  intervalSeconds?: number
  /** A younger VM is left alone. Default 300. */
  youngSeconds?: number
  /** VMs ended per round, at most. Default 10. */
  capPerRound?: number
  /** Told of each VM that was ended. */
  onSwept?: (vm: Vm, account: CloudAccount) => void
}

interface Stray {
  vm: Vm
  cloud: Cloud
  account: CloudAccount
}

/**
 * Ends VMs of this installation that no current Launch stands for, the last resort against paying for forgotten ones.
 * It never trusts a cache: a VM is ended only when live reads in two rounds in a row have found no current Launch.
 * Nothing follows from a list that failed.
 */
export class Sweep {
  readonly #options: SweepOptions
  /** Ids of VMs that the round before found to be strays. */
  #suspects = new Set<string>()

  constructor(options: SweepOptions) {
    this.#options = options
  }

  /** Sweeps again and again until the signal. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.round().catch((error: unknown) => this.#options.logger.warn({ err: error }, "the sweep failed"))
      await pause(this.#options.clock, this.#options.intervalSeconds ?? 300, signal).catch(() => undefined)
    }
  }

  /** One round over all accounts; returns the VMs that it ended. */
  async round(): Promise<Vm[]> {
    const strays: Stray[] = []
    for (const account of this.#accounts()) strays.push(...(await this.#straysOf(account)))
    const certain = strays.filter(({ vm }) => this.#suspects.has(vm.id))
    this.#suspects = new Set(strays.map(({ vm }) => vm.id))
    const ended: Vm[] = []
    for (const stray of certain.slice(0, this.#options.capPerRound ?? 10)) {
      if (await this.#end(stray)) ended.push(stray.vm)
    }
    return ended
  }

  #accounts(): CloudAccount[] {
    const known = [...this.#options.launches.list().map(accountOf), ...(this.#options.accounts?.() ?? [])]
    return [...new Map(known.map((account) => [accountKey(account), account])).values()]
  }

  async #straysOf(account: CloudAccount): Promise<Stray[]> {
    const { clouds, installation, clock, logger, youngSeconds = 300 } = this.#options
    try {
      const cloud = await clouds.open(account)
      const now = clock.now()
      const strays: Stray[] = []
      for (const vm of await cloud.list({ installation, region: account.region })) {
        if (vm.state === "terminated" || vm.state === "terminating" || vm.installation !== installation) continue
        if (secondsBetween(vm.createTime, now) < youngSeconds || this.#isCached(vm)) continue
        if (await this.#isStray(vm)) strays.push({ vm, cloud, account })
      }
      return strays
    } catch (error) {
      logger.warn({ err: error, cloud: account.cloud, region: account.region }, "an account could not be swept")
      return []
    }
  }

  /** A Launch in the cache needs no live read: only its absence must not be believed. */
  #isCached(vm: Vm): boolean {
    const launch = this.#options.launches.get({ namespace: this.#options.systemNamespace, name: vm.launch })
    return launch !== undefined && standsFor(launch, vm)
  }

  async #isStray(vm: Vm): Promise<boolean> {
    try {
      const ref = { namespace: this.#options.systemNamespace, name: vm.launch }
      return !standsFor(await this.#options.client.get(LAUNCHES, ref), vm)
    } catch (error) {
      if (isNotFound(error)) return true
      throw error
    }
  }

  async #end({ vm, cloud, account }: Stray): Promise<boolean> {
    const { fence, logger, onSwept } = this.#options
    const about = { vm: vm.id, launch: vm.launch, cloud: account.cloud, region: account.region }
    try {
      fence()
      await cloud.terminate({ id: vm.id, launch: vm.launch, region: vm.region }, fence)
      logger.warn(about, "swept a VM that no Launch stands for")
      onSwept?.(vm, account)
      return true
    } catch (error) {
      if (error instanceof NotLeaderError) throw error
      logger.warn({ ...about, err: error }, "a VM that no Launch stands for could not be ended")
      return false
    }
  }
}

/** Whether this VM is wanted by the Launch that it names: one that has another VM wants no second one. */
function standsFor(launch: StoredLaunch, vm: Vm): boolean {
  const id = launch.status?.vm?.id
  return !isOver(launch) && (id === undefined || id === vm.id)
}
