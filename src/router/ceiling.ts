import type { HourlyPrices } from "../apis/price.ts"
import type { Catalogue } from "./catalogue.ts"

/** Part by which the price of a spot machine may rise before its cloud ends the VM. */
const HEADROOM = 1.25

/**
 * Largest discount of spot machines on clouds without a price ceiling of their own
 * (https://cloud.google.com/compute/docs/instances/spot). It bounds an on-demand price that is not known.
 */
const LARGEST_DISCOUNT: Readonly<Record<string, number>> = { gcp: 0.91 }

/**
 * Returns the highest price of a row's machine that strict limits count, USD per hour. On demand it is the price. AWS and
 * Azure end a spot VM whose price rises above the ceiling. On GCP no price of a spot machine is above on-demand.
 */
export function ceilingUsd(catalogue: Catalogue, row: number): number {
  const { spot, hourlyPriceUsd, machine, machines } = catalogue.table
  const price = hourlyPriceUsd[row] as number
  if (spot[row] !== 1) return price
  const onDemand = catalogue.onDemandUsd(row)
  const discount = LARGEST_DISCOUNT[machines[machine[row] as number]?.cloud ?? ""]
  if (discount !== undefined) return Math.max(price, onDemand ?? price / (1 - discount))
  // Clouds take prices with at most five digits behind the point.
  return Math.ceil(Math.max(price, Math.min(onDemand ?? Number.POSITIVE_INFINITY, price * HEADROOM)) * 1e5) / 1e5
}

/** Returns the prices of a row's VM with the ceiling of its machine. */
export function highestPrices(catalogue: Catalogue, row: number, prices: HourlyPrices): HourlyPrices {
  return { ...prices, machineUsd: ceilingUsd(catalogue, row) }
}
