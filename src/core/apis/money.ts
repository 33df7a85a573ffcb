/** Rounds USD to a millionth: sums of prices per second stay readable and stable. */
export function roundUsd(usd: number): number {
  return Math.round(usd * 1e6) / 1e6
}

/**
 * Returns the cost of a VM, USD.
 * @param hourlyPriceUsd USD per hour
 * @param seconds lifetime of the VM
 * @param minimumBilledSeconds minimum that the cloud bills
 */
export function billedUsd(hourlyPriceUsd: number, seconds: number, minimumBilledSeconds: number): number {
  const billed = Math.max(Math.ceil(Math.max(0, seconds)), minimumBilledSeconds)
  return roundUsd((hourlyPriceUsd * billed) / 3600)
}
