import { quotaOf, seriesOf } from "../../clouds/machines/machines.ts"
import { type Offer, offerKey } from "../../core/apis/offer.ts"
import type { VmSettings } from "../../core/apis/vm-settings.ts"

/** An account that can pay for a VM: a Ready connection of the job's project, or a cloud that needs none (no `connection`). */
export interface LaunchAccount {
  cloud: string
  connection?: string
  /** The cloud's id of the account, project or subscription: what quotas are granted to. */
  account?: string
  /** Version of the connection's verified credentials. It contains no part of them. */
  credentials?: string
  /** The connection's settings of its VMs. */
  settings?: VmSettings
  /** Only regions in which it may start VMs; absent: all. */
  regions?: readonly string[]
}

/** Returns true if an account may start VMs in the offer's region. */
export function serves({ regions }: LaunchAccount, { region }: Pick<Offer, "region">): boolean {
  return regions === undefined || regions.includes(region)
}

/** Cause of a cooldown, for people. */
export interface CooldownCause {
  /** Number of rejected launches, with who rejected them. Cooldowns of one group are counted together. */
  group: string
  /** The cloud's own code and message of the last rejection. */
  detail?: string
  /** Action that ends the cause. */
  remedy?: string
}

/** Offers that are unavailable for some time after a refusal. Every field that is given must match. */
export interface Cooldown {
  cloud: string
  /** `offerKey` of the offer; absent: whatever the cloud offers. */
  offer?: string
  region?: string
  zone?: string
  /** Series of machine types, as `seriesOf` names it. */
  family?: string
  /** As `quotaOf` names it: several series may share one quota. */
  quota?: string
  instanceType?: string
  /** Types and series, of which an offer must be one. */
  machines?: readonly string[]
  /** Types that stay available. */
  exceptTypes?: readonly string[]
  provisioning?: Offer["provisioning"]
  /** Only machines with GPUs, or only those without. */
  gpu?: boolean
  /** Only machines of at least so many vCPUs: a quota that is too small for one may do for a smaller one. */
  minCpu?: number
  /** Absent: for every account. */
  connection?: string
  account?: string
  until: Date
  cause?: CooldownCause
}

/** Part of the offers and accounts that a cooldown is about. */
export type Scope = Omit<Cooldown, "until" | "cause">

/** Returns true if a cooldown of this scope makes an offer unavailable for an account. */
export function blocks(scope: Scope, offer: Offer, launchAccount: LaunchAccount): boolean {
  return (
    scope.cloud === offer.cloud &&
    isOf(scope, launchAccount) &&
    (scope.region === undefined || scope.region === offer.region) &&
    (scope.zone === undefined || scope.zone === offer.zone) &&
    (scope.instanceType === undefined || scope.instanceType === offer.instanceType) &&
    (scope.provisioning === undefined || scope.provisioning === offer.provisioning) &&
    (scope.minCpu === undefined || scope.minCpu <= offer.cpu) &&
    (scope.gpu === undefined || scope.gpu === (offer.gpu !== undefined)) &&
    (scope.machines === undefined || isOneOf(scope.machines, offer)) &&
    (scope.exceptTypes === undefined || !scope.exceptTypes.includes(offer.instanceType)) &&
    (scope.family === undefined || scope.family === seriesOf(offer.cloud, offer.instanceType)) &&
    (scope.quota === undefined || scope.quota === quotaOf(offer.cloud, offer.instanceType)) &&
    (scope.offer === undefined || scope.offer === offerKey(offer))
  )
}

function isOneOf(machines: readonly string[], { cloud, instanceType }: Offer): boolean {
  return machines.includes(instanceType) || machines.includes(seriesOf(cloud, instanceType))
}

function isOf(scope: Scope, launchAccount: LaunchAccount): boolean {
  return (
    (scope.connection === undefined || scope.connection === launchAccount.connection) &&
    (scope.account === undefined || scope.account === launchAccount.account)
  )
}

/** Returns true if a cooldown makes the whole cloud unavailable for an account. */
export function blocksAccount(scope: Scope, launchAccount: LaunchAccount): boolean {
  return isWhole(scope) && scope.cloud === launchAccount.cloud && isOf(scope, launchAccount)
}

/** Returns true if a scope is about all offers of its cloud. */
export function isWhole({ cloud: _, connection, account, ...narrower }: Scope & Partial<Cooldown>): boolean {
  const { until, cause, ...fields } = narrower
  return Object.values(fields).every((field) => field === undefined)
}

/** The cooldowns that have not ended, found by offer. There may be hundreds. */
export class ActiveCooldowns {
  readonly all: readonly Cooldown[]
  /** By the key of the offer; "": cooldowns that are not of a single offer. */
  readonly #byOffer: ReadonlyMap<string, readonly Cooldown[]>

  constructor(cooldowns: readonly Cooldown[], now: Date) {
    this.all = cooldowns.filter(({ until }) => until > now)
    this.#byOffer = Map.groupBy(this.all, ({ offer = "" }) => offer)
  }

  /** Returns the cooldowns that may be about an offer. */
  about(offer: Offer): readonly Cooldown[] {
    if (this.all.length === 0) return []
    const wide = this.#byOffer.get("") ?? []
    return [...wide, ...(this.#byOffer.get(offerKey(offer)) ?? [])]
  }

  /** Returns the cooldown that keeps an offer from all these accounts for the shortest time; undefined if none does. */
  obstacle(offer: Offer, launchAccounts: readonly LaunchAccount[]): Cooldown | undefined {
    const about = this.about(offer)
    let first: Cooldown | undefined
    for (const launchAccount of launchAccounts) {
      const last = lastToEnd(about.filter((cooldown) => blocks(cooldown, offer, launchAccount)))
      if (last === undefined) return undefined
      if (first === undefined || last.until < first.until) first = last
    }
    return first
  }
}

function lastToEnd(cooldowns: readonly Cooldown[]): Cooldown | undefined {
  return cooldowns.reduce<Cooldown | undefined>(
    (last, cooldown) => (last === undefined || cooldown.until > last.until ? cooldown : last),
    undefined,
  )
}

/** Offers that are in cooldown, counted by the cause. */
export interface CooldownTally {
  offers: number
  /** Time at which the first offer is available again. */
  until?: Date
  /** Causes with their numbers of offers, most offers first. */
  causes?: readonly { cause: CooldownCause; offers: number }[]
}

/** Counts offers that are in cooldown. */
export class CooldownCounter {
  #offers = 0
  #until: Date | undefined
  readonly #causes = new Map<string, { cause: CooldownCause; offers: number }>()

  add({ until, cause }: Cooldown): void {
    this.#offers++
    if (this.#until === undefined || until < this.#until) this.#until = until
    if (cause === undefined) return
    const counted = this.#causes.get(cause.group)
    if (counted === undefined) this.#causes.set(cause.group, { cause, offers: 1 })
    else counted.offers++
  }

  tally(): CooldownTally {
    const causes = [...this.#causes.values()].sort((a, b) => b.offers - a.offers)
    return {
      offers: this.#offers,
      ...(this.#until !== undefined && { until: this.#until }),
      ...(causes.length > 0 && { causes }),
    }
  }
}
