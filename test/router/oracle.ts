import type { Provisioning } from "../../src/apis/job.ts"
import type { Architecture, Offer } from "../../src/apis/offer.ts"

/** What the oracle is asked. Written apart from the router's own types, from the contract. */
export interface Question {
  cpu: number
  memoryGib: number
  /** `models`: names in the catalogue that do, already told apart by the one who asks. */
  gpu?: { models?: readonly string[]; oneCardGib?: number; count?: number; vramGib?: number }
  clouds: readonly string[]
  /** Pairs cloud/region that do; absent: any but GovCloud. */
  places?: ReadonlySet<string>
  architectures: readonly Architecture[]
  provisioning: Provisioning
  maxHourlyPriceUsd?: number
  seconds: number
}

/** One machine with all its prices. */
interface Sold {
  offer: Offer
  prices: { place: string; gov: boolean; usd: number; minimumSeconds: number }[]
}

/**
 * Brute force: every offer is looked at for every question. Offers of one machine lie together, so that what depends
 * on the machine alone is asked once; nothing is sorted, nothing is left out.
 */
export class Oracle {
  readonly #sold: { onDemand: Sold[]; spot: Sold[] }

  constructor(offers: Iterable<Offer>) {
    const byMachine = { onDemand: new Map<string, Sold>(), spot: new Map<string, Sold>() }
    for (const offer of offers) {
      const known = byMachine[offer.provisioning]
      const key = `${offer.cloud}/${offer.instanceType}`
      const sold = known.get(key) ?? { offer, prices: [] }
      known.set(key, sold)
      sold.prices.push({
        place: `${offer.cloud}/${offer.region}`,
        gov: offer.region.startsWith("us-gov-"),
        usd: offer.hourlyPriceUsd,
        minimumSeconds: offer.minimumBilledSeconds,
      })
    }
    this.#sold = { onDemand: [...byMachine.onDemand.values()], spot: [...byMachine.spot.values()] }
  }

  /** The least total price at which the question can be answered, US dollars; undefined: not at all. */
  cheapest(question: Question): number | undefined {
    const { provisioning } = question
    const ways = provisioning === "spotFirst" ? (["spot", "onDemand"] as const) : ([provisioning] as const)
    for (const way of ways) {
      let least = Number.POSITIVE_INFINITY
      for (const { offer, prices } of this.#sold[way]) {
        if (!isMachine(offer, question)) continue
        for (const price of prices) {
          if (question.places === undefined ? price.gov : !question.places.has(price.place)) continue
          if (price.usd > (question.maxHourlyPriceUsd ?? Number.POSITIVE_INFINITY)) continue
          const seconds = question.seconds < price.minimumSeconds ? price.minimumSeconds : question.seconds
          const total = (price.usd * seconds) / 3600
          if (total < least) least = total
        }
      }
      if (least < Number.POSITIVE_INFINITY) return least
    }
    return undefined
  }
}

function isMachine(offer: Offer, { cpu, memoryGib, gpu, clouds, architectures }: Question): boolean {
  if (offer.cpu < cpu || offer.memoryGib < memoryGib) return false
  if (clouds.length > 0 && !clouds.includes(offer.cloud)) return false
  if (architectures.length > 0 && !architectures.includes(offer.architecture)) return false
  if (gpu === undefined) return true
  const has = offer.gpu
  // The contract: NVIDIA only. Others carry their maker's name.
  if (has === undefined || has.model.includes(":")) return false
  if (gpu.models !== undefined && !gpu.models.includes(has.model)) return false
  if (gpu.oneCardGib !== undefined && has.vramGib !== gpu.oneCardGib) return false
  return has.count >= (gpu.count ?? 0) && has.count * has.vramGib >= (gpu.vramGib ?? 0)
}
