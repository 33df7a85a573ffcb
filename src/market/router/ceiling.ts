import { vmsOf } from "../../clouds/definitions.ts"
import type { HourlyPrices } from "../../core/apis/price.ts"
import type { Catalogue } from "./catalogue.ts"

/** Part by which the price of a spot machine may rise before its cloud ends the VM. */
const HEADROOM = 1.25

/** Limits that a ceiling follows from. */
export interface CeilingTerms {
  /** True if a limit holds in any case. */
  isStrict: boolean
  /** Maximum price of the machine that the job sets, USD per hour. */
  maxHourlyPriceUsd?: number | undefined
}

/**
 * Returns the price above which a row's spot machine must not run, USD per hour; undefined: none is set. Most
 * clouds end a spot VM whose price rises above it. Some have no such setting, and no price of a spot machine is above
 * on-demand: that price is what strict limits count there.
 */
export function ceilingUsd(
  catalogue: Catalogue,
  row: number,
  { isStrict, maxHourlyPriceUsd }: CeilingTerms,
): number | undefined {
  const { spot, hourlyPriceUsd, machine, machines } = catalogue.table
  if (spot[row] !== 1 || (!isStrict && maxHourlyPriceUsd === undefined)) return undefined
  const price = hourlyPriceUsd[row] as number
  const onDemand = catalogue.onDemandUsd(row)
  const discount = vmsOf(machines[machine[row] as number]?.cloud ?? "")?.spot.largestDiscount
  if (discount !== undefined) {
    return isStrict ? Math.max(price, onDemand ?? price / (1 - discount)) : undefined
  }
  const { POSITIVE_INFINITY } = Number
  const limits = [onDemand, maxHourlyPriceUsd, isStrict ? price * HEADROOM : undefined]
  const least = Math.min(...limits.map((usd) => usd ?? POSITIVE_INFINITY))
  // Clouds take prices with at most five digits behind the point.
  return Math.ceil(Math.max(price, least) * 1e5) / 1e5
}

/** Returns the highest prices of a row's VM that strict limits count. */
export function highestPrices(
  catalogue: Catalogue,
  row: number,
  { prices, maxHourlyPriceUsd }: { prices: HourlyPrices; maxHourlyPriceUsd?: number | undefined },
): HourlyPrices {
  const machineUsd = ceilingUsd(catalogue, row, { isStrict: true, maxHourlyPriceUsd }) ?? prices.machineUsd
  return { ...prices, machineUsd }
}
