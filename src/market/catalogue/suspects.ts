import type { PriceList, Suspect } from "./file.ts"

/** Part of the machine's median price below which a price counts as an error of the list. */
export const LEAST_PART_OF_MEDIAN = 0.1

/**
 * Returns implausible prices. A spot price above on demand in the same region is implausible, and so is less than a
 * tenth of the machine's median over all regions. Routing would place jobs by them, but the cloud would bill another
 * price.
 */
export function findSuspects(list: Omit<PriceList, "suspects">): Suspect[] {
  const medians = { onDemand: mediansOf(list, list.onDemand), spot: mediansOf(list, list.spot) }
  const suspects: Suspect[] = []
  for (let row = 0; row < list.machine.length; row++) {
    const onDemand = list.onDemand[row] as number
    const spot = list.spot[row] as number
    const flag = (provisioning: Suspect["provisioning"], price: number, reason: string): void => {
      const { cloud, instanceType } = list.machines[list.machine[row] as number] ?? { cloud: "", instanceType: "" }
      const region = list.regions[list.region[row] as number]?.name ?? ""
      suspects.push({ cloud, region, instanceType, provisioning, hourlyPriceUsd: price / 1e6, reason })
    }
    if (onDemand > 0 && onDemand < LEAST_PART_OF_MEDIAN * medianAt(medians.onDemand, list, row)) {
      flag("onDemand", onDemand, "less than a tenth of the median over all regions")
    }
    if (onDemand > 0 && spot > onDemand) flag("spot", spot, "spot costs more than on demand")
    else if (spot > 0 && spot < LEAST_PART_OF_MEDIAN * medianAt(medians.spot, list, row)) {
      flag("spot", spot, "less than a tenth of the median over all regions")
    }
  }
  return suspects
}

function medianAt(medians: readonly number[], { machine }: Pick<PriceList, "machine">, row: number): number {
  return medians[machine[row] as number] ?? 0
}

/** Returns the median price of each machine; 0 if it has none. */
function mediansOf({ machines, machine }: Omit<PriceList, "suspects">, prices: Uint32Array): number[] {
  const byMachine: number[][] = machines.map(() => [])
  for (let row = 0; row < prices.length; row++) {
    if (prices[row] !== 0) byMachine[machine[row] as number]?.push(prices[row] as number)
  }
  return byMachine.map(median)
}

/** Returns the median of prices; 0 without any. Sorts the array in place. */
export function median(prices: number[]): number {
  prices.sort((a, b) => a - b)
  const middle = prices.length / 2
  return ((prices[Math.ceil(middle) - 1] ?? 0) + (prices[Math.floor(middle)] ?? 0)) / 2
}
