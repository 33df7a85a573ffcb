import { seriesOf } from "../../clouds/machines/machines.ts"
import { defined } from "../../core/apis/defined.ts"
import { roundUsd } from "../../core/apis/money.ts"
import type { FieldError } from "../../core/apis/validate.ts"
import { emptyTable, type Machine, OFFER_COLUMNS, type OfferTable, type Place, type Region } from "../router/table.ts"
import { compileGlob, type Glob } from "./glob.ts"
import type { Discount, Exclusion, Numbered, Overlay, OwnOffer } from "./overlay.ts"

/** A table with an overlay applied, and the rules that have no effect or are invalid. */
export interface Applied {
  table: OfferTable
  errors: FieldError[]
}

/** Rows that are processed between two steps. */
const STEP = 2 ** 14

/**
 * Applies an overlay to a price list, in steps like refreshInSteps. Exclusions remove offers. Discounts multiply each
 * other. Own offers keep their price and replace the list's for the same machine.
 */
export function* applyInSteps(list: OfferTable, overlay: Overlay): Generator<undefined, Applied> {
  const errors: FieldError[] = []
  const { table: grown, added } = withOwn(list, overlay.offers, errors)
  const exclusions = overlay.exclusions.map((numbered) => new Matcher(numbered, grown))
  const discounts = overlay.discounts.map((numbered) => new Matcher(numbered, grown))
  const replaced = new Set(added.map((row) => keyAt(grown, row)))
  yield
  const kept = new Uint32Array(grown.machine.length)
  const prices = grown.hourlyPriceUsd.slice()
  const firstOwn = list.machine.length
  let count = 0
  for (let row = 0; row < grown.machine.length; row++) {
    if (row % STEP === STEP - 1) yield
    if (row < firstOwn && replaced.size > 0 && replaced.has(keyAt(grown, row))) continue
    // Every rule is evaluated, so that none wrongly counts as having no effect.
    const isExcluded = exclusions.filter((rule) => rule.matches(row)).length > 0
    for (const [index, rule] of discounts.entries()) {
      if (rule.matches(row) && row < firstOwn)
        prices[row] = applyDiscount(prices[row] as number, overlay.discounts[index]?.rule)
    }
    if (!isExcluded) kept[count++] = row
  }
  errors.push(...idle("exclusions", exclusions), ...idle("discounts", discounts))
  return { table: picked({ ...grown, hourlyPriceUsd: prices }, kept.subarray(0, count)), errors }
}

function applyDiscount(usd: number, discount: Discount | undefined): number {
  return roundUsd(usd * (discount?.factor ?? 1))
}

function keyAt({ machines, machine, place, spot }: OfferTable, row: number): string {
  const { cloud, instanceType } = machines[machine[row] as number] as Machine
  return `${cloud}/${instanceType}/${place[row]}/${spot[row]}`
}

/** Returns only the rows in `kept`. */
export function picked(table: OfferTable, kept: Uint32Array): OfferTable {
  const result = emptyTable(kept.length, table)
  for (let at = 0; at < kept.length; at++) {
    const row = kept[at] as number
    for (const column of OFFER_COLUMNS) result[column][at] = table[column][row] as number
  }
  return result
}

function idle(key: string, rules: readonly Matcher[]): FieldError[] {
  return rules.flatMap(({ isUsed, index }) =>
    isUsed ? [] : [{ pointer: `/${key}/${index}`, detail: `${key}[${index}] matches no offer: check its names` }],
  )
}

/** Finds the rows that a rule matches, by machine and region, as there are few of those. */
class Matcher {
  isUsed = false
  readonly index: number
  readonly #table: OfferTable
  readonly #machines: readonly boolean[]
  readonly #places: readonly boolean[]
  readonly #spot: number | undefined

  constructor({ index, rule }: Numbered<Exclusion>, table: OfferTable) {
    const { cloud, region, family, instanceType, provisioning } = rule
    this.index = index
    const [isCloud, isRegion, isFamily, isType] = [cloud, region, family, instanceType].map(compileGlob) as [
      Glob,
      Glob,
      Glob,
      Glob,
    ]
    this.#table = table
    this.#machines = table.machines.map(
      (machine) =>
        isCloud(machine.cloud) &&
        isType(machine.instanceType) &&
        isFamily(seriesOf(machine.cloud, machine.instanceType)),
    )
    this.#places = table.places.map((place) => {
      const { name, groups } = table.regions[place.region] as Region
      return isRegion(name) || groups.some(isRegion)
    })
    this.#spot = provisioning === undefined ? undefined : Number(provisioning === "spot")
  }

  matches(row: number): boolean {
    const { machine, place, spot } = this.#table
    if (!this.#machines[machine[row] as number] || !this.#places[place[row] as number]) return false
    if (this.#spot !== undefined && this.#spot !== spot[row]) return false
    this.isUsed = true
    return true
  }
}

/** Returns the list followed by the own offers, and the rows of those offers. */
function withOwn(list: OfferTable, offers: readonly Numbered<OwnOffer>[], errors: FieldError[]) {
  const machines = [...list.machines]
  const regions = [...list.regions]
  const places = [...list.places]
  const usable = offers.flatMap(({ rule: offer, index }) => {
    const machine = machineFor(offer, machines)
    if (typeof machine !== "string") return [{ offer, machine }]
    errors.push({ pointer: `/offers/${index}`, detail: `offers[${index}]: ${machine}` })
    return []
  })
  const size = list.machine.length
  const { priceDates } = list
  const table = emptyTable(size + usable.length, { machines, regions, places, priceDates })
  for (const column of OFFER_COLUMNS) table[column].set(list[column])
  for (const [index, { offer, machine }] of usable.entries()) {
    const row = size + index
    table.machine[row] = machine
    table.place[row] = placeFor(offer, regions, places)
    table.spot[row] = Number(offer.provisioning === "spot")
    table.hourlyPriceUsd[row] = roundUsd(offer.hourlyPriceUsd)
    table.minimumBilledSeconds[row] = offer.minimumBilledSeconds ?? DEFAULT_MINIMUM_SECONDS
  }
  return { table, added: usable.map((_, index) => size + index) }
}

const DEFAULT_MINIMUM_SECONDS = 60

/** Returns the number of an own offer's machine, or a message about missing fields. */
function machineFor(offer: OwnOffer, machines: Machine[]): number | string {
  const { cloud, instanceType, architecture, cpu, memoryGib, gpu } = offer
  const known = machines.findIndex((machine) => machine.cloud === cloud && machine.instanceType === instanceType)
  if (known >= 0 && architecture === undefined && cpu === undefined && memoryGib === undefined) return known
  if (architecture === undefined || cpu === undefined || memoryGib === undefined) {
    return `${cloud} ${instanceType} is not in the price list: architecture, cpu and memoryGib are needed`
  }
  return machines.push({ cloud, instanceType, architecture, cpu, memoryGib, ...defined({ gpu }) }) - 1
}

function placeFor({ cloud, region, zone }: OwnOffer, regions: Region[], places: Place[]): number {
  let number = regions.findIndex((known) => known.cloud === cloud && known.name === region)
  if (number < 0) number = regions.push({ cloud, name: region, groups: [] }) - 1
  const known = places.findIndex((place) => place.region === number && place.zone === zone)
  return known >= 0 ? known : places.push({ region: number, ...defined({ zone }) }) - 1
}
