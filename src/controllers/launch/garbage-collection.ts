import { type Clock, secondsBetween } from "../../apis/clock.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import type { Cloud, CloudAccount, Clouds, Vm } from "../../cloud/cloud.ts"
import type { KubeClient } from "../../kube/client.ts"
import { ifFound } from "../../kube/errors.ts"
import type { Store } from "../../kube/store.ts"
import { type Fence, NotLeaderError } from "../fence.ts"
import { inRounds } from "../rounds.ts"
import { accountOf } from "./create.ts"
import { accountKey } from "./observe.ts"
import { type GarbageCollectionSettings, LAUNCHES } from "./options.ts"

export interface GarbageCollectorOptions extends GarbageCollectionSettings {
  client: Pick<KubeClient, "get">
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
}

/**
 * Terminates orphaned VMs, as the last protection from paying for forgotten ones. It never trusts a cache. A VM is
 * terminated only if live reads in two consecutive rounds found no current Launch. A failed list proves nothing.
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

  /** Runs one round over all accounts. Returns the VMs that it terminated. */
  async round(): Promise<Vm[]> {
    const orphans: Orphan[] = []
    for (const account of this.#accounts()) orphans.push(...(await this.#orphansOf(account)))
    const certain = orphans.filter(({ vm }) => this.#suspects.has(vm.id))
    this.#suspects = new Set(orphans.map(({ vm }) => vm.id))
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
        if (secondsBetween(vm.createTime, now) < minAgeSeconds) continue
        if (!(await this.#hasLaunch(vm))) orphans.push({ vm, cloud, account })
      }
      return orphans
    } catch (error) {
      logger.warn({ err: error, cloud: name, region }, "an account could not be checked for orphaned VMs")
      return []
    }
  }

  /** Returns true if a current Launch owns the VM. Only the absence of a Launch needs a live read. */
  async #hasLaunch(vm: Vm): Promise<boolean> {
    const { client, launches, systemNamespace: namespace } = this.#options
    const ref = { namespace, name: vm.launch }
    if (owns(launches.get(ref), vm)) return true
    return owns(await ifFound(client.get(LAUNCHES, ref)), vm)
  }

  async #terminate({ vm, cloud, account }: Orphan): Promise<boolean> {
    const { fence, logger } = this.#options
    const about = { vm: vm.id, launch: vm.launch, cloud: account.cloud, region: account.region }
    try {
      fence()
      await cloud.terminate({ id: vm.id, launch: vm.launch, region: vm.region }, fence)
      logger.warn(about, "terminated an orphaned VM: it has no Launch")
      return true
    } catch (error) {
      if (error instanceof NotLeaderError) throw error
      logger.warn({ ...about, err: error }, "an orphaned VM could not be terminated")
      return false
    }
  }
}

/** Returns true if the Launch is current and does not have another VM. */
function owns(launch: StoredLaunch | undefined, vm: Vm): boolean {
  if (launch === undefined || isOver(launch)) return false
  const id = launch.status?.vm?.id
  return id === undefined || id === vm.id
}
