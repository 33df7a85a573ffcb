import { defined } from "../../core/apis/defined.ts"
import { orderedDisk } from "../../core/apis/disk.ts"
import { roundUsd } from "../../core/apis/money.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { type CostParts, costOf, type HourlyPrices, sumOfParts } from "../../core/apis/price.ts"
import type { Catalogue, DiskClass } from "./catalogue.ts"
import type { LaunchAccount } from "./cooldown.ts"
import { type BucketPlace, egressUsd } from "./egress.ts"
import { type LostWork, lostShare } from "./lost-work.ts"
import { shapeKey, type VmShape, vmShape } from "./parts.ts"

/** Inputs of a job's cost besides the offer. */
export interface CostTerms {
  /** Expected use of the VM, seconds. */
  expectedSeconds: number
  /** Buckets of the job's volumes whose place is known. */
  buckets?: readonly BucketPlace[]
  /** Accounts whose settings the disk and the address depend on. */
  launchAccounts: readonly LaunchAccount[]
  /** Returns the disk that the job and its image require on a cloud's VM, GiB; undefined: the default is enough. */
  requiredGib?: (cloud: string) => number | undefined
  /** Absent: preemptions of spot VMs do not count. */
  lostWork?: LostWork
  /**
   * Set if a limit holds in any case. Offers then count at their ceiling price, for the longest time for which a VM of the
   * job can be billed.
   */
  strict?: { longestSeconds: number } | undefined
}

/** Expected cost of one job on one offer. */
export interface OfferCost {
  prices: HourlyPrices
  cost: CostParts
  /** Reading the buckets once, US dollars. */
  trafficUsd: number
  /** US dollars. */
  totalUsd: number
  /** Expected cost of the work that preemptions undo, US dollars. It counts for the order only. Absent: nothing. */
  lostWorkUsd?: number
  /** Highest price of a spot machine by a strict limit or the job's `maxHourlyPriceUsd`, US dollars an hour. */
  ceilingUsd?: number
}

/** Returns the cost that decides the order of offers, US dollars. */
export function rankedUsd({ totalUsd, lostWorkUsd = 0 }: Pick<OfferCost, "totalUsd" | "lostWorkUsd">): number {
  return totalUsd + lostWorkUsd
}

const NO_ACCOUNT: readonly VmShape[] = [vmShape()]

/** A VM that accounts of a cloud start on the machines of one disk class, with the price of its disk by place. */
export interface PricedShape {
  shape: VmShape
  /** US dollars an hour. */
  diskUsd: Float64Array
}

/** VMs of one disk class, and the least that one adds to the machine's own cost by place, US dollars. */
export interface ClassCosts {
  shapes: readonly PricedShape[]
  /** Disk, address and traffic. */
  atLeastUsd: Float64Array
}

/**
 * Expected total costs of one job on each offer of a catalogue. A total, with or without lost work, is never less than `hours` times the price plus
 * `atLeastUsd` of its machine's disk class and place, except for its rounding.
 */
export class Costs {
  /** Expected use of the VM. */
  readonly hours: number
  readonly #catalogue: Catalogue
  readonly #terms: CostTerms
  /** By cloud: the different VMs that its accounts start. */
  readonly #shapes: ReadonlyMap<string, readonly VmShape[]>
  /** By place, US dollars: reading the buckets once. */
  readonly #trafficUsd: Float64Array
  /** By place, US dollars an hour. */
  readonly #addressUsd: Readonly<Record<Offer["provisioning"], Float64Array>>
  /** By disk class, once it is needed. */
  readonly #classes: (ClassCosts | undefined)[] = []

