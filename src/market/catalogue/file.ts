import type { Machine, OfferTable, Region } from "../router/table.ts"
import { emptyTable } from "../router/table.ts"

/** Source of prices. */
export interface PriceSource {
  cloud: string
  /** Data that was taken from it. */
  what: string
  name: string
  /** Day on which it was read, or until which its prices were valid (ISO 8601). */
  date: string
  licence: string
  /** Prices of the list that are from it. Absent: none. If several sources cover a price, the last one counts. */
  covers?: readonly Coverage[]
}

/** Part of a cloud's prices. An absent field means all. */
export interface Coverage {
  provisioning?: "onDemand" | "spot"
  /** Regular expression of regions. */
  regions?: string
  /** Regular expression of machine types. */
  instanceTypes?: string
}

/** Offer with an implausible price: kept for people to see, never chosen. */
export interface Suspect {
  cloud: string
  region: string
  instanceType: string
  provisioning: "onDemand" | "spot"
  hourlyPriceUsd: number
  reason: string
}

/** Price list: the price of each machine in each region that sells it. */
export interface PriceList {
  sources: readonly PriceSource[]
  suspects: readonly Suspect[]
  /** Shortest billed time by cloud, seconds. */
  minimumBilledSeconds: Readonly<Record<string, number>>
  machines: readonly Machine[]
  regions: readonly Region[]
  /** Columns with one row for each machine and region: all of the first machine, then of the next. */
  machine: Uint32Array
  region: Uint32Array
  /** Millionths of a US dollar per hour; 0: not sold in this way. */
  onDemand: Uint32Array
  spot: Uint32Array
}

/** Part of the file before the columns. */
interface Header extends Pick<PriceList, "sources" | "suspects" | "minimumBilledSeconds" | "machines" | "regions"> {
  format: typeof FORMAT
  rows: number
}

const FORMAT = 2

const COLUMNS = ["machine", "region", "onDemand", "spot"] as const
const LENGTH_BYTES = 4

/**
 * Encodes a price list: the length of a header, the header as JSON, then the columns. A column starts with the first
 * bytes of all its numbers, then has their second bytes, and so on. This compresses best.
 */
export function encode(list: PriceList): Uint8Array {
  const { sources, suspects, minimumBilledSeconds, machines, regions } = list
  const rows = list.machine.length
  const header: Header = { format: FORMAT, rows, sources, suspects, minimumBilledSeconds, machines, regions }
  const text = new TextEncoder().encode(JSON.stringify(header))
  const bytes = new Uint8Array(LENGTH_BYTES + text.length + COLUMNS.length * rows * 4)
  new DataView(bytes.buffer).setUint32(0, text.length, true)
  bytes.set(text, LENGTH_BYTES)
  let at = LENGTH_BYTES + text.length
  for (const name of COLUMNS) {
    const column = name === "machine" || name === "region" ? differences(list[name]) : list[name]
    for (let shift = 0; shift < 32; shift += 8) {
      for (let row = 0; row < rows; row++) bytes[at++] = (column[row] as number) >>> shift
    }
  }
  return bytes
}

/** Decodes the output of `encode`. @throws RangeError if the file has another format or is truncated */
export function decode(bytes: Uint8Array): PriceList {
  if (bytes.length < LENGTH_BYTES) throw new RangeError("the price list is empty")
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true)
  const start = LENGTH_BYTES + length
  const { format, rows, ...header } = JSON.parse(
    new TextDecoder().decode(bytes.subarray(LENGTH_BYTES, start)),
  ) as Header
  if (format !== FORMAT) {
    throw new RangeError(`the price list has format ${format}: this program reads format ${FORMAT}`)
  }
  if (bytes.length !== start + COLUMNS.length * rows * 4) throw new RangeError("the price list is truncated")
  const columns = COLUMNS.map((_, index) => column(bytes.subarray(start + index * rows * 4), rows))
  const [machine, region, onDemand, spot] = columns as [Uint32Array, Uint32Array, Uint32Array, Uint32Array]
  return { ...header, machine: sums(machine), region: sums(region), onDemand, spot }
}

function column(bytes: Uint8Array, rows: number): Uint32Array {
  const values = new Uint32Array(rows)
  for (let row = 0; row < rows; row++) {
    values[row] =
      (bytes[row] as number) |
      ((bytes[row + rows] as number) << 8) |
      ((bytes[row + rows * 2] as number) << 16) |
      ((bytes[row + rows * 3] as number) << 24)
  }
  return values
}

