import { secondsBetween } from "../apis/clock.ts"
import { isOver, type StoredLaunch } from "../apis/launch.ts"
import type { Offer } from "../apis/offer.ts"
import type { PreemptionRate } from "../router/lost-work.ts"
import { isPreempted } from "./losses.ts"

/** Time that spot VMs of one machine type ran in one region, and their preemptions. */
export interface Exposure {
  hours: number
  preemptions: number
}

/** Number of machine types in regions that a process remembers. The one that ran longest ago is forgotten first. */
export const MOST_POOLS = 1000

/** Time after which what was seen counts half, hours. */
const HALF_LIFE_HOURS = 7 * 24

/** Time for which rates are used again, seconds. Each placement on spot asks for them, and so short a time says little. */
const RATES_SECONDS = 10

type Rates = (offer: Offer) => PreemptionRate

/** Ended VMs of one pool. They count as of `time`. */
interface Pool extends Exposure {
  /** Milliseconds. */
  time: number
}

/**
 * Preemptions of this installation's spot VMs. The records of ended jobs are deleted after about an hour, so a process
 * remembers what it has seen: of each pool a sum, which fades. After a restart it begins with the records that exist.
 */
export class PreemptionHistory {
  readonly #pools = new Map<string, Pool>()
  /** Names of ended Launches that are in the sums and still recorded. */
  #counted: ReadonlySet<string> = new Set()
  #latest: { at: Date; rates: Rates } | undefined

  /**
   * Returns the rates, at most `RATES_SECONDS` old.
   * @param launches returns all that are recorded now
   */
  rates(launches: () => readonly StoredLaunch[], now: Date): Rates {
    const known = this.#latest
    // The clock may be set back.
    if (known !== undefined && Math.abs(secondsBetween(known.at, now)) < RATES_SECONDS) return known.rates
    const rates = this.#count(launches(), now)
    this.#latest = { at: now, rates }
    return rates
  }

  #count(launches: readonly StoredLaunch[], now: Date): Rates {
    const spot = launches.filter(({ spec, status }) => spec.offer.provisioning === "spot" && status?.vm !== undefined)
    const ended = spot.filter(isOver)
    for (const launch of ended) if (!this.#counted.has(launch.metadata.name)) this.#add(launch)
    this.#counted = new Set(ended.map(({ metadata }) => metadata.name))
    const running = new Map<string, number>()
    for (const launch of spot) {
      const key = poolOf(launch.spec.offer)
      if (!isOver(launch)) running.set(key, (running.get(key) ?? 0) + hoursOf(launch, now))
    }
    return (offer) => {
      const key = poolOf(offer)
      const past = faded(this.#pools.get(key), now.getTime())
      return rateOf({ hours: past.hours + (running.get(key) ?? 0), preemptions: past.preemptions })
    }
  }

  #add(launch: StoredLaunch): void {
    const key = poolOf(launch.spec.offer)
    const end = new Date(launch.status?.vm?.terminationTime ?? launch.metadata.creationTimestamp)
    const known = this.#pools.get(key)
    const time = Math.max(known?.time ?? 0, end.getTime())
    const before = faded(known, time)
    this.#pools.delete(key)
    this.#pools.set(key, {
      time,
      hours: before.hours + hoursOf(launch, end),
      preemptions: before.preemptions + Number(isPreempted(launch)),
    })
    for (const oldest of this.#pools.keys()) {
      if (this.#pools.size <= MOST_POOLS) break
      this.#pools.delete(oldest)
    }
  }
}

function poolOf({ cloud, region, instanceType }: Offer): string {
  return JSON.stringify([cloud, region, instanceType])
}

function faded(pool: Pool | undefined, time: number): Exposure {
  if (pool === undefined) return { hours: 0, preemptions: 0 }
  const left = 0.5 ** (Math.max(0, time - pool.time) / 3_600_000 / HALF_LIFE_HOURS)
  return { hours: pool.hours * left, preemptions: pool.preemptions * left }
}

function hoursOf({ status, metadata }: StoredLaunch, until: Date): number {
  return Math.max(0, secondsBetween(status?.vm?.createTime ?? metadata.creationTimestamp, until)) / 3600
}

/**
 * Rate that is assumed before anything was seen, preemptions an hour: a VM runs 200 hours. Google has stated 5 to 15 % of
 * VMs a day for preemptible VMs. AWS' Spot Instance advisor has bands from below 5 % to above 20 % a month.
 */
const ASSUMED_RATE = 1 / 200

/** Time for which the assumed rate counts, hours: one preemption in a new pool doubles its rate. */
const ASSUMED_HOURS = 200

/** Returns the estimate of a pool's rate: the mean of a gamma distribution, with what was seen added to the assumption. Pure. */
export function rateOf({ hours, preemptions }: Exposure): PreemptionRate {
  const perHour = (preemptions + ASSUMED_RATE * ASSUMED_HOURS) / (hours + ASSUMED_HOURS)
  return { perHour, hours, preemptions }
}
