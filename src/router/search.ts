import { billedUsd, roundUsd } from "../apis/money.ts"
import { ANY_MACHINE, ANY_NVIDIA, ANYWHERE, type Catalogue, FIRST_MODEL, type Pool } from "./catalogue.ts"
import { type BucketPlace, egressUsd } from "./egress.ts"
import { isModel, type ModelName, parseModel } from "./gpu-models.ts"
import { type Threshold, thresholdsOf } from "./lists.ts"
import { scopesOf } from "./regions.ts"
import type { Requirements } from "./requirements.ts"
import type { Machine } from "./table.ts"

/** An offer that was found, and what it is expected to cost in all, US dollars. */
export interface Found {
  rank: number
  totalUsd: number
}

/** What is searched by, beside the requirements. */
export interface SearchTerms {
  /** Clouds whose offers somebody can pay for. */
  clouds: ReadonlySet<string>
  /** How long the VM is expected to be used. */
  expectedSeconds: number
  /** US dollars. */
  maxHourlyUsd: number
  maxTotalUsd: number
  buckets: readonly BucketPlace[]
  /** How many offers are wanted. */
  count: number
  /** Whether an offer that fits may be taken now. */
  isAwake(rank: number): boolean
}

/** Some regions of a cloud whose lists are read. */
interface Part {
  scope: number
  /** The least that traffic costs in any of them, US dollars. */
  floorUsd: number
  /** Without the regions that the buckets are in: these are parts of their own. */
  withoutBuckets: boolean
}

/**
 * Finds the offers of the least total cost that fit, cheapest first; ties go to the lower rank. Each list that may
 * hold one is read from its cheapest offer on, until it can hold none that is better than those found.
 */
export class Search {
  readonly #catalogue: Catalogue
  readonly #requirements: Requirements
  readonly #terms: SearchTerms
  readonly #thresholds: readonly Threshold[]
  readonly #model: ModelName | undefined
  /** By region, what traffic costs there, US dollars; undefined: nothing anywhere. */
  readonly #egressUsd: Float64Array | undefined
  readonly #bucketRegions: ReadonlySet<number>

  constructor(catalogue: Catalogue, requirements: Requirements, terms: SearchTerms) {
    const { cpu, memoryGib, gpu } = requirements
    this.#catalogue = catalogue
    this.#requirements = requirements
    this.#terms = terms
    const model = gpu?.model === undefined ? undefined : parseModel(gpu.model)
    this.#model = model
    this.#thresholds = thresholdsOf({ cpu, memoryGib, vramGib: leastVramGib(catalogue, requirements, model) })
    this.#egressUsd = terms.buckets.length === 0 ? undefined : egressByRegion(catalogue, terms.buckets)
    this.#bucketRegions = new Set(terms.buckets.flatMap((bucket) => regionOfBucket(catalogue, bucket)))
  }