/** Returns the difference from each number to the next, modulo 2^32. */
function differences(values: Uint32Array): Uint32Array {
  return values.map((value, index) => value - (values[index - 1] ?? 0))
}

function sums(values: Uint32Array): Uint32Array {
  for (let row = 1; row < values.length; row++) values[row] = (values[row] as number) + (values[row - 1] as number)
  return values
}

/** Dates of a list's prices: the distinct ones, and the index of each row's among them. */
interface PriceDates {
  dates: readonly string[]
  /** Index of the date of each row, on demand and as spot. */
  indexes: readonly [Uint16Array, Uint16Array]
}

/** Returns the date of each price, which is that of its source. @throws RangeError if a price has no source */
function datesOf({ sources, machines, regions, machine, region, onDemand, spot }: PriceList): PriceDates {
  const dates = ["", ...new Set(sources.flatMap(({ date, covers }) => (covers === undefined ? [] : date)))]
  const parts = sources.flatMap(({ cloud, date, covers = [] }) =>
    covers.map(({ provisioning, regions: where = "", instanceTypes = "" }) => {
      const [isRegion, isType] = [new RegExp(where), new RegExp(instanceTypes)]
      return {
        provisioning,
        index: dates.indexOf(date),
        machines: machines.map((one) => one.cloud === cloud && isType.test(one.instanceType)),
        regions: regions.map((one) => one.cloud === cloud && isRegion.test(one.name)),
      }
    }),
  )
  const indexesOf = (provisioning: "onDemand" | "spot", prices: Uint32Array): Uint16Array => {
    const own = parts.filter((part) => (part.provisioning ?? provisioning) === provisioning)
    return Uint16Array.from(prices, (price, row) => {
      if (price === 0) return 0
      const [type = 0, place = 0] = [machine[row], region[row]]
      const part = own.findLast((each) => each.machines[type] && each.regions[place])
      if (part !== undefined) return part.index
      const what = `${machines[type]?.cloud} ${machines[type]?.instanceType} in ${regions[place]?.name}`
      throw new RangeError(`no source of the price list covers the ${provisioning} price of ${what}`)
    })
  }
  return { dates, indexes: [indexesOf("onDemand", onDemand), indexesOf("spot", spot)] }
}

/**
 * Returns the plausible offers of a price list, each with the date of its source. All on-demand offers come first, then all spot offers, each in the
 * order of the list. Routing requires that offers of one machine with the same provisioning are adjacent.
 * @throws RangeError if a price has no source
 */
export function buildOffers(list: PriceList): OfferTable {
  const { machines, regions, machine, region, minimumBilledSeconds } = list
  const suspects = suspectRows(list)
  const { dates, indexes } = datesOf(list)
  const minimum = Uint32Array.from(machines, ({ cloud }) => minimumBilledSeconds[cloud] ?? 0)
  const places = regions.map((_, index) => ({ region: index }))
  const table = emptyTable(soldIn(list.onDemand) + soldIn(list.spot) - list.suspects.length, {
    machines,
    regions,
    places,
    priceDates: dates,
  })
  let at = 0
  for (const [spot, prices] of [list.onDemand, list.spot].entries()) {
    for (let row = 0; row < machine.length; row++) {
      const price = prices[row] as number
      if (price === 0 || suspects[spot]?.has(row)) continue
      table.machine[at] = machine[row] as number
      table.place[at] = region[row] as number
      table.spot[at] = spot
      table.hourlyPriceUsd[at] = price / 1e6
      table.minimumBilledSeconds[at] = minimum[machine[row] as number] as number
      table.priceDate[at] = indexes[spot]?.[row] as number
      at++
    }
  }
  return table
}

function soldIn(prices: Uint32Array): number {
  let count = 0
  for (let row = 0; row < prices.length; row++) if (prices[row] !== 0) count++
  return count
}

/** Returns the rows of suspects: those on demand and the spot ones. */
function suspectRows({ suspects, machines, regions, machine, region }: PriceList): [Set<number>, Set<number>] {
  const rows: [Set<number>, Set<number>] = [new Set(), new Set()]
  if (suspects.length === 0) return rows
  const byName = new Map<string, number>()
  for (let row = 0; row < machine.length; row++) {
    const { cloud, instanceType } = machines[machine[row] as number] as Machine
    byName.set(`${cloud}/${regions[region[row] as number]?.name}/${instanceType}`, row)
  }
  for (const { cloud, region: name, instanceType, provisioning } of suspects) {
    const row = byName.get(`${cloud}/${name}/${instanceType}`)
    if (row !== undefined) rows[provisioning === "spot" ? 1 : 0].add(row)
  }
  return rows
}
