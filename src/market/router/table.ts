import { defined } from "../../core/apis/defined.ts"
import type { Architecture, Offer } from "../../core/apis/offer.ts"

/** A machine type: the same wherever and however it is bought. */
export interface Machine {
  cloud: string
  instanceType: string
  architecture: Architecture
  cpu: number
  memoryGib: number
  gpu?: NonNullable<Offer["gpu"]>
}

/** A region of a cloud, and the groups of regions that it belongs to: its macro-region first, narrower ones after. */
export interface Region {
  cloud: string
  name: string
  groups: readonly string[]
  /** Its accounts are not those of the other regions (GovCloud): only jobs that name it go there. */
  restricted?: boolean
}

/** Place of a machine: a region, or one zone of it. */
export interface Place {
  /** Index into the regions. */
  region: number
  zone?: string
}

/** Offers column by column, in no order: a million of them are a few arrays. Each row is one offer. */
export interface OfferTable {
  machines: readonly Machine[]
  regions: readonly Region[]
  places: readonly Place[]
  /** Index into the machines. */
  machine: Uint32Array
  /** Index into the places. */
  place: Uint32Array
  /** 1 for spot. */
  spot: Uint8Array
  /** US dollars an hour, at least 0. */
  hourlyPriceUsd: Float64Array
  minimumBilledSeconds: Uint32Array
  /** The days that prices are of (YYYY-MM-DD); the first one is "", for prices of no known day. */
  priceDates: readonly string[]
  /** Index into the days. */
  priceDate: Uint16Array
}

/** The columns of a table. */
export const OFFER_COLUMNS = [
  "machine",
  "place",
  "spot",
  "hourlyPriceUsd",
  "minimumBilledSeconds",
  "priceDate",
] as const satisfies (keyof OfferTable)[]

const UNDATED: readonly string[] = [""]

/** Returns a table for `size` offers, with all columns 0. */
export function emptyTable(
  size: number,
  parts: Pick<OfferTable, "machines" | "regions" | "places"> & Partial<Pick<OfferTable, "priceDates">>,
): OfferTable {
  return {
    priceDates: UNDATED,
    ...parts,
    machine: new Uint32Array(size),
    place: new Uint32Array(size),
    spot: new Uint8Array(size),
    hourlyPriceUsd: new Float64Array(size),
    minimumBilledSeconds: new Uint32Array(size),
    priceDate: new Uint16Array(size),
  }
}

/** Joins two tables. What they have in common, such as a region, may be in the result twice. */
export function joinTables(first: OfferTable, second: OfferTable): OfferTable {
  const places = second.places.map((place) => ({ ...place, region: place.region + first.regions.length }))
  const rows = first.machine.length
  const table = emptyTable(rows + second.machine.length, {
    machines: [...first.machines, ...second.machines],
    regions: [...first.regions, ...second.regions],
    places: [...first.places, ...places],
    priceDates: [...first.priceDates, ...second.priceDates],
  })
  table.machine.set(first.machine)
  table.place.set(first.place)
  table.priceDate.set(first.priceDate)
  for (const column of ["spot", "hourlyPriceUsd", "minimumBilledSeconds"] as const) {
    table[column].set(first[column])
    table[column].set(second[column], rows)
  }
  for (let row = 0; row < second.machine.length; row++) {
    table.machine[rows + row] = (second.machine[row] as number) + first.machines.length
    table.place[rows + row] = (second.place[row] as number) + first.places.length
    table.priceDate[rows + row] = (second.priceDate[row] as number) + first.priceDates.length
  }
  return table
}

/** Returns the groups of a region that is not in the shipped catalogue. */
export type GroupsOf = (cloud: string, region: string) => readonly string[]

/** Returns the table of single offers. `groupsOf` has the groups of the regions, by default none. */
export function createTable(offers: readonly Offer[], groupsOf: GroupsOf = () => []): OfferTable {
  const machines = new Numbering<Machine>()
  const regions = new Numbering<Region>()
  const places = new Numbering<Place>()
  const priceDates = new Numbering<string>()
  priceDates.of("", () => "")
  const table = emptyTable(offers.length, {
    machines: machines.items,
    regions: regions.items,
    places: places.items,
    priceDates: priceDates.items,
  })
  for (const [row, offer] of offers.entries()) {
    const { cloud, zone } = offer
    const region = regions.of(`${cloud}/${offer.region}`, () => ({
      cloud,
      name: offer.region,
      groups: groupsOf(cloud, offer.region),
    }))
    const machine = toMachine(offer)
    table.machine[row] = machines.of(JSON.stringify(machine), () => machine)
    table.place[row] = places.of(JSON.stringify([region, zone]), () => ({
      region,
      ...defined({ zone }),
    }))
    table.spot[row] = Number(offer.provisioning === "spot")
    table.hourlyPriceUsd[row] = offer.hourlyPriceUsd
    table.minimumBilledSeconds[row] = offer.minimumBilledSeconds
    const { priceDate = "" } = offer
    table.priceDate[row] = priceDates.of(priceDate, () => priceDate)
  }
  return table
}

/** Returns the machine type of an offer. */
export function toMachine({ cloud, instanceType, architecture, cpu, memoryGib, gpu }: Offer): Machine {
  return { cloud, instanceType, architecture, cpu, memoryGib, ...defined({ gpu }) }
}

/** Gives each different thing a number, in the order in which they come. */
export class Numbering<T> {
  readonly items: T[] = []
  readonly #numbers = new Map<string, number>()

  of(key: string, make: () => T): number {
    const known = this.#numbers.get(key)
    if (known !== undefined) return known
    this.#numbers.set(key, this.items.length)
    return this.items.push(make()) - 1
  }
}
