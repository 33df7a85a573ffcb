import Type, { type Static } from "typebox"
import { billedUsd, roundUsd } from "./money.ts"

/** Declares an amount for each part of a VM, USD. */
function UsdByPart(per: string, description: string) {
  const part = (name: string) => Type.Number({ minimum: 0, description: `${name}, ${per}.` })
  return Type.Object(
    { machineUsd: part("Machine"), diskUsd: part("Disk"), addressUsd: part("Public IPv4 address") },
    { description },
  )
}

/** Prices of a VM's parts. */
export const HourlyPricesSchema = UsdByPart(
  "USD per hour",
  "Prices of the VM's parts when it was chosen. Its cost is calculated from them.",
)
export type HourlyPrices = Static<typeof HourlyPricesSchema>

/** Cost of a VM's parts. */
export const CostPartsSchema = UsdByPart("USD", "Cost of ended VMs by part.")
export type CostParts = Static<typeof CostPartsSchema>

/** Cost of a VM that did not run. */
export const NO_COST: CostParts = { machineUsd: 0, diskUsd: 0, addressUsd: 0 }

/** Time for which a cloud bills a VM. */
export interface BilledTime {
  /** Lifetime of the VM. */
  seconds: number
  /** Shortest time that the cloud bills. */
  minimumBilledSeconds: number
  /** True if the cloud charges nothing for the machine. It still charges the disk and the address. */
  isMachineFree?: boolean
}

/**
 * Returns the cost of a VM by part. Every estimate, ranking and bill comes from this function. Pure.
 */
export function costOf(prices: HourlyPrices, { seconds, minimumBilledSeconds, isMachineFree }: BilledTime): CostParts {
  const cost = (hourlyUsd: number) => billedUsd(hourlyUsd, seconds, minimumBilledSeconds)
  return {
    machineUsd: isMachineFree === true ? 0 : cost(prices.machineUsd),
    diskUsd: cost(prices.diskUsd),
    addressUsd: cost(prices.addressUsd),
  }
}

/** Returns the sum of all parts, USD. */
export function sumOfParts({ machineUsd, diskUsd, addressUsd }: CostParts): number {
  return roundUsd(machineUsd + diskUsd + addressUsd)
}

/** Adds costs part by part. */
export function addParts(all: readonly CostParts[]): CostParts {
  const sum = (part: keyof CostParts) => roundUsd(all.reduce((total, cost) => total + cost[part], 0))
  return { machineUsd: sum("machineUsd"), diskUsd: sum("diskUsd"), addressUsd: sum("addressUsd") }
}
