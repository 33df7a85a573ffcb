import { roundUsd } from "../../core/apis/money.ts"
import type { FieldError } from "../../core/apis/validate.ts"
import { emptyTable, OFFER_COLUMNS, type OfferTable } from "../router/table.ts"
import { type Applied, picked } from "./apply.ts"
import { PRICES_CONFIG_MAP, type RegionPrices } from "./stored-prices.ts"
import { LEAST_PART_OF_MEDIAN, median } from "./suspects.ts"
import { whyUnlaunchable } from "./unlaunchable.ts"

/** Multiple of the machine's median price above which a price is implausible. */
const MOST_TIMES_MEDIAN = 10
/** Part of the on-demand price below which a spot price is implausible, if the machine had no spot price before. */
const LEAST_PART_OF_ON_DEMAND = 0.01
/** Rows that are processed between two steps. */
const STEP = 2 ** 14

/**
 * Applies newer prices to a price list, in steps, so that other work can run in between. They replace the list's
 * prices, unless those have a later day. They also add offers in regions where the list has no price for a known
 * machine. Implausible prices are rejected, and the list's stay. Machine types and regions that the list does not have
 * are ignored.
 */
export function* refreshInSteps(list: OfferTable, refreshed: readonly RegionPrices[]): Generator<undefined, Applied> {
  if (refreshed.length === 0) return { table: list, errors: [] }
  const refresh = new Refresh(list)
  yield* refresh.readList()
  for (const region of refreshed) {
    refresh.take(region)
    yield
  }
  const table = yield* refresh.table()
  return { table, errors: refresh.errors() }
}

type Way = RegionPrices["provisioning"]

/** Offer that the list does not have. */
interface NewRow {
  machine: number
  place: number
  spot: number
  hourlyPriceUsd: number
  minimumBilledSeconds: number
  priceDate: number
}

/** A price list to which newer prices are applied. */
class Refresh {
  readonly #list: OfferTable
  readonly #machines: ReadonlyMap<string, number>
  readonly #regions: ReadonlyMap<string, number>
  /** Place without a zone, by region: prices of clouds are for these places. */
  readonly #places: ReadonlyMap<number, number>
  /** Row by machine, region and provisioning; 0: none. */
  readonly #rows: Uint32Array
  /** Price by row of the list. */
  readonly #prices: Float64Array
  readonly #dates: Uint16Array
  readonly #days: string[]
  readonly #minimum: Uint32Array
  readonly #added: NewRow[] = []
  /** Median of a machine's prices in the list, by provisioning. */
  readonly #medians: Record<Way, number[]> = { onDemand: [], spot: [] }
  readonly #refused = new Map<string, { count: number; example: string }>()

