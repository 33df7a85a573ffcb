import type { Architecture, Offer } from "../apis/offer.ts"
import { isNvidia, parseModel } from "./gpu-models.ts"
import { Lists } from "./lists.ts"
import { sortByKey, sortByNumber } from "./sort.ts"
import { type GroupsOf, type Machine, type OfferTable, type Place, type Region, tableOf } from "./table.ts"

/** Offers that are billed alike and run the same images: what one list of prices may hold. */
export interface Pool {
  cloud: string
  spot: boolean
  architecture: Architecture
  minimumBilledSeconds: number
}

/** The scope of lists that hold all regions, but for restricted ones. */
export const ANYWHERE = 0

/** The kinds of machines that lists are kept of; those of one GPU model come after. */
export const ANY_MACHINE = 0
export const ANY_NVIDIA = 1
export const FIRST_MODEL = 2

/**
 * All offers, indexed for routing. An offer's number is its rank in the order of price, then of the smaller machine,
 * then of the name: lists of numbers are sorted by being ascending. Nothing ever changes; a new price list is a new
 * catalogue.
 */
export class Catalogue {
  readonly size: number
  readonly machines: readonly Machine[]
  readonly regions: readonly Region[]
  readonly places: readonly Place[]
  /** By offer: the index of its machine, its place and its region. */
  readonly machineOf: Uint32Array
  readonly placeOf: Uint32Array
  readonly regionOf: Uint32Array
  readonly poolOf: Uint32Array
  /** By offer, US dollars an hour. */
  readonly priceOf: Float64Array
  readonly priceDates: readonly string[]
  /** By offer: the index of its price's day. */
  readonly priceDateOf: Uint16Array
  readonly pools: readonly Pool[]
  /** Groups of regions, such as macro-regions. */
  readonly groups: readonly string[]
  /** Bases of the NVIDIA models that are offered. */
  readonly modelBases: readonly string[]
  /** By base: the memory of its smallest card, GiB. */
  readonly leastCardGib: readonly number[]
  /** By machine: its base's index, or -1 without NVIDIA GPUs. */
  readonly modelOf: Int32Array
  readonly lists: Lists
  readonly #clouds: readonly string[]
  readonly #groupNumbers: ReadonlyMap<string, number>
  readonly #regionNumbers: ReadonlyMap<string, readonly number[]>
  /** By cloud and group: the unrestricted regions. */
  readonly #groupRegions: ReadonlyMap<string, readonly (readonly number[])[]>
  /** By cloud: the scopes of its macro-regions, and of regions without one. */
  readonly #macroScopes: ReadonlyMap<string, readonly number[]>

  constructor(parts: CatalogueParts) {
    this.size = parts.priceOf.length
    this.machines = parts.machines
    this.regions = parts.regions
    this.places = parts.places
    this.machineOf = parts.machineOf
    this.placeOf = parts.placeOf
    this.regionOf = parts.regionOf
    this.poolOf = parts.poolOf
    this.priceOf = parts.priceOf
    this.priceDates = parts.priceDates
    this.priceDateOf = parts.priceDateOf
    this.pools = parts.pools
    this.groups = parts.groups
    this.modelBases = parts.modelBases
    this.leastCardGib = parts.leastCardGib
    this.modelOf = parts.modelOf
    this.lists = parts.lists
    this.#clouds = [...new Set(parts.regions.map(({ cloud }) => cloud))].sort()
    this.#groupNumbers = new Map(parts.groups.map((group, index) => [group, index]))
    this.#regionNumbers = numbersByName(parts.regions)
    this.#groupRegions = new Map(this.#clouds.map((cloud) => [cloud, groupRegions(parts, cloud)]))
    this.#macroScopes = new Map(this.#clouds.map((cloud) => [cloud, this.#macroScopesOf(cloud)]))
  }

  /** The clouds that offer anything, sorted. */
  get clouds(): readonly string[] {
    return this.#clouds
  }

