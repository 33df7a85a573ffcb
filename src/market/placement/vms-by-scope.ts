import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { offerKey } from "../../core/apis/offer.ts"
import { blocks, type Scope } from "../router/cooldown.ts"
import type { VmEvent } from "./reports.ts"

/** VM that a project or an account got, with the times of its events, milliseconds. -Infinity: not yet. */
interface Vm extends Record<VmEvent, number> {
  launch: StoredLaunch
}

/** VMs by the scopes of cooldowns. There are thousands, so it makes its lists only when they are needed. */
export class VmsByScope {
  readonly #launches: readonly StoredLaunch[]
  readonly #namespace: string
  readonly #now: Date
  /** VMs by offer, machine type, region and cloud. */
  #byKey: ReadonlyMap<string, readonly Vm[]> | undefined
  /** The same, the last first, by event and key. */
  readonly #sorted = new Map<string, readonly Vm[]>()

  /** @param namespace project whose connections the scopes name */
  constructor(launches: readonly StoredLaunch[], namespace: string, now: Date) {
    this.#launches = launches
    this.#namespace = namespace
    this.#now = now
  }

  /**
   * Returns the time of the last VM that a cooldown of this scope would have prevented, in milliseconds; -Infinity without
   * one. VMs before `from` do not count.
   */
  last(scope: Scope, event: VmEvent, from = Number.NEGATIVE_INFINITY): number {
    for (const vm of this.#of(keyFor(scope), event)) {
      if (vm[event] < from) break
      if (this.#isIn(scope, vm.launch)) return vm[event]
    }
    return Number.NEGATIVE_INFINITY
  }

  #of(key: string, event: VmEvent): readonly Vm[] {
    const known = this.#sorted.get(`${event} ${key}`)
    if (known !== undefined) return known
    this.#byKey ??= vmsByKey(this.#launches, this.#now)
    const sorted = (this.#byKey.get(key) ?? [])
      .filter((vm) => vm[event] !== Number.NEGATIVE_INFINITY)
      .sort((a, b) => b[event] - a[event])
    this.#sorted.set(`${event} ${key}`, sorted)
    return sorted
  }

  #isIn(scope: Scope, { spec }: StoredLaunch): boolean {
    const { offer, connection, account, job } = spec
    // Another project's connection of this name is another one.
    if (scope.connection !== undefined && job.namespace !== this.#namespace) return false
    return blocks(scope, offer, { cloud: offer.cloud, ...defined({ connection, account }) })
  }
}

/** Returns the key of the shortest list with all VMs in a scope. */
function keyFor({ cloud, region, instanceType, offer }: Scope): string {
  if (offer !== undefined) return offer
  if (instanceType !== undefined) return `${cloud} type ${instanceType}`
  return region === undefined ? cloud : `${cloud} region ${region}`
}

function vmsByKey(launches: readonly StoredLaunch[], now: Date): Map<string, Vm[]> {
  const byKey = new Map<string, Vm[]>()
  for (const launch of launches) {
    const vm = vmOf(launch, now)
    if (vm === undefined) continue
    const { offer } = launch.spec
    const { cloud, region, instanceType } = offer
    for (const key of [cloud, keyFor({ cloud, region }), keyFor({ cloud, instanceType }), offerKey(offer)]) {
      const list = byKey.get(key)
      if (list === undefined) byKey.set(key, [vm])
      else list.push(vm)
    }
  }
  return byKey
}

function vmOf(launch: StoredLaunch, now: Date): Vm | undefined {
  const { metadata, status } = launch
  const { vm, agent, refusal } = status ?? {}
  if (refusal !== undefined || (vm === undefined && agent === undefined)) return undefined
  // Of a time in the future, which a wrong clock wrote, only the creation of the Launch is certain.
  const known = (time: string | undefined) => {
    if (time === undefined) return Number.NEGATIVE_INFINITY
    return Date.parse(Date.parse(time) <= now.getTime() ? time : metadata.creationTimestamp)
  }
  const registered = known(agent?.registrationTime)
  return { launch, registered, created: Math.max(known(vm?.createTime), registered) }
}