  constructor(list: OfferTable) {
    const { machines, regions, places, hourlyPriceUsd, priceDate, priceDates } = list
    this.#list = list
    this.#machines = new Map(machines.map(({ cloud, instanceType }, index) => [`${cloud}/${instanceType}`, index]))
    this.#regions = new Map(regions.map(({ cloud, name }, index) => [`${cloud}/${name}`, index]))
    this.#places = new Map(
      places.flatMap(({ region, zone }, index) => (zone === undefined ? [[region, index] as const] : [])),
    )
    this.#rows = new Uint32Array(machines.length * regions.length * 2)
    this.#prices = hourlyPriceUsd.slice()
    this.#dates = priceDate.slice()
    this.#days = [...priceDates]
    this.#minimum = new Uint32Array(machines.length)
  }

  /** Finds the list's rows, and the medians of each machine's prices. */
  *readList(): Generator<undefined, void> {
    const { machines, places, machine, place, spot, minimumBilledSeconds } = this.#list
    const all = { onDemand: machines.map((): number[] => []), spot: machines.map((): number[] => []) }
    for (let row = 0; row < machine.length; row++) {
      if (row % STEP === STEP - 1) yield
      const number = machine[row] as number
      const way = spot[row] === 1 ? "spot" : "onDemand"
      all[way][number]?.push(this.#prices[row] as number)
      this.#minimum[number] = minimumBilledSeconds[row] as number
      const { region = 0, zone } = places[place[row] as number] ?? {}
      if (zone === undefined) this.#rows[this.#slot(number, region, way)] = row + 1
    }
    yield
    this.#medians.onDemand = all.onDemand.map(median)
    yield
    this.#medians.spot = all.spot.map(median)
    yield
  }

  /** Takes the prices of one region. */
  take({ cloud, region: name, provisioning, time, prices }: RegionPrices): void {
    const region = this.#regions.get(`${cloud}/${name}`)
    const place = region === undefined ? undefined : this.#places.get(region)
    if (region === undefined || place === undefined) return
    const day = time.slice(0, "YYYY-MM-DD".length)
    const priceDate = this.#dayNumber(day)
    for (const [instanceType, usd] of prices) {
      const machine = this.#machines.get(`${cloud}/${instanceType}`)
      if (machine === undefined) continue
      const slot = this.#slot(machine, region, provisioning)
      const row = (this.#rows[slot] as number) - 1
      // Offers of the list can be launched.
      const isOut = row < 0 && whyUnlaunchable({ cloud, instanceType }, name, provisioning) !== undefined
      if (isOut || (row >= 0 && (this.#days[this.#dates[row] as number] ?? "") > day)) continue
      const hourlyPriceUsd = roundUsd(usd)
      const why = this.#whyImplausible(machine, provisioning, hourlyPriceUsd)
      if (why === undefined) this.#put(slot, { machine, place, hourlyPriceUsd, priceDate })
      else this.#refuse(`${cloud} ${provisioning}`, `${instanceType} in ${name} at $${hourlyPriceUsd}`, why)
    }
  }

  /** Puts a price into the row of a slot, or creates the row. */
  #put(slot: number, offer: Omit<NewRow, "spot" | "minimumBilledSeconds">): void {
    const row = (this.#rows[slot] as number) - 1
    const known = row < this.#prices.length ? undefined : this.#added[row - this.#prices.length]
    if (row < 0) {
      const minimumBilledSeconds = this.#minimum[offer.machine] as number
      this.#added.push({ ...offer, spot: slot % 2, minimumBilledSeconds })
      this.#rows[slot] = this.#prices.length + this.#added.length
    } else if (known === undefined) {
      this.#prices[row] = offer.hourlyPriceUsd
      this.#dates[row] = offer.priceDate
    } else {
      Object.assign(known, offer)
    }
  }

  /** Builds the new list. */
  *table(): Generator<undefined, OfferTable> {
    const size = this.#list.machine.length
    const table = emptyTable(size + this.#added.length, { ...this.#list, priceDates: this.#days })
    const columns = { ...this.#list, hourlyPriceUsd: this.#prices, priceDate: this.#dates }
    for (const column of OFFER_COLUMNS) {
      table[column].set(columns[column])
      for (const [index, row] of this.#added.entries()) table[column][size + index] = row[column]
    }
    yield
    const excluded = new Set(this.#spotAboveOnDemand(table))
    yield
    return excluded.size === 0
      ? table
      : picked(
          table,
          Uint32Array.from(table.machine.keys()).filter((row) => !excluded.has(row)),
        )
  }

  /** Returns rows whose spot price is above the on-demand price, because the two were read at different times. */
  *#spotAboveOnDemand({ hourlyPriceUsd, machines, machine, place, places, regions }: OfferTable): Generator<number> {
    for (let slot = 0; slot < this.#rows.length; slot += 2) {
      const [onDemand, spot] = [(this.#rows[slot] as number) - 1, (this.#rows[slot + 1] as number) - 1]
      if (onDemand < 0 || spot < 0) continue
      const price = hourlyPriceUsd[spot] as number
      if (price <= (hourlyPriceUsd[onDemand] as number)) continue
      const { cloud, instanceType } = machines[machine[spot] as number] ?? { cloud: "", instanceType: "" }
      const region = regions[places[place[spot] as number]?.region ?? -1]?.name ?? ""
      this.#refuse(`${cloud} spot`, `${instanceType} in ${region} at $${price}`, "spot costs more than on demand")
      yield spot
    }
  }

  /** Returns the rejected prices, each cause once. */
  errors(): FieldError[] {
    return [...this.#refused].map(([why, { count, example }]) => ({
      pointer: `/${PRICES_CONFIG_MAP}`,
      detail: `${count} ${count === 1 ? "price" : "prices"} ${why}: ${example}${count > 1 ? ", for example" : ""}`,
    }))
  }

  #refuse(what: string, example: string, why: string): void {
    const cause = `refused (${what}), ${why}`
    const known = this.#refused.get(cause)
    this.#refused.set(cause, { count: (known?.count ?? 0) + 1, example: known?.example ?? example })
  }

  #whyImplausible(machine: number, provisioning: Way, usd: number): string | undefined {
    const median = this.#medians[provisioning][machine] || 0
    const onDemand = this.#medians.onDemand[machine] || 0
    if (!(usd > 0) || !Number.isFinite(usd)) return "no price above 0"
    if (usd < median * LEAST_PART_OF_MEDIAN) return "less than a tenth of what is usual for the machine"
    if (median > 0 && usd > median * MOST_TIMES_MEDIAN) return "more than ten times what is usual for the machine"
    return usd < onDemand * LEAST_PART_OF_ON_DEMAND ? "less than a hundredth of what it costs on demand" : undefined
  }

  #slot(machine: number, region: number, way: Way): number {
    return (machine * this.#list.regions.length + region) * 2 + Number(way === "spot")
  }

  #dayNumber(day: string): number {
    const known = this.#days.indexOf(day)
    return known >= 0 ? known : this.#days.push(day) - 1
  }
}
