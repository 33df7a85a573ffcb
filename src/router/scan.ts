import type { Catalogue } from "./catalogue.ts"
import { Costs, type CostTerms } from "./cost.ts"
import { unmetOf } from "./fit.ts"
import type { Requirements } from "./requirements.ts"

/** An offer that was found. */
export interface Found {
  row: number
  /** Expected total cost, US dollars. */
  totalUsd: number
}

/** Terms of a scan besides the job's requirements. */
export interface ScanTerms extends CostTerms {
  /** Clouds that an account can pay for. */
  clouds: ReadonlySet<string>
  /** US dollars an hour. */
  maxHourlyUsd: number
  /** US dollars. */
  maxTotalUsd: number
  /** Number of offers to return. */
  count: number
  /** Returns whether an offer can be taken now. The scan asks only about offers that would be among the best. */
  isAvailable(row: number): boolean
}

export interface Scanned {
  /** The cheapest offers in total, cheapest first. With `spotFirst`, all spot offers precede on-demand ones. */
  best: Found[]
  /** Number of the clouds' offers that meet every requirement, whether they are available and under the caps or not. */
  fitting: number
  /** Rows under the caps that would precede the first of `best` if they were available. All of them if there is none. */
  passedOver: number[]
}

/**
 * Looks at every offer once and keeps the cheapest. A job's total depends on its time and its data, so no order of the
 * offers that is prepared beforehand holds for it.
 */
export function scan(requirements: Requirements, catalogue: Catalogue, terms: ScanTerms): Scanned {
  const { runs, table } = catalogue
  const { machines, machine, place, spot, hourlyPriceUsd } = table
  const costs = new Costs(catalogue, terms)
  const { hours, placeUsd } = costs
  const { byMachine, byPlace, bySpot, maxHourlyPriceUsd } = unmetOf(requirements, catalogue)
  const isUsable = machines.map(({ cloud }, index) => byMachine[index] === 0 && terms.clouds.has(cloud))
  const onDemandOffers = new Cheapest(catalogue, costs, terms)
  const spotOffers = new Cheapest(catalogue, costs, terms)
  let fitting = 0
  for (let run = 0; run + 1 < runs.length; run++) {
    const first = runs[run] as number
    const end = runs[run + 1] as number
    if (!isUsable[machine[first] as number] || bySpot[spot[first] as number] !== 0) continue
    const cheapest = spot[first] === 1 ? spotOffers : onDemandOffers
    let { boundUsd } = cheapest
    for (let row = first; row < end; row++) {
      const at = place[row] as number
      const price = hourlyPriceUsd[row] as number
      if (byPlace[at] !== 0 || price > maxHourlyPriceUsd) continue
      fitting++
      const leastUsd = price * hours + (placeUsd[at] as number)
      if (leastUsd <= boundUsd) boundUsd = cheapest.add(row)
    }
  }
  const best = [...spotOffers.found, ...onDemandOffers.found].slice(0, terms.count)
  return { best, fitting, passedOver: passedOverBy(spotOffers, onDemandOffers) }
}

/** Spot precedes on-demand at any price. */
function passedOverBy(spot: Cheapest, onDemand: Cheapest): number[] {
  return spot.found.length > 0 ? spot.passedOver() : [...spot.passedOver(), ...onDemand.passedOver()]
}

/** Rounding makes a total less than its summands by less than this, US dollars. */
const ROUNDING_USD = 2e-6

/** The cheapest offers so far that are available and under the cap, sorted. `Catalogue.compare` decides ties. */
class Cheapest {
  readonly found: Found[] = []
  readonly #unavailable: Found[] = []
  /** An offer that costs more before rounding is not among the cheapest. US dollars. */
  boundUsd: number
  readonly #catalogue: Catalogue
  readonly #costs: Costs
  readonly #terms: ScanTerms

  constructor(catalogue: Catalogue, costs: Costs, terms: ScanTerms) {
    this.boundUsd = terms.maxTotalUsd + ROUNDING_USD
    this.#catalogue = catalogue
    this.#costs = costs
    this.#terms = terms
  }

  /** Adds an offer, unless it is unavailable or over a cap, or others are cheaper. Returns the new bound. */
  add(row: number): number {
    const { found } = this
    const { count, maxHourlyUsd, maxTotalUsd, isAvailable } = this.#terms
    const totalUsd = this.#costs.totalUsd(row)
    const isUnderCaps = totalUsd <= maxTotalUsd && (this.#catalogue.table.hourlyPriceUsd[row] as number) <= maxHourlyUsd
    let at = found.length
    while (at > 0 && this.#isBefore(row, totalUsd, found[at - 1] as Found)) at--
    if (at === count || !isUnderCaps) return this.boundUsd
    if (!isAvailable(row)) {
      if (at === 0) this.#unavailable.push({ row, totalUsd })
      return this.boundUsd
    }
    found.splice(at, 0, { row, totalUsd })
    if (found.length > count) found.pop()
    const last = found[count - 1]
    if (last !== undefined) this.boundUsd = last.totalUsd + ROUNDING_USD
    return this.boundUsd
  }

  /** Returns the unavailable rows that precede all that were found. */
  passedOver(): number[] {
    const [first] = this.found
    const before = this.#unavailable.filter(
      ({ row, totalUsd }) => first === undefined || this.#isBefore(row, totalUsd, first),
    )
    return before.map(({ row }) => row)
  }

  #isBefore(row: number, totalUsd: number, other: Found): boolean {
    return totalUsd < other.totalUsd || (totalUsd === other.totalUsd && this.#catalogue.compare(row, other.row) < 0)
  }
}
