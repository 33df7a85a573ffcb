import { billedUsd, roundUsd } from "../apis/money.ts"
import type { Catalogue } from "./catalogue.ts"
import { type BucketPlace, egressUsd } from "./egress.ts"

/** Inputs of a job's cost besides the offer. */
export interface CostTerms {
  /** Expected use of the VM, seconds. */
  expectedSeconds: number
  /** Buckets of the job's volumes whose place is known. */
  buckets?: readonly BucketPlace[]
}

/**
 * Expected total costs of one job on each offer of a catalogue. A total is never less than `hours` times the price plus
 * `placeUsd`, except for its rounding.
 */
export class Costs {
  /** Expected use of the VM. */
  readonly hours: number
  /** By place, US dollars: what is added to the VM's own cost there, which is reading the buckets once. */
  readonly placeUsd: Float64Array
  readonly #catalogue: Catalogue
  readonly #expectedSeconds: number

  constructor(catalogue: Catalogue, { expectedSeconds, buckets = [] }: CostTerms) {
    this.hours = Math.max(0, expectedSeconds) / 3600
    this.placeUsd = egressByPlace(catalogue, buckets)
    this.#catalogue = catalogue
    this.#expectedSeconds = expectedSeconds
  }

  /** Returns the total of a row's offer, US dollars: the VM for the time that is billed, and the traffic. */
  totalUsd(row: number): number {
    const { hourlyPriceUsd, minimumBilledSeconds, place } = this.#catalogue.table
    const vmUsd = billedUsd(hourlyPriceUsd[row] as number, this.#expectedSeconds, minimumBilledSeconds[row] as number)
    return roundUsd(vmUsd + (this.placeUsd[place[row] as number] as number))
  }
}

function egressByPlace({ table: { regions, places } }: Catalogue, buckets: readonly BucketPlace[]): Float64Array {
  const located = buckets.map((bucket) => {
    const region = regions.find(({ cloud, name }) => cloud === bucket.cloud && name === bucket.region)
    return { ...bucket, macroRegion: region?.groups[0] }
  })
  const byRegion = regions.map(({ cloud, name, groups }) => {
    const vm = { cloud, region: name, macroRegion: groups[0] }
    return located.reduce((total, bucket) => total + egressUsd(bucket, vm), 0)
  })
  return Float64Array.from(places, ({ region }) => byRegion[region] ?? 0)
}
