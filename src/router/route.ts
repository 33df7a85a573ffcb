import { type Offer, offerKey } from "../apis/offer.ts"
import type { Catalogue } from "./catalogue.ts"
import type { RouteContext } from "./context.ts"
import type { Requirements } from "./requirements.ts"
import { type Payer, type Rest, rests, restsWholly } from "./rest.ts"
import { scan } from "./scan.ts"
import { type Shortfall, surveyShortfall } from "./shortfall.ts"

export type { Room, RouteContext } from "./context.ts"
export type { Payer, Rest } from "./rest.ts"

/** An offer that can be taken now, with its payer and its expected total cost. */
export interface RankedPlacement<P extends Payer = Payer> {
  offer: Offer
  payer: P
  /** US dollars: the VM for the expected or the shortest billed time, and the traffic from buckets. */
  totalUsd: number
}

export interface Routing<P extends Payer = Payer> {
  /** The best placements that are available now, best first. */
  placements: RankedPlacement<P>[]
  /** Number of offers in the catalogue. */
  offers: number
  /** Number of offers on the payers' clouds that meet every requirement, whether they can be taken now or not. */
  fitting: number
  /** Reasons for the lack of placements; absent if there are any. */
  shortfall?: Shortfall
}

const DEFAULT_COUNT = 5

/**
 * Returns the best ways to run a job, the cheapest in total first, and why there is none. Pure and deterministic: ties
 * go to the lower price an hour, the smaller machine, then the name. With `spotFirst`, spot precedes on-demand at any
 * price.
 */
export function route<P extends Payer>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): Routing<P> {
  const routing = { ...rank(requirements, catalogue, context), offers: catalogue.size }
  if (routing.placements.length > 0) return routing
  return { ...routing, shortfall: surveyShortfall(requirements, catalogue, context) }
}

/** Returns the placements of `route` alone, which takes less time when there are none. */
export function rankPlacements<P extends Payer>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): RankedPlacement<P>[] {
  return rank(requirements, catalogue, context).placements
}

function rank<P extends Payer>(requirements: Requirements, catalogue: Catalogue, context: RouteContext<P>) {
  const { room, count = DEFAULT_COUNT } = context
  const payers = new Payers(catalogue, context)
  const { best, fitting } = scan(requirements, catalogue, {
    ...context,
    clouds: payers.clouds,
    maxHourlyUsd: room.hourlyUsd ?? Number.POSITIVE_INFINITY,
    maxTotalUsd: room.monthlyUsd ?? Number.POSITIVE_INFINITY,
    count,
    isAvailable: (row) => payers.available(row).length > 0,
  })
  const placements = best.flatMap(({ row, totalUsd }) => {
    const offer = catalogue.offerAt(row)
    return payers.available(row).map((payer): RankedPlacement<P> => ({ offer, payer, totalUsd }))
  })
  return { placements: placements.slice(0, count), fitting }
}

/** The accounts that can pay for offers, and what each of them can ask for now. */
class Payers<P extends Payer> {
  readonly clouds: ReadonlySet<string>
  readonly #catalogue: Catalogue
  /** Without payers for which the whole cloud rests. */
  readonly #byCloud: ReadonlyMap<string, readonly P[]>
  /** By the key of the offer; "": rests that are not of a single offer. There may be hundreds. */
  readonly #restsByOffer: ReadonlyMap<string, readonly Rest[]>

  constructor(catalogue: Catalogue, { payers, resting, now }: RouteContext<P>) {
    const active = resting.filter(({ until }) => until > now)
    const usable = payers.filter((payer) => !active.some((rest) => restsWholly(rest, payer))).sort(comparePayers)
    this.clouds = new Set(payers.map(({ cloud }) => cloud))
    this.#catalogue = catalogue
    this.#byCloud = Map.groupBy(usable, ({ cloud }) => cloud)
    this.#restsByOffer = Map.groupBy(active, ({ offer = "" }) => offer)
  }

  /** Returns who may ask for a row's offer now, by the names of their connections. */
  available(row: number): readonly P[] {
    const { machines, machine } = this.#catalogue.table
    const payers = this.#byCloud.get(machines[machine[row] ?? -1]?.cloud ?? "") ?? []
    if (payers.length === 0 || this.#restsByOffer.size === 0) return payers
    const offer = this.#catalogue.offerAt(row)
    const found = [offerKey(offer), ""].flatMap((key) => this.#restsByOffer.get(key) ?? [])
    return payers.filter((payer) => !found.some((rest) => rests(rest, offer, payer)))
  }
}

function comparePayers(a: Payer, b: Payer): number {
  const [first = "", second = ""] = [a.connection, b.connection]
  if (first === second) return 0
  return first < second ? -1 : 1
}
