import { largestDiskGib } from "../../clouds/machines/disk.ts"
import { defined } from "../../core/apis/defined.ts"
import { containerMemoryGib } from "../../core/apis/memory.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import type { Catalogue } from "./catalogue.ts"
import { highestPrices } from "./ceiling.ts"
import type { RouteContext } from "./context.ts"
import { ActiveCooldowns, CooldownCounter, type CooldownTally, type LaunchAccount, serves } from "./cooldown.ts"
import { Costs, type OfferCost } from "./cost.ts"
import { BIT, CRITERIA, type Criterion, unmetByRow } from "./fit.ts"
import type { Requirements } from "./requirements.ts"
import { gpusAt, leastUsd, mostUsd } from "./scan.ts"
import type { Machine } from "./table.ts"

/** Offers for a job that gives up one requirement and keeps all others. */
export interface Alternative {
  criterion: Criterion
  /** Number of these offers, and the cheapest of them an hour. */
  offers: number
  cheapest: Offer
  /** For `region`: the macro-region of that offer, if it has one; only offers in it count. */
  where?: string
  /** For sizes: the largest size; only offers of that size count. */
  most?: number
}

/** The offer that comes nearest to fitting when none fails by just one requirement. */
export interface NearestMiss {
  offer: Offer
  unmet: readonly Criterion[]
}

/** Amounts that one offer takes from caps. */
export interface OfferNeeds {
  gpus: number
  hourlyUsd: number
  expectedUsd: number
  mostUsd: number
}

/** Reasons for which there is no placement. Of each offer that fits, the first obstacle counts: no account, cooldown, caps. */
export interface Shortfall {
  /** Offers that meet every requirement. */
  fitting: number
  /** Number of offers that each requirement excludes; one offer may fail by several. */
  excluded: ReadonlyMap<Criterion, number>
  /** In the order of RELAXED; none when something fits, or when every offer fails by several requirements. */
  alternatives: readonly Alternative[]
  nearestMiss?: NearestMiss
  /** Clouds with fitting offers for which the project has no account. */
  unconnected: readonly string[]
  /** Fitting, payable offers that are unavailable now. */
  cooldowns: CooldownTally
  /**
   * Fitting, payable, available offers that exceed a cap. Of these the lowest price with disk and address an hour, the
   * lowest expected cost, and the least that one can cost at most; and the fewest GPUs. `least`: the offer
   * with the lowest price an hour.
   */
  overCaps: {
    offers: number
    least?: OfferNeeds
    fewestGpus?: number
    cheapestHourlyUsd?: number
    cheapestUsd?: number
    cheapestMostUsd?: number
  }
  /** Fitting, payable, available offers whose shortest time costs more than is left of the job's budget. */
  overBudget: { offers: number; cheapestUsd?: number }
}

/** Counts why no offer can be taken. Looks at every offer: some milliseconds for a hundred thousand. */
export function surveyShortfall(requirements: Requirements, catalogue: Catalogue, context: RouteContext): Shortfall {
  const unmet = unmetByRow(requirements, catalogue)
  const tally = tallyOf(catalogue, unmet)
  const fitting = tally.counts[0] ?? 0
  const alternatives = fitting > 0 ? [] : alternativesOf(catalogue, unmet, tally)
  const miss = fitting > 0 || alternatives.length > 0 ? undefined : nearestMiss(catalogue, tally)
  return {
    fitting,
    excluded: excludedBy(tally),
    alternatives,
    ...defined({ nearestMiss: miss }),
    ...obstaclesOf(catalogue, unmet, { context, maxHourlyPriceUsd: requirements.maxHourlyPriceUsd }),
  }
}

/** By combination of unmet criteria: the number of offers, and the row of the cheapest an hour (-1: none). */
interface Tally {
  counts: Uint32Array
  cheapest: Int32Array
}

/** @param unmet by row, the criteria that the offer fails */
function tallyOf(catalogue: Catalogue, unmet: Uint16Array): Tally {
  const counts = new Uint32Array(1 << CRITERIA.length)
  const cheapest = new Int32Array(1 << CRITERIA.length).fill(-1)
  const { hourlyPriceUsd } = catalogue.table
  for (let row = 0; row < unmet.length; row++) {
    const mask = unmet[row] as number
    const first = cheapest[mask] as number
    counts[mask] = (counts[mask] as number) + 1
    if (first !== -1 && (hourlyPriceUsd[row] as number) > (hourlyPriceUsd[first] as number)) continue
    if (first === -1 || catalogue.compare(row, first) < 0) cheapest[mask] = row
  }
  return { counts, cheapest }
}

