/** US dollars, rounded to a millionth: sums of prices per second stay readable and stable. */
export function roundUsd(usd: number): number {
  return Math.round(usd * 1e6) / 1e6
}

/**
 * What a cloud bills for a VM.
 * @param hourlyPriceUsd US dollars an hour
 * @param seconds how long the VM lived
 * @param minimumBilledSeconds the cloud's shortest billed time
 */
export function billedUsd(hourlyPriceUsd: number, seconds: number, minimumBilledSeconds: number): number {
  const billed = Math.max(Math.ceil(Math.max(0, seconds)), minimumBilledSeconds)
  return roundUsd((hourlyPriceUsd * billed) / 3600)
}
