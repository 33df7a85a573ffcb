import { billedUsd } from "../apis/money.ts"
import { type Offer, offerKey } from "../apis/offer.ts"
import { type Criterion, unmet } from "./fit.ts"
import type { Requirements } from "./requirements.ts"

/** Who can pay for a VM: a Ready connection of the job's project, or a cloud that needs none (no `connection`). */
export interface Payer {
  cloud: string
  connection?: string
}

/** What is not asked for a while, because it refused. Every field that is given must match. */
export interface Rest {
  cloud: string
  /** `offerKey` of the offer; absent: the whole cloud. */
  offer?: string
  /** Absent: whoever pays. */
  connection?: string
  until: Date
}

/** What the project may still spend; absent fields don't bind. US dollars. */
export interface Room {
  hourlyUsd?: number
  monthlyUsd?: number
}

export interface RouteContext {
  payers: readonly Payer[]
  resting: readonly Rest[]
  room: Room
  /** How long the VM is expected to be used, seconds: what the total price is reckoned by. */
  expectedSeconds: number
  now: Date
}

/** An offer that could be taken now, and what it is expected to cost in all. */
export interface RankedPlacement<P extends Payer = Payer> {
  offer: Offer
  payer: P
  totalUsd: number
}

/** The offer that comes nearest to fitting: it fails by the fewest requirements, then is the cheapest. */
export interface NearestMiss {
  offer: Offer
  unmet: readonly Criterion[]
}

export interface Routing<P extends Payer = Payer> {
  /** What can be taken now, best first. */
  placements: RankedPlacement<P>[]
  /** Offers in the catalogue, and those that meet every requirement. */
  offers: number
  fitting: number
  /** How many offers each requirement excludes; one offer may fail by several. */
  excluded: ReadonlyMap<Criterion, number>
  nearestMiss?: NearestMiss
  /** Clouds that have fitting offers, but nobody to pay for them. */
  unconnected: readonly string[]
  /** Fitting, payable offers that rest, and when the first of them wakes. */
  resting: { offers: number; until?: Date }
  /** Fitting, payable, awake offers that exceed a cap, and the cheapest of them. */
  overCaps: { offers: number; cheapestHourlyUsd?: number }
}

/**
 * Every way to run a job, the cheapest in all first. Pure and deterministic: ties go to the smaller machine, then
 * to the name. With `spotFirst`, spot comes before on-demand whatever it costs.
 */
export function route<P extends Payer>(
  requirements: Requirements,
  offers: readonly Offer[],
  context: RouteContext & { payers: readonly P[] },
): Routing<P> {
  const { fitting, excluded, nearestMiss } = sift(requirements, offers)
  const market = new Market<P>(context)
  for (const offer of fitting) market.ask(offer)
  return {
    placements: market.placements.sort((a, b) => compare(a, b, requirements)),
    offers: offers.length,
    fitting: fitting.length,
    excluded,
    ...(nearestMiss !== undefined && { nearestMiss }),
    unconnected: [...market.unconnected].sort(),
    resting: market.resting,
    overCaps: market.overCaps,
  }
}

function sift(requirements: Requirements, offers: readonly Offer[]) {
  const fitting: Offer[] = []
  const excluded = new Map<Criterion, number>()
  let nearestMiss: NearestMiss | undefined
  for (const offer of offers) {
    const failed = unmet(offer, requirements)
    if (failed.length === 0) {
      fitting.push(offer)
      continue
    }
    for (const criterion of failed) excluded.set(criterion, (excluded.get(criterion) ?? 0) + 1)
    if (isNearer({ offer, unmet: failed }, nearestMiss)) nearestMiss = { offer, unmet: failed }
  }
  return { fitting, excluded, nearestMiss }
}

function isNearer(miss: NearestMiss, than: NearestMiss | undefined): boolean {
  if (than === undefined) return true
  if (miss.unmet.length !== than.unmet.length) return miss.unmet.length < than.unmet.length
  if (miss.offer.hourlyPriceUsd !== than.offer.hourlyPriceUsd) {
    return miss.offer.hourlyPriceUsd < than.offer.hourlyPriceUsd
  }
  return offerKey(miss.offer) < offerKey(than.offer)
}

/** Sorts fitting offers into what can be taken now and what stands in the way of the others. */
class Market<P extends Payer> {
  readonly placements: RankedPlacement<P>[] = []
  readonly unconnected = new Set<string>()
  readonly resting: { offers: number; until?: Date } = { offers: 0 }
  readonly overCaps: { offers: number; cheapestHourlyUsd?: number } = { offers: 0 }
  readonly #context: RouteContext
  readonly #payers = new Map<string, P[]>()

  constructor(context: RouteContext & { payers: readonly P[] }) {
    this.#context = context
    for (const payer of context.payers) {
      const known = this.#payers.get(payer.cloud)
      if (known === undefined) this.#payers.set(payer.cloud, [payer])
      else known.push(payer)
    }
  }

  ask(offer: Offer): void {
    const payers = this.#payers.get(offer.cloud)
    if (payers === undefined) {
      this.unconnected.add(offer.cloud)
      return
    }
    const awake = payers.filter((payer) => !this.#rests(offer, payer))
    if (awake.length === 0) {
      this.resting.offers++
      return
    }
    const { expectedSeconds, room } = this.#context
    const totalUsd = billedUsd(offer.hourlyPriceUsd, expectedSeconds, offer.minimumBilledSeconds)
    if (offer.hourlyPriceUsd > (room.hourlyUsd ?? Infinity) || totalUsd > (room.monthlyUsd ?? Infinity)) {
      this.overCaps.offers++
      this.overCaps.cheapestHourlyUsd = Math.min(this.overCaps.cheapestHourlyUsd ?? Infinity, offer.hourlyPriceUsd)
      return
    }
    for (const payer of awake) this.placements.push({ offer, payer, totalUsd })
  }

  #rests(offer: Offer, payer: P): boolean {
    const { resting, now } = this.#context
    if (resting.length === 0) return false
    const key = offerKey(offer)
    const rests = resting.filter(
      (rest) =>
        rest.until > now &&
        rest.cloud === offer.cloud &&
        (rest.offer === undefined || rest.offer === key) &&
        (rest.connection === undefined || rest.connection === payer.connection),
    )
    if (rests.length === 0) return false
    // It wakes when the last of its own rests is over; the market wakes with the first offer that does.
    const wakes = new Date(Math.max(...rests.map((rest) => rest.until.getTime())))
    if (this.resting.until === undefined || wakes < this.resting.until) this.resting.until = wakes
    return true
  }
}

function compare(a: RankedPlacement, b: RankedPlacement, { provisioning }: Requirements): number {
  return (
    (provisioning === "spotFirst"
      ? Number(b.offer.provisioning === "spot") - Number(a.offer.provisioning === "spot")
      : 0) ||
    a.totalUsd - b.totalUsd ||
    a.offer.hourlyPriceUsd - b.offer.hourlyPriceUsd ||
    a.offer.cpu - b.offer.cpu ||
    a.offer.memoryGib - b.offer.memoryGib ||
    (a.offer.gpu?.count ?? 0) - (b.offer.gpu?.count ?? 0) ||
    compareText(nameOf(a), nameOf(b))
  )
}

function nameOf({ offer, payer }: RankedPlacement): string {
  return [
    offer.instanceType,
    offer.cloud,
    offer.region,
    offer.zone ?? "",
    offer.provisioning,
    payer.connection ?? "",
  ].join("/")
}

function compareText(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}