  /** The offer of a rank. @throws RangeError when there is none */
  offerAt(rank: number): Offer {
    const machine = this.machines[this.machineOf[rank] ?? -1]
    const place = this.places[this.placeOf[rank] ?? -1]
    const region = this.regions[place?.region ?? -1]
    const pool = this.pools[this.poolOf[rank] ?? -1]
    if (machine === undefined || place === undefined || region === undefined || pool === undefined) {
      throw new RangeError(`no offer has rank ${rank}: there are ${this.size}`)
    }
    const { cloud, instanceType, architecture, cpu, memoryGib, gpu } = machine
    const priceDate = this.priceDates[this.priceDateOf[rank] ?? 0]
    return {
      cloud,
      region: region.name,
      ...(place.zone !== undefined && { zone: place.zone }),
      instanceType,
      architecture,
      provisioning: pool.spot ? "spot" : "onDemand",
      cpu,
      memoryGib,
      ...(gpu !== undefined && { gpu }),
      hourlyPriceUsd: this.priceOf[rank] as number,
      minimumBilledSeconds: pool.minimumBilledSeconds,
      ...(priceDate && { priceDate }),
    }
  }

  /** Every offer, cheapest an hour first. */
  *offers(): Generator<Offer> {
    for (let rank = 0; rank < this.size; rank++) yield this.offerAt(rank)
  }

  /** The index of a group of regions; undefined for what is no group. */
  groupNumber(name: string): number | undefined {
    return this.#groupNumbers.get(name)
  }

  /** The indexes of the regions of that name, one for each cloud that has one. */
  regionNumbers(name: string): readonly number[] {
    return this.#regionNumbers.get(name) ?? []
  }

  /** The regions of a cloud that are in a group, but for restricted ones. */
  regionsOfGroup(group: number, cloud: string): readonly number[] {
    return this.#groupRegions.get(cloud)?.[group] ?? []
  }

  /** Scopes that together hold each of a cloud's offers once, but for those in restricted regions. */
  macroScopes(cloud: string): readonly number[] {
    return this.#macroScopes.get(cloud) ?? []
  }

  /** The regions of a cloud that a scope of a group or of a region holds. */
  regionsIn(scope: number, cloud: string): readonly number[] {
    const region = scope - 1 - this.groups.length
    return region >= 0 ? [region] : this.regionsOfGroup(scope - 1, cloud)
  }

  /** The scope of a group's lists. */
  groupScope(group: number): number {
    return 1 + group
  }

  /** The scope of a region's lists. */
  regionScope(region: number): number {
    return 1 + this.groups.length + region
  }

  #macroScopesOf(cloud: string): number[] {
    const scopes = this.regions.flatMap(({ cloud: of, groups, restricted }, index) => {
      if (of !== cloud || restricted) return []
      const [macro] = groups
      return macro === undefined ? this.regionScope(index) : this.groupScope(this.groups.indexOf(macro))
    })
    return [...new Set(scopes)]
  }

  /** The list of a pool, a scope and a kind of machines. */
  list(pool: number, scope: number, kind: number): number {
    return listNumber(this, pool, scope, kind)
  }
}

/** What the lists are numbered by. */
type Shape = Pick<Catalogue, "pools" | "groups" | "regions" | "modelBases">

function listNumber({ groups, regions, modelBases }: Shape, pool: number, scope: number, kind: number): number {
  return (pool * (1 + groups.length + regions.length) + scope) * (FIRST_MODEL + modelBases.length) + kind
}

interface CatalogueParts
  extends Pick<
    Catalogue,
    | "machines"
    | "regions"
    | "places"
    | "machineOf"
    | "placeOf"
    | "regionOf"
    | "poolOf"
    | "priceOf"
    | "priceDates"
    | "priceDateOf"
    | "pools"
    | "groups"
    | "modelBases"
    | "leastCardGib"
    | "modelOf"
    | "lists"
  > {}

function groupRegions({ groups, regions }: Pick<Shape, "groups" | "regions">, cloud: string): number[][] {
  return groups.map((group) =>
    regions.flatMap(({ cloud: of, groups: its, restricted }, index) =>
      of === cloud && restricted !== true && its.includes(group) ? index : [],
    ),
  )
}

function numbersByName(regions: readonly Region[]): Map<string, number[]> {
  const numbers = new Map<string, number[]>()
  for (const [index, { name }] of regions.entries()) {
    const known = numbers.get(name)
    if (known === undefined) numbers.set(name, [index])
    else known.push(index)
  }
  return numbers
}

/** The catalogue of offers that are given one by one. */
export function catalogueOf(offers: readonly Offer[], groupsOf?: GroupsOf): Catalogue {
  return buildCatalogue(tableOf(offers, groupsOf))
}

