import { billedUsd, roundUsd } from "../apis/money.ts"
import type { Offer } from "../apis/offer.ts"
import type { Catalogue } from "./catalogue.ts"
import { isModel, isNvidia, parseModel } from "./gpu-models.ts"
import { allowedRegions } from "./regions.ts"
import type { Requirements } from "./requirements.ts"
import { type Payer, rests } from "./rest.ts"
import type { RouteContext } from "./route.ts"
import { egressByRegion } from "./search.ts"
import type { Machine } from "./table.ts"

/** What an offer can fail by, in the order in which people read it. */
export const CRITERIA = [
  "cloud",
  "region",
  "architecture",
  "gpu",
  "gpu.count",
  "gpu.vram",
  "cpu",
  "memory",
  "provisioning",
  "maxHourlyPriceUsd",
] as const
export type Criterion = (typeof CRITERIA)[number]

/** What there is for a job that gives up one requirement and keeps all others. */
export interface Alternative {
  criterion: Criterion
  /** How many offers that would let in, and the cheapest of them an hour. */
  offers: number
  cheapest: Offer
  /** For `region`: the macro-region of that offer, if it has one; only offers in it count. */
  where?: string
  /** For sizes: the most that there is; only offers that have it count. */
  most?: number
}

/** The offer that comes nearest to fitting when none fails by just one requirement. */
export interface NearestMiss {
  offer: Offer
  unmet: readonly Criterion[]
}

/** Why there is no placement. Of each offer that fits, the first obstacle counts: no payer, rest, caps. */
export interface Shortfall {
  /** Offers that meet every requirement. */
  fitting: number
  /** How many offers each requirement excludes; one offer may fail by several. */
  excluded: ReadonlyMap<Criterion, number>
  /** In the order of RELAXED; none when something fits, or when every offer fails by several requirements. */
  alternatives: readonly Alternative[]
  nearestMiss?: NearestMiss
  /** Clouds that have fitting offers, but nobody to pay for them. */
  unconnected: readonly string[]
  /** Fitting, payable offers that rest, and when the first of them wakes. */
  resting: { offers: number; until?: Date }
  /** Fitting, payable, awake offers that exceed a cap, and the cheapest of them. */
  overCaps: { offers: number; cheapestHourlyUsd?: number }
}

/** Looks at every offer: a few milliseconds for a hundred thousand. */
export function surveyShortfall(requirements: Requirements, catalogue: Catalogue, context: RouteContext): Shortfall {
  const failings = failingsOf(requirements, catalogue)
  const tally = tallyOf(failings)
  const fitting = tally.counts[0] ?? 0
  const alternatives = fitting > 0 ? [] : alternativesOf(catalogue, failings, tally)
  const miss = fitting > 0 || alternatives.length > 0 ? undefined : nearestMiss(catalogue, tally)
  return {
    fitting,
    excluded: excludedBy(tally),
    alternatives,
    ...(miss !== undefined && { nearestMiss: miss }),
    ...marketOf(catalogue, failings, context),
  }
}

/**
 * Returns how many offers of these clouds meet every requirement, whether they can be taken now or not. Looks at every
 * offer, as `surveyShortfall` does; equal questions about one catalogue are answered from a cache.
 */
export function countFitting(requirements: Requirements, catalogue: Catalogue, clouds: readonly string[]): number {
  const counts = fittingCounts.get(catalogue) ?? new Map<string, number>()
  fittingCounts.set(catalogue, counts)
  const question = JSON.stringify([requirements, clouds])
  const known = counts.get(question)
  if (known !== undefined) return known
  const failings = failingsOf(requirements, catalogue)
  const isOurs = Uint8Array.from(catalogue.pools, ({ cloud }) => (clouds.includes(cloud) ? 1 : 0))
  let fitting = 0
  for (let rank = 0; rank < failings.length; rank++) {
    if (failings[rank] === 0 && isOurs[catalogue.poolOf[rank] as number] === 1) fitting++
  }
  if (counts.size >= MOST_FITTING_COUNTS) counts.clear()
  counts.set(question, fitting)
  return fitting
}

/** A catalogue never changes, so the counts hold as long as it does. */
const fittingCounts = new WeakMap<Catalogue, Map<string, number>>()
const MOST_FITTING_COUNTS = 1000

/** By offer, the requirements that it fails, as bits in the order of CRITERIA; 0: it fits. */
type Failings = Uint16Array

