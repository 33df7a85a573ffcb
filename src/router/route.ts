import type { Offer } from "../apis/offer.ts"
import type { Catalogue } from "./catalogue.ts"
import type { BucketPlace } from "./egress.ts"
import type { Requirements } from "./requirements.ts"
import { type Payer, type Rest, rests, restsWholly } from "./rest.ts"
import { type Found, Search } from "./search.ts"
import { type Shortfall, surveyShortfall } from "./shortfall.ts"

export type { Payer, Rest } from "./rest.ts"

/** What the project may still spend; absent fields don't bind. US dollars. */
export interface Room {
  hourlyUsd?: number
  monthlyUsd?: number
}

/** All that a placement depends on besides the job and the offers. */
export interface RouteContext<P extends Payer = Payer> {
  payers: readonly P[]
  resting: readonly Rest[]
  room: Room
  /** How long the VM is expected to be used, seconds: what the total price is reckoned by. */
  expectedSeconds: number
  now: Date
  /** Buckets of the job's volumes whose place is known. */
  buckets?: readonly BucketPlace[]
  /** How many placements are wanted; default 5. */
  count?: number
}

/** An offer that could be taken now, and what it is expected to cost in all. */
export interface RankedPlacement<P extends Payer = Payer> {
  offer: Offer
  payer: P
  /** US dollars: the VM for the expected time, or for the shortest that is billed, and the traffic from buckets. */
  totalUsd: number
}

export interface Routing<P extends Payer = Payer> {
  /** The best that can be taken now, best first. */
  placements: RankedPlacement<P>[]
  /** Offers in the catalogue. */
  offers: number
  /** What stands in the way, when there are no placements: reckoned from all offers, unlike placements. */
  shortfall?: Shortfall
}

const DEFAULT_COUNT = 5

/**
 * The best ways to run a job, the cheapest in all first, and what stands in the way when there is none. Pure and
 * deterministic: ties go to the lower price an hour, the smaller machine, then the name. With `spotFirst`, spot comes
 * before on-demand whatever it costs.
 */
export function route<P extends Payer>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): Routing<P> {
  const placements = rankPlacements(requirements, catalogue, context)
  const routing = { placements, offers: catalogue.size }
  if (placements.length > 0) return routing
  return { ...routing, shortfall: surveyShortfall(requirements, catalogue, context) }
}

/** The placements of `route` alone, without a look at what stands in the way. */
export function rankPlacements<P extends Payer>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
): RankedPlacement<P>[] {
  const { count = DEFAULT_COUNT } = context
  const payers = new Payers(catalogue, context)
  const placements: RankedPlacement<P>[] = []
  for (const { rank, totalUsd } of search(requirements, catalogue, context, payers)) {
    const offer = catalogue.offerAt(rank)
    for (const payer of payers.awake(rank)) {
      if (placements.length < count) placements.push({ offer, payer, totalUsd })
    }
  }
  return placements
}

function search<P extends Payer>(
  requirements: Requirements,
  catalogue: Catalogue,
  context: RouteContext<P>,
  payers: Payers<P>,
): Found[] {
  const { expectedSeconds, room, buckets = [], count = DEFAULT_COUNT } = context
  const { provisioning, maxHourlyPriceUsd = Infinity } = requirements
  const terms = {
    clouds: payers.clouds,
    expectedSeconds,
    maxHourlyUsd: Math.min(maxHourlyPriceUsd, room.hourlyUsd ?? Infinity),
    maxTotalUsd: room.monthlyUsd ?? Infinity,
    buckets,
    count,
    isAwake: (rank: number) => payers.awake(rank).length > 0,
  }
  const market = new Search(catalogue, requirements, terms)
  if (provisioning !== "spotFirst") return market.find(provisioning === "spot")
  const spot = market.find(true)
  return spot.length >= count ? spot : [...spot, ...market.find(false)]
}

/** Who pays for what, and for what they may be asked now. */
class Payers<P extends Payer> {
  /** Those with a payer whose whole account doesn't rest. */
  readonly clouds: ReadonlySet<string>
  readonly #catalogue: Catalogue
  readonly #byCloud = new Map<string, P[]>()
  readonly #resting: readonly Rest[]

  constructor(catalogue: Catalogue, { payers, resting, now }: RouteContext<P>) {
    this.#catalogue = catalogue
    this.#resting = resting.filter(({ until }) => until > now)
    for (const payer of payers) {
      if (this.#resting.some((rest) => restsWholly(rest, payer))) continue
      const known = this.#byCloud.get(payer.cloud)
      if (known === undefined) this.#byCloud.set(payer.cloud, [payer])
      else known.push(payer)
    }
    for (const known of this.#byCloud.values()) known.sort(comparePayers)
    this.clouds = new Set(this.#byCloud.keys())
  }

  awake(rank: number): readonly P[] {
    const { machines, machineOf } = this.#catalogue
    const payers = this.#byCloud.get(machines[machineOf[rank] ?? -1]?.cloud ?? "") ?? []
    if (this.#resting.length === 0) return payers
    const offer = this.#catalogue.offerAt(rank)
    return payers.filter((payer) => !this.#resting.some((rest) => rests(rest, offer, payer)))
  }
}

function comparePayers(a: Payer, b: Payer): number {
  const [first = "", second = ""] = [a.connection, b.connection]
  if (first === second) return 0
  return first < second ? -1 : 1
}
