import { findDefinition } from "../../clouds/definitions.ts"
import { roundUsd } from "../../core/apis/money.ts"

/** Place of a bucket that a job reads. */
export interface BucketPlace {
  /** Type of the bucket's connection. */
  cloud: string
  region: string
  /** Amount of data that is read, GiB; absent: `ASSUMED_BUCKET_GIB`. */
  gib?: number
}

/** Assumed size of a bucket whose size is unknown, GiB: enough to prefer near machines at equal prices. */
export const ASSUMED_BUCKET_GIB = 10

/** Place of a VM or bucket, with the detail that prices of traffic need. */
export interface TrafficPlace {
  cloud: string
  region: string
  macroRegion?: string | undefined
}

/**
 * Returns the cost of reading a bucket once from a VM, US dollars; 0 within a region and for a cloud without prices. The
 * prices are rough ones of the first tier, without the free allowances: an account has one, not a job. They are good
 * enough to prefer a machine near its data, and are no bill. The internet rates of the US and Europe agree with what is commonly
 * published in 2026. The other rates, those between regions above all, have not been held against the clouds' price pages.
 */
export function egressUsd(bucket: TrafficPlace & { gib?: number }, vm: TrafficPlace): number {
  if (bucket.cloud === vm.cloud && bucket.region === vm.region) return 0
  const prices = findDefinition(bucket.cloud)?.buckets?.egress
  if (prices === undefined) return 0
  const { sameMacroRegion, otherMacroRegion, internet } = prices[bucket.macroRegion ?? ""] ?? prices.default
  const near = bucket.macroRegion !== undefined && bucket.macroRegion === vm.macroRegion
  const perGib = bucket.cloud !== vm.cloud ? internet : near ? sameMacroRegion : otherMacroRegion
  return roundUsd(perGib * (bucket.gib ?? ASSUMED_BUCKET_GIB))
}
