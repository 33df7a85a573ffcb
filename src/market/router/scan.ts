import { costOf, type HourlyPrices, sumOfParts } from "../../core/apis/price.ts"
import type { Catalogue } from "./catalogue.ts"
import { ceilingUsd, highestPrices } from "./ceiling.ts"
import type { RouteContext } from "./context.ts"
import { Costs, type CostTerms, type OfferCost, type PricedShape, rankedUsd } from "./cost.ts"
import { findUnmet, selectMachines } from "./fit.ts"
import type { VmShape } from "./parts.ts"
import type { Requirements } from "./requirements.ts"

/** An offer that was found, with the VM that one or more accounts would start on it. */
export interface Found extends OfferCost {
  row: number
  shape: VmShape
}

/** Terms of a scan besides the job's requirements. */
export interface ScanTerms extends CostTerms {
  /** Clouds that an account can pay for. */
  clouds: ReadonlySet<string>
  /** Largest number of GPUs. */
  maxGpus: number
  /** For machine, disk and address, US dollars an hour. */
  maxHourlyUsd: number
  /** US dollars. */
  maxTotalUsd: number
  /** For the most that the VM can cost, US dollars. */
  maxMostUsd: number
  budget?: Budget | undefined
  /** Number of offers to return. */
  count: number
  /**
   * Returns true if an account that starts VMs of this shape can take the offer now. The scan asks only about offers that
   * would be among the best.
   */
  isAvailable(row: number, shape: VmShape): boolean
}

export interface Scanned {
  /** The cheapest offers in total, with lost work, cheapest first. With `spotFirst`, all spot offers precede on-demand ones. */
  best: Found[]
  /** Number of the clouds' offers that meet every requirement, whether they are available and under the caps or not. */
  fitting: number
  /** Rows under the caps that would precede the first of `best` if they were available. All of them if there is none. */
  passedOver: number[]
}

/** Limit of a job's own cost, US dollars, and the shortest time for which it must be enough. */
export type Budget = NonNullable<RouteContext["budget"]>

/** Returns the number of GPUs of a row's machine. */
export function gpusAt({ table }: Catalogue, row: number): number {
  return table.machines[table.machine[row] as number]?.gpu?.count ?? 0
}

/** Returns the cost of the shortest time on a row's offer, US dollars. */
export function leastUsd(
  { table }: Catalogue,
  row: number,
  { prices, budget: { leastSeconds: seconds } }: { prices: HourlyPrices; budget: Budget },
): number {
  const minimumBilledSeconds = table.minimumBilledSeconds[row] as number
  return sumOfParts(costOf(prices, { seconds, minimumBilledSeconds }))
}

/** Returns the most that a VM on a row's offer can cost until its deadline, or until the job's own limit, US dollars. */
export function mostUsd(
  { table }: Catalogue,
  row: number,
  {
    prices,
    budget,
    longestSeconds: seconds,
  }: { prices: HourlyPrices; budget: Budget | undefined; longestSeconds: number },
): number {
  const most = sumOfParts(costOf(prices, { seconds, minimumBilledSeconds: table.minimumBilledSeconds[row] as number }))
  return Math.min(most, budget?.leftUsd ?? Number.POSITIVE_INFINITY)
}

/**
 * Looks at every offer once and keeps the cheapest. A job's total depends on its time and its data, so no order of the
 * offers that is prepared beforehand holds for it.
 */
export function scan(requirements: Requirements, catalogue: Catalogue, terms: ScanTerms): Scanned {
  const { runs, table } = catalogue
  const { machine, place, spot, hourlyPriceUsd } = table
  const costs = new Costs(catalogue, terms)
  const { hours } = costs
  const { byMachine, byPlace, bySpot, maxHourlyPriceUsd } = findUnmet(requirements, catalogue)
  const isPaidFor = selectMachines(terms.clouds, catalogue)
  const limits = { ...terms, maxHourlyPriceUsd: requirements.maxHourlyPriceUsd }
  const onDemandOffers = new Cheapest(catalogue, costs, limits)
  const spotOffers = new Cheapest(catalogue, costs, limits)
  let fitting = 0
  for (let run = 0; run + 1 < runs.length; run++) {
    const first = runs[run] as number
    const end = runs[run + 1] as number
    const type = machine[first] as number
    if (byMachine[type] !== 0 || isPaidFor[type] === 0 || bySpot[spot[first] as number] !== 0) continue
    const cheapest = spot[first] === 1 ? spotOffers : onDemandOffers
    const { atLeastUsd, shapes } = costs.ofMachine(type)
    let { boundUsd } = cheapest
    for (let row = first; row < end; row++) {
      const at = place[row] as number
      const price = hourlyPriceUsd[row] as number
      if (byPlace[at] !== 0 || price > maxHourlyPriceUsd) continue
      fitting++
      const leastUsd = price * hours + (atLeastUsd[at] as number)
      if (leastUsd <= boundUsd) boundUsd = cheapest.add(row, shapes)
    }
  }
  const best = [...spotOffers.sorted(), ...onDemandOffers.sorted()].slice(0, terms.count)
  return { best, fitting, passedOver: passedOverBy(spotOffers, onDemandOffers) }
}

