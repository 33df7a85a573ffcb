import type { Offer } from "../../core/apis/offer.ts"
import type { Catalogue } from "./catalogue.ts"
import type { RouteContext } from "./context.ts"
import {
  ActiveCooldowns,
  blocks,
  blocksAccount,
  CooldownCounter,
  type CooldownTally,
  type LaunchAccount,
  serves,
} from "./cooldown.ts"
import type { OfferCost } from "./cost.ts"
import { shapeKey, type VmShape, vmShape } from "./parts.ts"
import type { Requirements } from "./requirements.ts"
import { scan } from "./scan.ts"
import { type Shortfall, surveyShortfall } from "./shortfall.ts"

export type { Room, RouteContext } from "./context.ts"
export type { Cooldown, CooldownTally, LaunchAccount } from "./cooldown.ts"

/**
 * An offer that can be taken now, with its account and its expected cost in US dollars: machine, disk and address for the
 * expected or the shortest billed time, and the traffic from buckets.
 */
export interface RankedPlacement<P extends LaunchAccount = LaunchAccount> extends OfferCost {
  offer: Offer
  launchAccount: P
}

export interface Routing<P extends LaunchAccount = LaunchAccount> {
  /** The best placements that are available now, best first. */
  placements: RankedPlacement<P>[]
  /** Number of offers in the catalogue. */
  offers: number
  /** Number of offers on the accounts' clouds that meet every requirement, whether they can be taken now or not. */
  fitting: number
  /** Offers in cooldown that would precede the first placement. Absent if there are none, or there is no placement. */
  passedOver?: CooldownTally
  /** Reasons for the lack of placements; absent if there are any. */
  shortfall?: Shortfall
}

const DEFAULT_COUNT = 5

/**
 * Returns the best ways to run a job, the cheapest in total first, and why there is none. Pure and deterministic: ties
 * go to the lower price an hour, the smaller machine, then the name. With `spotFirst`, spot precedes on-demand at any
 * price.
 */
export function route<P extends LaunchAccount>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): Routing<P> {
  const routing = { ...rank(requirements, catalogue, context), offers: catalogue.size }
  if (routing.placements.length > 0) return routing
  return { ...routing, shortfall: surveyShortfall(requirements, catalogue, context) }
}

/** Returns the placements of `route` alone, which takes less time when there are none. */
export function rankPlacements<P extends LaunchAccount>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): RankedPlacement<P>[] {
  return rank(requirements, catalogue, context).placements
}

/** Returns the result of `route` without the shortfall. */
export function rank<P extends LaunchAccount>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): Pick<Routing<P>, "placements" | "fitting" | "passedOver"> {
  const { room, count = DEFAULT_COUNT } = context
  const launchAccounts = new LaunchAccounts(catalogue, context)
  const { best, fitting, passedOver } = scan(requirements, catalogue, {
    ...context,
    clouds: launchAccounts.clouds,
    maxGpus: room.gpus ?? Number.POSITIVE_INFINITY,
    maxHourlyUsd: room.hourlyUsd ?? Number.POSITIVE_INFINITY,
    maxTotalUsd: room.monthlyUsd ?? Number.POSITIVE_INFINITY,
    maxMostUsd: room.strictUsd ?? Number.POSITIVE_INFINITY,
    count,
    isAvailable: (row, shape) => launchAccounts.available(row, shape).length > 0,
  })
  const placements = best.flatMap(({ row, shape, ...cost }) => {
    const offer = catalogue.offerAt(row)
    return launchAccounts
      .available(row, shape)
      .map((launchAccount): RankedPlacement<P> => ({ offer, launchAccount, ...cost }))
  })
  const tally = placements.length === 0 ? undefined : launchAccounts.tally(passedOver)
  return { placements: placements.slice(0, count), fitting, ...(tally && { passedOver: tally }) }
}

/** The accounts that can pay for offers, and what each of them can ask for now. */
class LaunchAccounts<P extends LaunchAccount> {
  readonly clouds: ReadonlySet<string>
  readonly #catalogue: Catalogue
  readonly #all: ReadonlyMap<string, readonly P[]>
  /** By cloud and shape of their VMs, without accounts whose whole cloud is in cooldown. */
  readonly #usable: ReadonlyMap<string, readonly P[]>
  readonly #cooldowns: ActiveCooldowns

  constructor(catalogue: Catalogue, { launchAccounts, cooldowns, now }: RouteContext<P>) {
    const active = new ActiveCooldowns(cooldowns, now)
    const usable = launchAccounts
      .filter((launchAccount) => !active.all.some((cooldown) => blocksAccount(cooldown, launchAccount)))
      .sort(compareAccounts)
    this.clouds = new Set(launchAccounts.map(({ cloud }) => cloud))
    this.#catalogue = catalogue
    this.#cooldowns = active
    this.#all = Map.groupBy(launchAccounts, ({ cloud }) => cloud)
    this.#usable = Map.groupBy(usable, ({ cloud, settings }) => `${cloud} ${shapeKey(vmShape(settings))}`)
  }

  /** Returns the accounts that can take a row's offer now and start VMs of this shape, by the names of their connections. */
  available(row: number, shape: VmShape): readonly P[] {
    const { machines, machine } = this.#catalogue.table
    const key = shapeKey(shape)
    const launchAccounts = this.#usable.get(`${machines[machine[row] ?? -1]?.cloud} ${key}`) ?? []
    const isAnyRestricted = launchAccounts.some(({ regions }) => regions !== undefined)
    if (launchAccounts.length === 0 || (!isAnyRestricted && this.#cooldowns.all.length === 0)) return launchAccounts
    const offer = this.#catalogue.offerAt(row)
    const found = this.#cooldowns.about(offer)
    return launchAccounts.filter(
      (launchAccount) =>
        serves(launchAccount, offer) && !found.some((cooldown) => blocks(cooldown, offer, launchAccount)),
    )
  }

  /** Counts the offers of rows that are in cooldown for every account. Undefined: there are none. */
  tally(rows: readonly number[]): CooldownTally | undefined {
    const counter = new CooldownCounter()
    for (const row of rows) {
      const offer = this.#catalogue.offerAt(row)
      const launchAccounts = (this.#all.get(offer.cloud) ?? []).filter((launchAccount) => serves(launchAccount, offer))
      const obstacle = this.#cooldowns.obstacle(offer, launchAccounts)
      if (obstacle !== undefined) counter.add(obstacle)
    }
    const tally = counter.tally()
    return tally.offers === 0 ? undefined : tally
  }
}

function compareAccounts(a: LaunchAccount, b: LaunchAccount): number {
  const [first = "", second = ""] = [a.connection, b.connection]
  if (first === second) return 0
  return first < second ? -1 : 1
}
