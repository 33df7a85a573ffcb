import { roundUsd } from "../../core/apis/money.ts"

/** Place of a bucket that a job reads. */
export interface BucketPlace {
  /** aws, gcp, azure or cloudflare. */
  cloud: string
  region: string
  /** Amount of data that is read, GiB; absent: `ASSUMED_BUCKET_GIB`. */
  gib?: number
}

/** Assumed size of a bucket whose size is unknown, GiB: enough to prefer near machines at equal prices. */
export const ASSUMED_BUCKET_GIB = 10

/** Prices of traffic from a bucket, US dollars a GB: to another region of its cloud, near or far, and to anywhere else. */
interface EgressPrices {
  sameMacroRegion: number
  otherMacroRegion: number
  internet: number
}

/**
 * Rough prices of the first tier, by cloud and by the macro-region of the bucket, without the free allowances (an
 * account has one, not a job): good enough to prefer a machine near its data, not a bill. The internet rates of the US
 * and Europe agree with what is commonly published in 2026; the other rates, those between regions above all, have not
 * been held against the clouds' price pages. Cloudflare R2 charges none.
 */
const PRICES: Readonly<Record<string, { default: EgressPrices } & Partial<Record<string, EgressPrices>>>> = {
  aws: {
    default: { sameMacroRegion: 0.02, otherMacroRegion: 0.02, internet: 0.09 },
    asia: { sameMacroRegion: 0.09, otherMacroRegion: 0.09, internet: 0.12 },
    oceania: { sameMacroRegion: 0.1, otherMacroRegion: 0.1, internet: 0.114 },
    sa: { sameMacroRegion: 0.138, otherMacroRegion: 0.138, internet: 0.15 },
    me: { sameMacroRegion: 0.111, otherMacroRegion: 0.111, internet: 0.117 },
    af: { sameMacroRegion: 0.147, otherMacroRegion: 0.147, internet: 0.154 },
  },
  gcp: {
    default: { sameMacroRegion: 0.02, otherMacroRegion: 0.05, internet: 0.12 },
    asia: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
    oceania: { sameMacroRegion: 0.08, otherMacroRegion: 0.1, internet: 0.19 },
    sa: { sameMacroRegion: 0.14, otherMacroRegion: 0.14, internet: 0.12 },
    me: { sameMacroRegion: 0.08, otherMacroRegion: 0.11, internet: 0.12 },
    af: { sameMacroRegion: 0.11, otherMacroRegion: 0.11, internet: 0.12 },
  },
  azure: {
    default: { sameMacroRegion: 0.02, otherMacroRegion: 0.05, internet: 0.087 },
    asia: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
    oceania: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
    sa: { sameMacroRegion: 0.16, otherMacroRegion: 0.16, internet: 0.181 },
    me: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
    af: { sameMacroRegion: 0.08, otherMacroRegion: 0.08, internet: 0.12 },
  },
  cloudflare: { default: { sameMacroRegion: 0, otherMacroRegion: 0, internet: 0 } },
}

/** Place of a VM or bucket, with the detail that prices of traffic need. */
export interface TrafficPlace {
  cloud: string
  region: string
  macroRegion?: string | undefined
}

/** Returns the cost of reading a bucket once from a VM, US dollars; 0 within a region and for a cloud without prices. */
export function egressUsd(bucket: TrafficPlace & { gib?: number }, vm: TrafficPlace): number {
  if (bucket.cloud === vm.cloud && bucket.region === vm.region) return 0
  const prices = PRICES[bucket.cloud]
  if (prices === undefined) return 0
  const { sameMacroRegion, otherMacroRegion, internet } = prices[bucket.macroRegion ?? ""] ?? prices.default
  const near = bucket.macroRegion !== undefined && bucket.macroRegion === vm.macroRegion
  const perGib = bucket.cloud !== vm.cloud ? internet : near ? sameMacroRegion : otherMacroRegion
  return roundUsd(perGib * (bucket.gib ?? ASSUMED_BUCKET_GIB))
}