  constructor(catalogue: Catalogue, terms: CostTerms) {
    const { expectedSeconds, buckets = [], launchAccounts } = terms
    this.hours = Math.max(0, expectedSeconds) / 3600
    this.#catalogue = catalogue
    this.#terms = terms
    this.#shapes = shapesOf(launchAccounts)
    this.#trafficUsd = egressByPlace(catalogue, buckets)
    this.#addressUsd = {
      onDemand: catalogue.addressUsdByPlace("onDemand"),
      spot: catalogue.addressUsdByPlace("spot"),
    }
  }

  /** Returns the costs that depend on the disk of a machine. */
  ofMachine(machine: number): ClassCosts {
    const number = this.#catalogue.diskClass[machine] as number
    const known = this.#classes[number]
    if (known !== undefined) return known
    const made = this.#ofClass(this.#catalogue.diskClasses[number] as DiskClass)
    this.#classes[number] = made
    return made
  }

  /** Returns the cost of a row's offer with such a VM. */
  of(row: number, { shape, diskUsd }: PricedShape): OfferCost {
    const { hourlyPriceUsd, minimumBilledSeconds, place, spot } = this.#catalogue.table
    const at = place[row] as number
    const addressUsd = spot[row] === 1 ? this.#addressUsd.spot : this.#addressUsd.onDemand
    const prices = {
      machineUsd: hourlyPriceUsd[row] as number,
      diskUsd: diskUsd[at] as number,
      addressUsd: shape.publicAddress ? (addressUsd[at] as number) : 0,
    }
    const billed = {
      seconds: this.#terms.expectedSeconds,
      minimumBilledSeconds: minimumBilledSeconds[row] as number,
    }
    const cost = costOf(prices, billed)
    const trafficUsd = this.#trafficUsd[at] as number
    const vmUsd = sumOfParts(cost)
    const lostWorkUsd = this.#lostWorkUsd(row, vmUsd)
    const totalUsd = roundUsd(vmUsd + trafficUsd)
    return { prices, cost, trafficUsd, totalUsd, ...(lostWorkUsd > 0 && { lostWorkUsd }) }
  }

  #lostWorkUsd(row: number, vmUsd: number): number {
    const { lostWork } = this.#terms
    if (lostWork === undefined || this.#catalogue.table.spot[row] === 0) return 0
    return roundUsd(vmUsd * lostShare(lostWork, this.#catalogue.offerAt(row)))
  }

  #ofClass(diskClass: DiskClass): ClassCosts {
    const shapes = (this.#shapes.get(diskClass.cloud) ?? NO_ACCOUNT).map((shape) => ({
      shape,
      diskUsd: this.#diskUsd(diskClass, shape),
    }))
    const atLeastUsd = this.#trafficUsd.slice()
    for (let place = 0; place < atLeastUsd.length; place++) {
      const addressUsd = Math.min(this.#addressUsd.onDemand[place] as number, this.#addressUsd.spot[place] as number)
      let least = Number.POSITIVE_INFINITY
      for (const { shape, diskUsd } of shapes) {
        least = Math.min(least, (diskUsd[place] as number) + (shape.publicAddress ? addressUsd : 0))
      }
      atLeastUsd[place] = (atLeastUsd[place] as number) + this.hours * least
    }
    return { shapes, atLeastUsd }
  }

  /** Returns the prices of the disk by place, US dollars an hour; zeros if the cloud's VMs have none. */
  #diskUsd({ cloud, boot }: DiskClass, { diskGib: sizeGib, diskType: type }: VmShape): Float64Array {
    if (boot === undefined) return new Float64Array(this.#trafficUsd.length)
    const requiredGib = this.#terms.requiredGib?.(cloud)
    const disk = orderedDisk(boot, {
      ...defined({ requiredGib, sizeGib, type }),
    })
    return this.#catalogue.diskUsdByPlace(cloud, disk, this.#terms.strict !== undefined)
  }
}

function shapesOf(launchAccounts: readonly LaunchAccount[]): Map<string, VmShape[]> {
  const byCloud = new Map<string, Map<string, VmShape>>()
  for (const { cloud, settings } of launchAccounts) {
    const shape = vmShape(settings)
    const shapes = byCloud.get(cloud) ?? new Map<string, VmShape>()
    byCloud.set(cloud, shapes.set(shapeKey(shape), shape))
  }
  // Sorted, so that equal costs always have the same order.
  const sorted = (shapes: Map<string, VmShape>) =>
    [...shapes].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, shape]) => shape)
  return new Map([...byCloud].map(([cloud, shapes]) => [cloud, sorted(shapes)]))
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
