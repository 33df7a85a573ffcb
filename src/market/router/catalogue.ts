import { defined } from "../../core/apis/defined.ts"
import { type BootDisk, type OrderedDisk, orderedDisk, type VmDisk } from "../../core/apis/disk.ts"
import { roundUsd } from "../../core/apis/money.ts"
import type { Offer } from "../../core/apis/offer.ts"
import type { HourlyPrices } from "../../core/apis/price.ts"
import { isNvidia, parseModel } from "./gpu-models.ts"
import type { PartPrices } from "./parts.ts"
import {
  createTable,
  type GroupsOf,
  joinTables,
  type Machine,
  Numbering,
  type OfferTable,
  type Place,
  type Region,
  toMachine,
} from "./table.ts"

/**
 * The offers that jobs are routed by: a table, and what follows from its machines and regions. Offers are numbered by
 * their rows, in no particular order. A catalogue never changes; a new price list is a new catalogue.
 */
export class Catalogue {
  readonly table: OfferTable
  /** Names of the clouds that offer anything, sorted. */
  readonly clouds: readonly string[]
  /** Groups of regions, such as macro-regions, sorted. */
  readonly groups: readonly string[]
  /** By machine: the base of its NVIDIA model (`a100`); undefined without such a GPU. */
  readonly modelBases: readonly (string | undefined)[]
  /** First row of each run of offers of one machine that are bought alike; the last element is the number of rows. */
  readonly runs: Uint32Array
  /** Disks from which machines boot, each once, with their cloud. */
  readonly diskClasses: readonly DiskClass[]
  /** By machine: index into the disk classes. */
  readonly diskClass: Uint16Array
  readonly #parts: PartPrices | undefined
  readonly #diskUsd = new Map<string, Float64Array>()
  /** Prices on demand by machine and place. */
  #onDemandUsd: ReadonlyMap<number, number> | undefined
  readonly #addressUsd: Readonly<Record<Offer["provisioning"], Float64Array>>
  /** By machine and by place: the position in the order by size, then by name. */
  readonly #machineRanks: Uint32Array
  readonly #placeRanks: Uint32Array

  /** @param parts prices of disks and addresses; absent: they cost nothing, as in the local cloud */
  constructor(table: OfferTable, parts?: PartPrices) {
    const { machines, regions, places } = table
    const classes = diskClassesOf(machines, parts)
    this.table = table
    this.clouds = [...new Set(regions.map(({ cloud }) => cloud))].sort()
    this.groups = [...new Set(regions.flatMap((region) => region.groups))].sort()
    this.modelBases = machines.map(({ gpu }) =>
      gpu !== undefined && isNvidia(gpu.model) ? parseModel(gpu.model).base : undefined,
    )
    this.runs = runsOf(table)
    this.diskClasses = classes.items
    this.diskClass = classes.byMachine
    this.#parts = parts
    const addressUsd = (provisioning: Offer["provisioning"]) =>
      this.#byPlace((region) => parts?.addressUsd(region, provisioning) ?? 0)
    this.#addressUsd = { onDemand: addressUsd("onDemand"), spot: addressUsd("spot") }
    this.#machineRanks = ranksOf(machines, compareMachines)
    this.#placeRanks = ranksOf(places, (a, b) => comparePlaces(a, b, regions))
  }

  /** Number of offers. */
  get size(): number {
    return this.table.machine.length
  }

  /** Returns the offer of a row. @throws RangeError if the catalogue has no such row */
  offerAt(row: number): Offer {
    const { table } = this
    const machine = table.machines[table.machine[row] ?? -1]
    const place = table.places[table.place[row] ?? -1]
    const region = table.regions[place?.region ?? -1]
    if (machine === undefined || place === undefined || region === undefined) {
      throw new RangeError(`the catalogue has no offer ${row}: it has ${this.size}`)
    }
    const { cloud, instanceType, architecture, cpu, memoryGib, gpu } = machine
    const priceDate = table.priceDates[table.priceDate[row] ?? 0]
    return {
      cloud,
      region: region.name,
      ...defined({ zone: place.zone }),
      instanceType,
      architecture,
      provisioning: table.spot[row] === 1 ? "spot" : "onDemand",
      cpu,
      memoryGib,
      ...defined({ gpu }),
      hourlyPriceUsd: table.hourlyPriceUsd[row] as number,
      minimumBilledSeconds: table.minimumBilledSeconds[row] as number,
      ...(priceDate && { priceDate }),
    }
  }