/** Indexes a table at once. */
export function buildCatalogue(table: OfferTable): Catalogue {
  const steps = buildInSteps(table)
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/**
 * Indexes a table step by step, so that a process with other work may see to it between two steps; each takes a few
 * milliseconds for a hundred thousand offers.
 */
export function* buildInSteps(table: OfferTable): Generator<undefined, Catalogue> {
  const order = yield* ranked(table)
  const columns = columnsOf(table, order)
  yield
  const { pools, poolOf } = poolsOf(table, order)
  yield
  const groups = [...new Set(table.regions.flatMap((region) => region.groups))].sort()
  const models = modelsOf(table.machines)
  const { machines, regions, places, priceDates } = table
  const parts = { ...columns, machines, regions, places, priceDates, pools, poolOf, groups, ...models }
  return new Catalogue({ ...parts, lists: yield* fillLists(parts) })
}

/** The rows in the order of price, ties by the smaller machine, then by the name. */
function* ranked({ machines, regions, places, machine, place, spot, hourlyPriceUsd }: OfferTable) {
  const machineRanks = ranksOf(machines, compareMachines)
  const placeRanks = ranksOf(places, (a, b) => comparePlaces(a, b, regions))
  yield
  const size = hourlyPriceUsd.length
  const byMachine = new Uint32Array(size)
  const byPlace = new Uint32Array(size)
  let order: Uint32Array = new Uint32Array(size)
  let isInOrder = true
  for (let row = 0; row < size; row++) {
    byMachine[row] = machineRanks[machine[row] as number] as number
    byPlace[row] = (placeRanks[place[row] as number] as number) * 2 + (spot[row] as number)
    order[row] = row
    const step = row === 0 ? 1 : (byMachine[row] as number) - (byMachine[row - 1] as number)
    isInOrder &&= step > 0 || (step === 0 && (byPlace[row] as number) >= (byPlace[row - 1] as number))
  }
  yield
  // A price list comes in this order.
  if (!isInOrder) {
    order = sortByKey(order, byPlace, places.length * 2)
    yield
    order = sortByKey(order, byMachine, machines.length)
    yield
  }
  order = sortByNumber(order, hourlyPriceUsd)
  yield
  return order
}

function ranksOf<T>(items: readonly T[], compare: (a: T, b: T) => number): Uint32Array {
  const order = items.map((item, index) => ({ item, index })).sort((a, b) => compare(a.item, b.item))
  const ranks = new Uint32Array(items.length)
  for (const [rank, { index }] of order.entries()) ranks[index] = rank
  return ranks
}

function compareMachines(a: Machine, b: Machine): number {
  return (
    a.cpu - b.cpu ||
    a.memoryGib - b.memoryGib ||
    (a.gpu?.count ?? 0) - (b.gpu?.count ?? 0) ||
    compareText(a.instanceType, b.instanceType) ||
    compareText(a.cloud, b.cloud) ||
    // Nobody sells one type in two of these; a list of own offers may say so.
    compareText(a.architecture, b.architecture) ||
    compareText(a.gpu?.model ?? "", b.gpu?.model ?? "") ||
    (a.gpu?.vramGib ?? 0) - (b.gpu?.vramGib ?? 0)
  )
}

function comparePlaces(a: Place, b: Place, regions: readonly Region[]): number {
  return (
    compareText(regions[a.region]?.cloud ?? "", regions[b.region]?.cloud ?? "") ||
    compareText(regions[a.region]?.name ?? "", regions[b.region]?.name ?? "") ||
    compareText(a.zone ?? "", b.zone ?? "")
  )
}

function compareText(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

function columnsOf({ places, machine, place, hourlyPriceUsd, priceDate }: OfferTable, order: Uint32Array) {
  const size = order.length
  const machineOf = new Uint32Array(size)
  const placeOf = new Uint32Array(size)
  const regionOf = new Uint32Array(size)
  const priceOf = new Float64Array(size)
  const priceDateOf = new Uint16Array(size)
  const placeRegions = Uint32Array.from(places, ({ region }) => region)
  for (let rank = 0; rank < size; rank++) {
    const row = order[rank] as number
    machineOf[rank] = machine[row] as number
    placeOf[rank] = place[row] as number
    regionOf[rank] = placeRegions[place[row] as number] as number
    priceOf[rank] = hourlyPriceUsd[row] as number
    priceDateOf[rank] = priceDate[row] as number
  }
  return { machineOf, placeOf, regionOf, priceOf, priceDateOf }
}

function poolsOf({ machines, machine, spot, minimumBilledSeconds }: OfferTable, order: Uint32Array) {
  const pools: Pool[] = []
  const numbers = new Map<string, number>()
  const poolOf = new Uint32Array(order.length)
  // By machine and provisioning, the pool that was found last: the next one is nearly always the same.
  const last = new Int32Array(machines.length * 2).fill(-1)
  for (let rank = 0; rank < order.length; rank++) {
    const row = order[rank] as number
    const way = (machine[row] as number) * 2 + (spot[row] as number)
    const minimum = minimumBilledSeconds[row] as number
    let pool = last[way] as number
    if (pool < 0 || pools[pool]?.minimumBilledSeconds !== minimum) {
      const { cloud, architecture } = machines[machine[row] as number] as Machine
      const found = { cloud, spot: spot[row] === 1, architecture, minimumBilledSeconds: minimum }
      const key = JSON.stringify(found)
      pool = numbers.get(key) ?? pools.push(found) - 1
      numbers.set(key, pool)
      last[way] = pool
    }
    poolOf[rank] = pool
  }
  return { pools, poolOf }
}

function modelsOf(machines: readonly Machine[]) {
  const bases = machines.map(({ gpu }) =>
    gpu !== undefined && gpu.count > 0 && isNvidia(gpu.model) ? parseModel(gpu.model).base : undefined,
  )
  const modelBases = [...new Set(bases)].filter((base) => base !== undefined).sort()
  const modelOf = Int32Array.from(bases, (base) => (base === undefined ? -1 : modelBases.indexOf(base)))
  const leastCardGib = modelBases.map((base) =>
    Math.min(...machines.flatMap(({ gpu }, index) => (gpu !== undefined && bases[index] === base ? gpu.vramGib : []))),
  )
  return { modelBases, leastCardGib, modelOf }
}

/** Puts each offer into the lists of all its scopes and kinds, in ascending order. */
function* fillLists(parts: Omit<CatalogueParts, "lists">): Generator<undefined, Lists> {
  const { poolOf, regionOf, machineOf, modelOf, machines } = parts
  const size = poolOf.length
  const poolStride = listNumber(parts, 1, 0, 0)
  const bases = scopesOf(parts).map((scopes) => Uint32Array.from(scopes, (scope) => listNumber(parts, 0, scope, 0)))
  /** Calls `add` for each list that an offer is in. */
  const visit = (rank: number, add: (list: number, rank: number) => void): void => {
    const model = modelOf[machineOf[rank] as number] as number
    const ofPool = (poolOf[rank] as number) * poolStride
    const scopes = bases[regionOf[rank] as number] as Uint32Array
    for (let i = 0; i < scopes.length; i++) {
      const list = ofPool + (scopes[i] as number)
      add(list + ANY_MACHINE, rank)
      if (model < 0) continue
      add(list + ANY_NVIDIA, rank)
      add(list + FIRST_MODEL + model, rank)
    }
  }
  const starts = new Uint32Array(poolStride * parts.pools.length + 1)
  const count = (list: number): void => {
    starts[list + 1] = (starts[list + 1] as number) + 1
  }
  for (let rank = 0; rank < size; rank++) {
    visit(rank, count)
    if (rank % STEP === STEP - 1) yield
  }
  for (let list = 1; list < starts.length; list++)
    starts[list] = (starts[list] as number) + (starts[list - 1] as number)
  const entries = new Uint32Array(starts.at(-1) ?? 0)
  const ends = starts.slice()
  const append = (list: number, rank: number): void => {
    const end = ends[list] as number
    entries[end] = rank
    ends[list] = end + 1
  }
  for (let rank = 0; rank < size; rank++) {
    visit(rank, append)
    if (rank % STEP === STEP - 1) yield
  }
  return yield* Lists.over({ starts, entries, machineOf, machines })
}

/** Offers that are put into lists between two steps. */
const STEP = 2 ** 15

/** The scopes of the lists that a region's offers are in, by region. */
function scopesOf({ regions, groups }: Pick<Shape, "regions" | "groups">): number[][] {
  return regions.map((region, index) => {
    const own = 1 + groups.length + index
    return region.restricted ? [own] : [ANYWHERE, ...region.groups.map((group) => 1 + groups.indexOf(group)), own]
  })
}