/** Spot precedes on-demand at any price. */
function passedOverBy(spot: Cheapest, onDemand: Cheapest): number[] {
  return spot.isAnyAvailable ? spot.passedOver() : [...spot.passedOver(), ...onDemand.passedOver()]
}

/** Rounding makes a total less than its summands by less than this, US dollars. */
const ROUNDING_USD = 4e-6

/** Terms of the scan, and the limit of the job on the machine's price, US dollars an hour. */
type Limits = ScanTerms & { maxHourlyPriceUsd: number | undefined }

/**
 * The cheapest offers so far that are available and under the cap. `Catalogue.compare` decides ties. They are sorted only
 * when there are a quarter more than wanted, so a scan that wants all takes no longer than a sort.
 */
class Cheapest {
  #found: Found[] = []
  #first: Found | undefined
  /** The last of those that are wanted, when they were last sorted. */
  #last: Found | undefined
  readonly #unavailable: Found[] = []
  /** An offer that costs more before rounding is not among the cheapest. US dollars. */
  boundUsd: number
  readonly #catalogue: Catalogue
  readonly #costs: Costs
  readonly #terms: Limits

  constructor(catalogue: Catalogue, costs: Costs, terms: Limits) {
    this.boundUsd = terms.maxTotalUsd + ROUNDING_USD
    this.#catalogue = catalogue
    this.#costs = costs
    this.#terms = terms
  }

  /** Adds an offer, unless it is unavailable or over a cap, or others are cheaper. Returns the new bound. */
  add(row: number, shapes: readonly PricedShape[]): number {
    for (const priced of shapes) this.#addVm(row, priced.shape, this.#costs.of(row, priced))
    const { count } = this.#terms
    if (this.#found.length > count + count / 4) this.#trim()
    return this.boundUsd
  }

  get isAnyAvailable(): boolean {
    return this.#first !== undefined
  }

  /** Returns the offers that are wanted, cheapest first. */
  sorted(): Found[] {
    this.#trim()
    return this.#found
  }

  #trim(): void {
    const { count } = this.#terms
    this.#found.sort((a, b) => rankedUsd(a) - rankedUsd(b) || this.#catalogue.compare(a.row, b.row))
    this.#found.length = Math.min(this.#found.length, count)
    this.#last = this.#found[count - 1]
    if (this.#last !== undefined) this.boundUsd = Math.min(this.boundUsd, rankedUsd(this.#last) + ROUNDING_USD)
  }

  #addVm(row: number, shape: VmShape, cost: OfferCost): void {
    const { maxGpus, maxHourlyUsd, maxTotalUsd, isAvailable } = this.#terms
    const { totalUsd, prices } = cost
    const isBefore = (other: Found | undefined) => other === undefined || this.#isBefore(row, rankedUsd(cost), other)
    if (!isBefore(this.#last) || totalUsd > maxTotalUsd || sumOfParts(prices) > maxHourlyUsd) return
    if (gpusAt(this.#catalogue, row) > maxGpus || !this.#isUnderStrictLimits(row, prices)) return
    const vm = { row, shape, ...cost, ...this.#ceiling(row) }
    const isFirst = isBefore(this.#first)
    if (isAvailable(row, shape)) {
      this.#found.push(vm)
      if (isFirst) this.#first = vm
    } else if (isFirst) {
      this.#unavailable.push(vm)
    }
  }

  #isUnderStrictLimits(row: number, prices: HourlyPrices): boolean {
    const { budget, strict, maxMostUsd, maxHourlyPriceUsd } = this.#terms
    if (budget === undefined && strict === undefined) return true
    const highest = strict === undefined ? prices : highestPrices(this.#catalogue, row, { prices, maxHourlyPriceUsd })
    if (budget !== undefined && leastUsd(this.#catalogue, row, { prices: highest, budget }) > budget.leftUsd)
      return false
    if (strict === undefined || maxMostUsd === Number.POSITIVE_INFINITY) return true
    return mostUsd(this.#catalogue, row, { prices: highest, budget, ...strict }) <= maxMostUsd
  }

  #ceiling(row: number): Pick<OfferCost, "ceilingUsd"> {
    const { strict, maxHourlyPriceUsd } = this.#terms
    const usd = ceilingUsd(this.#catalogue, row, { isStrict: strict !== undefined, maxHourlyPriceUsd })
    return usd === undefined ? {} : { ceilingUsd: usd }
  }

  /** Returns the unavailable rows that precede all that were found. */
  passedOver(): number[] {
    const first = this.#first
    const before = this.#unavailable.filter(
      (offer) => first === undefined || this.#isBefore(offer.row, rankedUsd(offer), first),
    )
    return [...new Set(before.map(({ row }) => row))]
  }

  #isBefore(row: number, usd: number, other: Found): boolean {
    const otherUsd = rankedUsd(other)
    return usd < otherUsd || (usd === otherUsd && this.#catalogue.compare(row, other.row) < 0)
  }
}