  /**
   * Returns the prices of a disk by place, USD per hour. Places of other clouds have 0.
   * @param isStrict true for the most that a price can be if it is not published
   */
  diskUsdByPlace(cloud: string, disk: OrderedDisk, isStrict: boolean): Float64Array {
    const key = JSON.stringify([cloud, disk, isStrict])
    const known = this.#diskUsd.get(key)
    if (known !== undefined) return known
    const prices = this.#byPlace((region) =>
      region.cloud === cloud ? (this.#parts?.diskUsd(region, disk, isStrict) ?? 0) : 0,
    )
    // Jobs choose sizes, so there may be many.
    if (this.#diskUsd.size >= MOST_DISKS) this.#diskUsd.clear()
    this.#diskUsd.set(key, prices)
    return prices
  }

  /** Returns the prices of a VM's public IPv4 address by place, USD per hour. */
  addressUsdByPlace(provisioning: Offer["provisioning"]): Float64Array {
    return this.#addressUsd[provisioning]
  }

  /** Returns the prices of a VM on an offer, which may be of an earlier catalogue. */
  pricesOf(offer: Offer, { disk, publicAddress, isStrict = false }: PricedVm): HourlyPrices {
    const parts = this.#parts
    const { provisioning, hourlyPriceUsd: machineUsd } = offer
    const region = this.#regionOf(offer)
    const boot = parts?.bootDiskOf(toMachine(offer))
    return {
      machineUsd,
      diskUsd:
        parts !== undefined && boot !== undefined
          ? roundUsd(parts.diskUsd(region, orderedDisk(boot, disk), isStrict))
          : 0,
      addressUsd: parts !== undefined && publicAddress ? roundUsd(parts.addressUsd(region, provisioning)) : 0,
    }
  }

  /** Returns true if the price of a VM's disk is that of near regions, because none is known in its own. */
  isDiskPriceEstimated(offer: Offer, disk?: VmDisk): boolean {
    const boot = this.#parts?.bootDiskOf(toMachine(offer))
    if (this.#parts === undefined || boot === undefined) return false
    return !this.#parts.isDiskPriceKnown(this.#regionOf(offer), orderedDisk(boot, disk).type)
  }

  #regionOf({ cloud, region: name }: Offer): Region {
    const known = this.table.regions.find((region) => region.cloud === cloud && region.name === name)
    return known ?? { cloud, name, groups: [] }
  }

  /** Returns the on-demand price of a row's machine in its place, USD per hour; undefined if it is unknown. */
  onDemandUsd(row: number): number | undefined {
    const { machine, place, places, spot, hourlyPriceUsd } = this.table
    const keyOf = (at: number) => (machine[at] as number) * places.length + (place[at] as number)
    this.#onDemandUsd ??= new Map(
      Array.from(machine.keys())
        .filter((at) => spot[at] !== 1)
        .map((at) => [keyOf(at), hourlyPriceUsd[at] as number]),
    )
    return this.#onDemandUsd.get(keyOf(row))
  }

  #byPlace(priceOf: (region: Region) => number): Float64Array {
    const { regions, places } = this.table
    const byRegion = regions.map((region) => roundUsd(priceOf(region)))
    return Float64Array.from(places, ({ region }) => byRegion[region] ?? 0)
  }

  /** Returns a catalogue of these offers, which may be of an earlier one, with the groups and the prices of this one. */
  only(offers: readonly Offer[]): Catalogue {
    const groupsOf = (cloud: string, region: string) =>
      this.table.regions.find((known) => known.cloud === cloud && known.name === region)?.groups ?? []
    return createCatalogue(offers, groupsOf, this.#parts)
  }

  /** Returns a catalogue with these offers too, which it does not have yet. */
  with(offers: readonly Offer[]): Catalogue {
    return new Catalogue(joinTables(this.table, createTable(offers)), this.#parts)
  }

  /** Yields every offer, in the order of the rows. */
  *offers(): Generator<Offer> {
    for (let row = 0; row < this.size; row++) yield this.offerAt(row)
  }

  /**
   * Compares two rows: the lower price an hour first, then the smaller machine, then the name. No two offers of
   * different names are equal, so results do not depend on the order of the rows.
   */
  compare(a: number, b: number): number {
    const { hourlyPriceUsd, machine, place, spot } = this.table
    const rank = (ranks: Uint32Array, index: number | undefined) => ranks[index ?? 0] as number
    return (
      (hourlyPriceUsd[a] as number) - (hourlyPriceUsd[b] as number) ||
      rank(this.#machineRanks, machine[a]) - rank(this.#machineRanks, machine[b]) ||
      rank(this.#placeRanks, place[a]) - rank(this.#placeRanks, place[b]) ||
      (spot[a] as number) - (spot[b] as number) ||
      a - b
    )
  }
}

/** VM whose parts are priced. */
export interface PricedVm {
  disk?: VmDisk | undefined
  publicAddress: boolean
  /** True if a limit holds in any case: see `PartPrices.diskUsd`. */
  isStrict?: boolean
}

/** Boot disk of some machines of a cloud. */
export interface DiskClass {
  cloud: string
  /** Absent: the cloud's VMs have none. */
  boot?: BootDisk
}

/** Number of disks whose prices a catalogue remembers. */
const MOST_DISKS = 1000

function diskClassesOf(machines: readonly Machine[], parts: PartPrices | undefined) {
  const classes = new Numbering<DiskClass>()
  const byMachine = Uint16Array.from(machines, (machine) => {
    const { cloud } = machine
    const boot = parts?.bootDiskOf(machine)
    return classes.of(JSON.stringify([cloud, boot]), () => ({ cloud, ...defined({ boot }) }))
  })
  return { items: classes.items, byMachine }
}

/** The catalogue of offers that are given one by one. */
export function createCatalogue(offers: readonly Offer[], groupsOf?: GroupsOf, parts?: PartPrices): Catalogue {
  return new Catalogue(createTable(offers, groupsOf), parts)
}

/** A price list has such offers together; later offers, at the end of the table, may be runs of a single row. */
function runsOf({ machine, spot }: OfferTable): Uint32Array {
  const starts: number[] = []
  for (let row = 0; row < machine.length; row++) {
    if (row === 0 || machine[row] !== machine[row - 1] || spot[row] !== spot[row - 1]) starts.push(row)
  }
  return Uint32Array.from([...starts, machine.length])
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
    // No cloud sells one type in two of these; a list of own offers may have it so.
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
