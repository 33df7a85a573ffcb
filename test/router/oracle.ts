import type { Provisioning } from "../../src/core/apis/job.ts"
import type { Architecture, Offer } from "../../src/core/apis/offer.ts"

/** A question to the oracle. Its type is independent of the router's own types, and follows the contract. */
export interface Question {
  cpu: number
  memoryGib: number
  /** `models`: matching names of the catalogue, already resolved by the caller. */
  gpu?: { models?: readonly string[]; oneCardGib?: number; count?: number; vramGib?: number }
  clouds: readonly string[]
  /** Allowed pairs cloud/region; absent: all except GovCloud. */
  places?: ReadonlySet<string>
  architectures: readonly Architecture[]
  provisioning: Provisioning
  maxHourlyPriceUsd?: number
  seconds: number
  /** Disk that the job requires. */
  diskGib: number
}

/** Price of a VM's disk and address on an offer, US dollars an hour. */
export type PriceOfParts = (offer: Offer, diskGib: number) => number

/** One machine with all its prices, column by column. */
interface Sold {
  offer: Offer
  places: number[]
  offers: Offer[]
  /** By disk: the prices of disk and address, once they are asked for. */
  parts: Map<number, number[]>
  usd: number[]
  minimumSeconds: number[]
}

/**
 * Brute force: checks every offer for every question. Offers of one machine are adjacent, so that facts of the machine
 * are checked once. Nothing is sorted or skipped.
 */
export class Oracle {
  readonly #places: string[] = []
  readonly #priceOfParts: PriceOfParts
  readonly #sold: { onDemand: Sold[]; spot: Sold[] }

  constructor(offers: Iterable<Offer>, priceOfParts: PriceOfParts) {
    this.#priceOfParts = priceOfParts
    const byMachine = { onDemand: new Map<string, Sold>(), spot: new Map<string, Sold>() }
    const numbers = new Map<string, number>()
    for (const offer of offers) {
      const known = byMachine[offer.provisioning]
      const key = `${offer.cloud}/${offer.instanceType}`
      const sold: Sold = known.get(key) ?? {
        offer,
        places: [],
        offers: [],
        parts: new Map(),
        usd: [],
        minimumSeconds: [],
      }
      known.set(key, sold)
      const place = `${offer.cloud}/${offer.region}`
      const number = numbers.get(place) ?? this.#places.push(place) - 1
      numbers.set(place, number)
      sold.places.push(number)
      sold.offers.push(offer)
      sold.usd.push(offer.hourlyPriceUsd)
      sold.minimumSeconds.push(offer.minimumBilledSeconds)
    }
    this.#sold = { onDemand: [...byMachine.onDemand.values()], spot: [...byMachine.spot.values()] }
  }

  /** Returns the lowest total price for the question in US dollars, undefined if no offer matches. */
  cheapest(question: Question): number | undefined {
    const { provisioning, places } = question
    const allowed = this.#places.map((place) => places?.has(place) ?? !place.startsWith("aws/us-gov-"))
    const ways = provisioning === "spotFirst" ? (["spot", "onDemand"] as const) : ([provisioning] as const)
    for (const way of ways) {
      let least = Number.POSITIVE_INFINITY
      for (const sold of this.#sold[way]) {
        if (isMachine(sold.offer, question))
          least = Math.min(least, leastOf(sold, allowed, { question, priceOfParts: this.#priceOfParts }))
      }
      if (least < Number.POSITIVE_INFINITY) return least
    }
    return undefined
  }
}

function leastOf(
  { places, offers, parts, usd, minimumSeconds }: Sold,
  allowed: readonly boolean[],
  { question, priceOfParts }: { question: Question; priceOfParts: PriceOfParts },
): number {
  const { seconds, maxHourlyPriceUsd = Number.POSITIVE_INFINITY } = question
  const { diskGib } = question
  const ofParts = parts.get(diskGib) ?? offers.map((offer) => priceOfParts(offer, diskGib))
  parts.set(diskGib, ofParts)
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < usd.length; i++) {
    const hourly = usd[i] as number
    if (!allowed[places[i] as number] || hourly > maxHourlyPriceUsd) continue
    const total = ((hourly + (ofParts[i] as number)) * Math.max(seconds, minimumSeconds[i] as number)) / 3600
    if (total < least) least = total
  }
  return least
}

function isMachine(offer: Offer, { cpu, memoryGib, gpu, clouds, architectures }: Question): boolean {
  if (offer.cpu < cpu) return false
  // The system keeps half a GiB, or an eighth of a small machine.
  const forContainer = offer.memoryGib < 4 ? (offer.memoryGib * 7) / 8 : offer.memoryGib - 0.5
  if (forContainer < memoryGib) return false
  if (clouds.length > 0 && !clouds.includes(offer.cloud)) return false
  if (architectures.length > 0 && !architectures.includes(offer.architecture)) return false
  return gpu === undefined || hasCards(offer, gpu)
}

function hasCards({ gpu: has }: Offer, { models, oneCardGib, count, vramGib }: NonNullable<Question["gpu"]>): boolean {
  // The contract: NVIDIA only. Other models carry their maker's name.
  if (has === undefined || has.model.includes(":")) return false
  if (models !== undefined && !models.includes(has.model)) return false
  if (oneCardGib !== undefined && has.vramGib !== oneCardGib) return false
  return has.count >= (count ?? 0) && has.count * has.vramGib >= (vramGib ?? 0)
}