function excludedBy({ counts }: Tally): Map<Criterion, number> {
  const excluded = new Map<Criterion, number>()
  for (const criterion of CRITERIA) {
    const count = counts.reduce((sum, offers, mask) => (mask & BIT[criterion] ? sum + offers : sum), 0)
    if (count > 0) excluded.set(criterion, count)
  }
  return excluded
}

/** Criteria in the order in which people give them up: where and how to buy, before what to buy. */
const RELAXED: readonly Criterion[] = [
  "region",
  "cloud",
  "provisioning",
  "architecture",
  "maxHourlyPriceUsd",
  "gpu.count",
  "gpu.vram",
  "cpu",
  "memory",
  "disk",
  "gpu",
]

function alternativesOf(catalogue: Catalogue, unmet: Uint16Array, { cheapest }: Tally): Alternative[] {
  return RELAXED.flatMap((criterion) => {
    const first = cheapest[BIT[criterion]] ?? -1
    return first < 0 ? [] : alternative(criterion, first, catalogue, unmet)
  })
}

/**
 * Returns the alternative among the offers that fail by one criterion only: by region those of one macro-region, by size
 * the largest.
 * @param first the cheapest of these offers
 */
function alternative(criterion: Criterion, first: number, catalogue: Catalogue, unmet: Uint16Array): Alternative {
  const { machines, machine } = catalogue.table
  const where = criterion === "region" ? macroRegionAt(first, catalogue) : undefined
  const isCounted = (row: number) =>
    unmet[row] === BIT[criterion] && (where === undefined || macroRegionAt(row, catalogue) === where)
  const sizeOf = SIZES[criterion]
  let cheapest = first
  let offers = 0
  let most = 0
  for (let row = 0; row < unmet.length; row++) {
    if (!isCounted(row)) continue
    const size = sizeOf?.(machines[machine[row] as number] as Machine) ?? 0
    if (size < most) continue
    if (size > most) offers = 0
    if (size > most || catalogue.compare(row, cheapest) < 0) cheapest = row
    most = size
    offers++
  }
  const detail = { ...defined({ where }), ...(sizeOf !== undefined && { most }) }
  return { criterion, offers, cheapest: catalogue.offerAt(cheapest), ...detail }
}

function macroRegionAt(row: number, { table }: Catalogue): string | undefined {
  return table.regions[table.places[table.place[row] ?? -1]?.region ?? -1]?.groups[0]
}

const SIZES: Partial<Record<Criterion, (machine: Machine) => number>> = {
  cpu: ({ cpu }) => cpu,
  memory: containerMemoryGib,
  disk: ({ cloud }) => largestDiskGib(cloud),
  "gpu.count": ({ gpu }) => gpu?.count ?? 0,
  "gpu.vram": ({ gpu }) => (gpu?.count ?? 0) * (gpu?.vramGib ?? 0),
}

/** The offer that fails by the fewest requirements, the cheapest of these. */
function nearestMiss(catalogue: Catalogue, { cheapest }: Tally): NearestMiss | undefined {
  let best = -1
  for (let mask = 1; mask < cheapest.length; mask++) {
    if ((cheapest[mask] ?? -1) < 0) continue
    const fewer = best < 0 ? -1 : criteriaIn(mask).length - criteriaIn(best).length
    if (fewer < 0 || (fewer === 0 && catalogue.compare(cheapest[mask] ?? -1, cheapest[best] ?? -1) < 0)) best = mask
  }
  if (best < 0) return undefined
  return { offer: catalogue.offerAt(cheapest[best] as number), unmet: criteriaIn(best) }
}

function criteriaIn(mask: number): Criterion[] {
  return CRITERIA.filter((criterion) => mask & BIT[criterion])
}