function bit(criterion: Criterion): number {
  return 1 << CRITERIA.indexOf(criterion)
}

const BITS = Object.fromEntries(CRITERIA.map((criterion) => [criterion, bit(criterion)])) as Record<Criterion, number>

function failingsOf(requirements: Requirements, catalogue: Catalogue): Failings {
  const { clouds, regions, architectures, provisioning, maxHourlyPriceUsd = Infinity } = requirements
  const { machineOf, regionOf, poolOf, priceOf } = catalogue
  const allowed = allowedRegions(catalogue, regions)
  const ofRegion = Uint16Array.from(allowed, (isAllowed) => (isAllowed ? 0 : BITS.region))
  const ofMachine = Uint16Array.from(catalogue.machines, (machine) => sizeFailings(machine, requirements))
  const ofPool = Uint16Array.from(catalogue.pools, ({ cloud, architecture, spot }) => {
    const isSold = provisioning === "spotFirst" || (provisioning === "spot") === spot
    return (
      (clouds.length === 0 || clouds.includes(cloud) ? 0 : BITS.cloud) |
      (architectures.length === 0 || architectures.includes(architecture) ? 0 : BITS.architecture) |
      (isSold ? 0 : BITS.provisioning)
    )
  })
  const failings = new Uint16Array(catalogue.size)
  for (let rank = 0; rank < failings.length; rank++) {
    failings[rank] =
      (ofMachine[machineOf[rank] as number] as number) |
      (ofRegion[regionOf[rank] as number] as number) |
      (ofPool[poolOf[rank] as number] as number) |
      ((priceOf[rank] as number) > maxHourlyPriceUsd ? BITS.maxHourlyPriceUsd : 0)
  }
  return failings
}

function sizeFailings(machine: Machine, { cpu, memoryGib, gpu }: Requirements): number {
  const small = (machine.cpu < cpu ? BITS.cpu : 0) | (machine.memoryGib < memoryGib ? BITS.memory : 0)
  if (gpu === undefined) return small
  const has = machine.gpu !== undefined && isNvidia(machine.gpu.model) ? machine.gpu : undefined
  const { count = 0, vramGib = 0, model = "none" } = has ?? {}
  const wanted = gpu.model === undefined ? undefined : parseModel(gpu.model)
  const isIt = has !== undefined && (wanted === undefined || isModel(wanted, parseModel(model).base, vramGib))
  return (
    small |
    (isIt ? 0 : BITS.gpu) |
    (count < (gpu.count ?? 0) ? BITS["gpu.count"] : 0) |
    (count * vramGib < (gpu.vramGib ?? 0) ? BITS["gpu.vram"] : 0)
  )
}

/** By what offers fail together: how many there are, and the cheapest. */
interface Tally {
  counts: Uint32Array
  cheapest: Int32Array
}

function tallyOf(failings: Failings): Tally {
  const counts = new Uint32Array(1 << CRITERIA.length)
  const cheapest = new Int32Array(1 << CRITERIA.length).fill(-1)
  for (let rank = 0; rank < failings.length; rank++) {
    const mask = failings[rank] as number
    counts[mask] = (counts[mask] as number) + 1
    if (cheapest[mask] === -1) cheapest[mask] = rank
  }
  return { counts, cheapest }
}

function excludedBy({ counts }: Tally): Map<Criterion, number> {
  const excluded = new Map<Criterion, number>()
  for (const criterion of CRITERIA) {
    const count = counts.reduce((sum, offers, mask) => (mask & BITS[criterion] ? sum + offers : sum), 0)
    if (count > 0) excluded.set(criterion, count)
  }
  return excluded
}

/** What people give up first: where and how to buy, before what they buy. */
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
  "gpu",
]

function alternativesOf(catalogue: Catalogue, failings: Failings, { cheapest }: Tally): Alternative[] {
  return RELAXED.flatMap((criterion) => {
    const first = cheapest[BITS[criterion]] ?? -1
    return first < 0 ? [] : alternative(criterion, first, catalogue, failings)
  })
}