  /** The best offers that are sold on demand, or as spot. */
  find(spot: boolean): Found[] {
    const best: Found[] = []
    const kind = kindOf(this.#catalogue, this.#requirements, this.#model)
    if (kind === undefined) return best
    const { clouds, architectures } = this.#requirements
    const parts = new Map<string, readonly Part[]>()
    for (const [index, pool] of this.#catalogue.pools.entries()) {
      if (pool.spot !== spot || !this.#terms.clouds.has(pool.cloud)) continue
      if (clouds.length > 0 && !clouds.includes(pool.cloud)) continue
      if (architectures.length > 0 && !architectures.includes(pool.architecture)) continue
      const own = parts.get(pool.cloud) ?? this.#partsOf(pool.cloud)
      parts.set(pool.cloud, own)
      for (const part of own) this.#read(this.#catalogue.list(index, part.scope, kind), pool, part, best)
    }
    return best
  }

  #partsOf(cloud: string): readonly Part[] {
    const catalogue = this.#catalogue
    const scopes = scopesOf(catalogue, cloud, this.#requirements.regions)
    const egress = this.#egressUsd
    if (egress === undefined) return scopes.map((scope) => ({ scope, floorUsd: 0, withoutBuckets: false }))
    const parts: Part[] = []
    for (const scope of scopes.flatMap((wide) => (wide === ANYWHERE ? catalogue.macroScopes(cloud) : wide))) {
      const regions = catalogue.regionsIn(scope, cloud)
      const near = regions.length === 1 ? regions : regions.filter((region) => this.#bucketRegions.has(region))
      const far = regions.filter((region) => !near.includes(region))
      for (const region of near) {
        parts.push({ scope: catalogue.regionScope(region), floorUsd: egress[region] ?? 0, withoutBuckets: false })
      }
      const floorUsd = Math.min(...far.map((region) => egress[region] ?? 0))
      if (far.length > 0) parts.push({ scope, floorUsd, withoutBuckets: near.length > 0 })
    }
    return parts.sort((a, b) => a.floorUsd - b.floorUsd)
  }

  #read(list: number, pool: Pool, part: Part, best: Found[]): void {
    const { lists, priceOf } = this.#catalogue
    const { expectedSeconds, maxHourlyUsd, maxTotalUsd, count } = this.#terms
    const end = lists.endOf(list)
    let entry = lists.next(lists.startOf(list), end, this.#thresholds)
    for (; entry < end; entry = lists.next(entry + 1, end, this.#thresholds)) {
      const rank = lists.rankAt(entry)
      const price = priceOf[rank] as number
      if (price > maxHourlyUsd) return
      const billed = billedUsd(price, expectedSeconds, pool.minimumBilledSeconds)
      const least = part.floorUsd === 0 ? billed : roundUsd(billed + part.floorUsd)
      // What comes after costs at least as much, and has a higher rank.
      if (least > maxTotalUsd || !isBetter({ rank, totalUsd: least }, best, count)) return
      if (!this.#fits(rank)) continue
      const totalUsd = this.#totalUsd(rank, billed, part)
      if (
        totalUsd <= maxTotalUsd &&
        totalUsd < Number.POSITIVE_INFINITY &&
        isBetter({ rank, totalUsd }, best, count) &&
        this.#terms.isAwake(rank)
      ) {
        insert({ rank, totalUsd }, best, count)
      }
    }
  }

  #fits(rank: number): boolean {
    const { machines, machineOf } = this.#catalogue
    return isLargeEnough(machines[machineOf[rank] as number] as Machine, this.#requirements, this.#model)
  }

  /** With the traffic; Infinity for what another part holds. */
  #totalUsd(rank: number, billedUsd: number, part: Part): number {
    if (this.#egressUsd === undefined) return billedUsd
    const region = this.#catalogue.regionOf[rank] as number
    if (part.withoutBuckets && this.#bucketRegions.has(region)) return Number.POSITIVE_INFINITY
    return roundUsd(billedUsd + (this.#egressUsd[region] as number))
  }
}

function isLargeEnough(machine: Machine, { cpu, memoryGib, gpu }: Requirements, model: ModelName | undefined): boolean {
  if (machine.cpu < cpu || machine.memoryGib < memoryGib) return false
  if (gpu === undefined) return true
  const has = machine.gpu
  if (has === undefined || has.count < (gpu.count ?? 0) || has.count * has.vramGib < (gpu.vramGib ?? 0)) return false
  // The list holds cards of this base only.
  return model === undefined || isModel(model, model.base, has.vramGib)
}

/** What the cards must have together, as far as a count of one model tells. */
function leastVramGib(catalogue: Catalogue, { gpu }: Requirements, model: ModelName | undefined): number {
  const base = model === undefined ? -1 : catalogue.modelBases.indexOf(model.base)
  const ofCards = (gpu?.count ?? 0) * (catalogue.leastCardGib[base] ?? 0)
  return Math.max(gpu?.vramGib ?? 0, ofCards)
}

/** The kind of machines whose lists are read; undefined: nobody sells that model. */
function kindOf(catalogue: Catalogue, { gpu }: Requirements, model: ModelName | undefined): number | undefined {
  if (gpu === undefined) return ANY_MACHINE
  if (model === undefined) return ANY_NVIDIA
  const base = catalogue.modelBases.indexOf(model.base)
  return base < 0 ? undefined : FIRST_MODEL + base
}

/** By region, what it costs to read the buckets from there, US dollars. */
export function egressByRegion(catalogue: Catalogue, buckets: readonly BucketPlace[]): Float64Array {
  const places = buckets.map((bucket) => {
    const [region = -1] = regionOfBucket(catalogue, bucket)
    return { ...bucket, macroRegion: catalogue.regions[region]?.groups[0] }
  })
  return Float64Array.from(catalogue.regions, ({ cloud, name, groups }) => {
    const vm = { cloud, region: name, macroRegion: groups[0] }
    return places.reduce((total, bucket) => total + egressUsd(bucket, vm), 0)
  })
}

function regionOfBucket(catalogue: Catalogue, { cloud, region }: BucketPlace): number[] {
  return catalogue.regionNumbers(region).filter((number) => catalogue.regions[number]?.cloud === cloud)
}

/** Whether a find belongs among the best ones, of which `count` are kept. */
function isBetter(found: Found, best: readonly Found[], count: number): boolean {
  const last = best[count - 1]
  return last === undefined ? best.length < count : compareFinds(found, last) < 0
}

function insert(found: Found, best: Found[], count: number): void {
  let at = best.length
  while (at > 0 && compareFinds(found, best[at - 1] as Found) < 0) at--
  best.splice(at, 0, found)
  if (best.length > count) best.pop()
}

function compareFinds(a: Found, b: Found): number {
  return a.totalUsd - b.totalUsd || a.rank - b.rank
}