/** Counts what keeps the offers that fit from being taken. */
function obstaclesOf(
  catalogue: Catalogue,
  unmet: Uint16Array,
  { context, maxHourlyPriceUsd }: { context: RouteContext; maxHourlyPriceUsd: number | undefined },
) {
  const { machines, machine } = catalogue.table
  const unconnected = new Set<string>()
  const cooldowns = new CooldownCounter()
  const limits = new OverLimits(catalogue, context, maxHourlyPriceUsd)
  const active = new ActiveCooldowns(context.cooldowns, context.now)
  const launchAccountsOf = machines.map((sold) => context.launchAccounts.filter(({ cloud }) => cloud === sold.cloud))
  const check = (row: number, launchAccounts: readonly LaunchAccount[]): void => {
    const obstacle = active.all.length === 0 ? undefined : active.obstacle(catalogue.offerAt(row), launchAccounts)
    if (obstacle !== undefined) {
      cooldowns.add(obstacle)
      return
    }
    limits.check(row)
  }
  for (let row = 0; row < unmet.length; row++) {
    if (unmet[row] !== 0) continue
    const number = machine[row] as number
    const ofCloud = launchAccountsOf[number] ?? []
    const isAnyRestricted = ofCloud.some(({ regions }) => regions !== undefined)
    const launchAccounts = isAnyRestricted
      ? ofCloud.filter((launchAccount) => serves(launchAccount, catalogue.offerAt(row)))
      : ofCloud
    if (launchAccounts.length > 0) check(row, launchAccounts)
    else unconnected.add(machines[number]?.cloud ?? "")
  }
  return { unconnected: [...unconnected].sort(), cooldowns: cooldowns.tally(), ...limits.found }
}

/** Counts offers that exceed the job's budget or a cap. */
class OverLimits {
  readonly found: Pick<Shortfall, "overCaps" | "overBudget"> = { overCaps: { offers: 0 }, overBudget: { offers: 0 } }
  readonly #catalogue: Catalogue
  readonly #context: RouteContext
  readonly #costs: Costs

  readonly #maxHourlyPriceUsd: number | undefined

  constructor(catalogue: Catalogue, context: RouteContext, maxHourlyPriceUsd: number | undefined) {
    this.#catalogue = catalogue
    this.#maxHourlyPriceUsd = maxHourlyPriceUsd
    this.#context = context
    this.#costs = new Costs(catalogue, context)
  }

  check(row: number): void {
    const { room, budget, strict } = this.#context
    if (Object.keys(room).length === 0 && budget === undefined) return
    const { overCaps, overBudget } = this.found
    const { shapes } = this.#costs.ofMachine(this.#catalogue.table.machine[row] as number)
    const costs = shapes.map((shape) => this.#costs.of(row, shape))
    const least = (usdOf: (cost: OfferCost) => number) => Math.min(...costs.map(usdOf))
    const highest = ({ prices }: OfferCost) =>
      strict === undefined
        ? prices
        : highestPrices(this.#catalogue, row, { prices, maxHourlyPriceUsd: this.#maxHourlyPriceUsd })
    const usd =
      budget === undefined ? 0 : least((cost) => leastUsd(this.#catalogue, row, { prices: highest(cost), budget }))
    if (usd > (budget?.leftUsd ?? 0)) {
      overBudget.offers++
      overBudget.cheapestUsd = Math.min(overBudget.cheapestUsd ?? Infinity, usd)
      return
    }
    const hourlyUsd = least(({ prices }) => sumOfParts(prices))
    const totalUsd = least((cost) => cost.totalUsd)
    const mostOf = (cost: OfferCost) =>
      strict === undefined ? 0 : mostUsd(this.#catalogue, row, { prices: highest(cost), budget, ...strict })
    const atMostUsd = least(mostOf)
    const gpus = gpusAt(this.#catalogue, row)
    const { gpus: most = Infinity, hourlyUsd: perHour = Infinity, monthlyUsd = Infinity, strictUsd = Infinity } = room
    if (gpus <= most && hourlyUsd <= perHour && totalUsd <= monthlyUsd && atMostUsd <= strictUsd) return
    overCaps.offers++
    if (hourlyUsd < (overCaps.least?.hourlyUsd ?? Infinity))
      overCaps.least = { gpus, hourlyUsd, expectedUsd: totalUsd, mostUsd: atMostUsd }
    overCaps.fewestGpus = Math.min(overCaps.fewestGpus ?? Infinity, gpus)
    overCaps.cheapestHourlyUsd = Math.min(overCaps.cheapestHourlyUsd ?? Infinity, hourlyUsd)
    overCaps.cheapestUsd = Math.min(overCaps.cheapestUsd ?? Infinity, totalUsd)
    overCaps.cheapestMostUsd = Math.min(overCaps.cheapestMostUsd ?? Infinity, atMostUsd)
  }
}