/** Of the offers that fail by one requirement only, the first of which is given, those that are worth telling. */
function alternative(criterion: Criterion, first: number, catalogue: Catalogue, failings: Failings): Alternative {
  const { regions, regionOf, machines, machineOf } = catalogue
  const macroOf = (rank: number) => regions[regionOf[rank] ?? -1]?.groups[0]
  const where = criterion === "region" ? macroOf(first) : undefined
  const sizeOf = SIZES[criterion]
  let cheapest = first
  let offers = 0
  let most = 0
  for (let rank = first; rank < failings.length; rank++) {
    if (failings[rank] !== BITS[criterion] || (where !== undefined && macroOf(rank) !== where)) continue
    const size = sizeOf?.(machines[machineOf[rank] as number] as Machine) ?? 0
    if (size < most) continue
    if (size > most) {
      most = size
      cheapest = rank
      offers = 0
    }
    offers++
  }
  const detail = { ...(where !== undefined && { where }), ...(sizeOf !== undefined && { most }) }
  return { criterion, offers, cheapest: catalogue.offerAt(cheapest), ...detail }
}

const SIZES: Partial<Record<Criterion, (machine: Machine) => number>> = {
  cpu: ({ cpu }) => cpu,
  memory: ({ memoryGib }) => memoryGib,
  "gpu.count": ({ gpu }) => gpu?.count ?? 0,
  "gpu.vram": ({ gpu }) => (gpu?.count ?? 0) * (gpu?.vramGib ?? 0),
}

/** The offer that fails by the fewest requirements, the cheapest of these. */
function nearestMiss(catalogue: Catalogue, { cheapest }: Tally): NearestMiss | undefined {
  let best = -1
  for (let mask = 1; mask < cheapest.length; mask++) {
    if ((cheapest[mask] ?? -1) < 0) continue
    const fewer = best < 0 ? -1 : criteriaIn(mask).length - criteriaIn(best).length
    if (fewer < 0 || (fewer === 0 && (cheapest[mask] as number) < (cheapest[best] as number))) best = mask
  }
  if (best < 0) return undefined
  return { offer: catalogue.offerAt(cheapest[best] as number), unmet: criteriaIn(best) }
}

function criteriaIn(mask: number): Criterion[] {
  return CRITERIA.filter((criterion) => mask & BITS[criterion])
}

/** What stands in the way of the offers that fit. */
function marketOf(catalogue: Catalogue, failings: Failings, context: RouteContext) {
  const unconnected = new Set<string>()
  const resting: Shortfall["resting"] = { offers: 0 }
  const overCaps: Shortfall["overCaps"] = { offers: 0 }
  const egress = egressByRegion(catalogue, context.buckets ?? [])
  const active = { ...context, resting: context.resting.filter(({ until }) => until > context.now) }
  const payersOf = catalogue.pools.map((pool) => context.payers.filter(({ cloud }) => cloud === pool.cloud))
  const ask = (rank: number, payers: readonly Payer[]): void => {
    const offer = catalogue.offerAt(rank)
    const wakes = wakingTime(offer, payers, active)
    if (wakes !== undefined) {
      resting.offers++
      if (resting.until === undefined || wakes < resting.until) resting.until = wakes
    } else if (!isUnderCaps(offer, egress[catalogue.regionOf[rank] as number] as number, context)) {
      overCaps.offers++
      overCaps.cheapestHourlyUsd = Math.min(overCaps.cheapestHourlyUsd ?? Infinity, offer.hourlyPriceUsd)
    }
  }
  for (let rank = 0; rank < failings.length; rank++) {
    if (failings[rank] !== 0) continue
    const pool = catalogue.poolOf[rank] as number
    const payers = payersOf[pool] ?? []
    if (payers.length > 0) ask(rank, payers)
    else unconnected.add(catalogue.pools[pool]?.cloud ?? "")
  }
  return { unconnected: [...unconnected].sort(), resting, overCaps }
}

/** When the first payer may ask for an offer again; undefined: one may now. A payer's rest ends with its last one. */
function wakingTime(offer: Offer, payers: readonly Payer[], { resting }: RouteContext): Date | undefined {
  if (resting.length === 0) return undefined
  const times = payers.map((payer) =>
    Math.max(...resting.filter((rest) => rests(rest, offer, payer)).map(({ until }) => until.getTime())),
  )
  const first = Math.min(...times)
  return first === Number.NEGATIVE_INFINITY ? undefined : new Date(first)
}

function isUnderCaps(offer: Offer, trafficUsd: number, { room, expectedSeconds }: RouteContext): boolean {
  const totalUsd = roundUsd(billedUsd(offer.hourlyPriceUsd, expectedSeconds, offer.minimumBilledSeconds) + trafficUsd)
  return offer.hourlyPriceUsd <= (room.hourlyUsd ?? Infinity) && totalUsd <= (room.monthlyUsd ?? Infinity)
}
