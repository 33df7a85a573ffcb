import { secondsBetween } from "../../core/apis/clock.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Offer } from "../../core/apis/offer.ts"
import type { LaunchAccount } from "../router/cooldown.ts"
import type { PreemptionRate } from "../router/lost-work.ts"
import { accountKey, accountKeyOf } from "./account-key.ts"
import { preemptedBy } from "./losses.ts"

/** Time that spot VMs of one machine type ran in one region, and their preemptions. */
export interface Exposure {
  hours: number
  preemptions: number
}

/** Number of records that a process remembers: a machine type in a region, of one project. The oldest are forgotten first. */
export const MOST_RECORDS = 5000

/** Time after which what was seen counts half, hours. */
const HALF_LIFE_HOURS = 7 * 24

/** Time for which rates are used again, seconds. Each placement on spot asks for them, and so short a time says little. */
const RATES_SECONDS = 10

/**
 * Most that the VMs of one other person count. So a person can't make a machine type look bad, or good, for others: by a cloud
 * account in which the person can preempt VMs, for example.
 */
const MOST_OF_ANOTHER: Exposure = { hours: 200, preemptions: 1 }

type Rates = (offer: Offer) => PreemptionRate

/** Project that asks for rates, and its accounts. */
export interface Viewer {
  namespace: string
  launchAccounts: readonly LaunchAccount[]
  /** Returns the person whose project is in a namespace. Absent: each project counts as one person's. */
  personOf?: ((namespace: string) => string | undefined) | undefined
}

/** VMs of one project, machine type and region. */
interface PoolRecord {
  pool: string
  namespace: string
  /** Key of the account, if a connection of the project has it. */
  account: string | undefined
  /** Ended VMs that the cloud preempted, or that no one did. They fade, and count as of `time`. */
  sure: Exposure
  /** VMs of which only their agents say that they were preempted. */
  claimed: Exposure
  /** Milliseconds. */
  time: number
}

/**
 * Preemptions of this installation's spot VMs. The records of ended jobs are deleted after about an hour, so a process
 * remembers what it has seen: sums, which fade. After a restart it begins with the records that exist.
 * A project counts all VMs of its own and of its accounts. Of others' VMs it counts those of which the cloud knows the end,
 * because the agent's keys are on the VM.
 */
export class PreemptionHistory {
  /** The one that changed last is the last. */
  readonly #records = new Map<string, PoolRecord>()
  /** Names of ended Launches that are in the sums and still recorded. */
  #counted: ReadonlySet<string> = new Set()
  #latest: { at: Date; pools: ReadonlyMap<string, readonly PoolRecord[]> } | undefined

  /**
   * Returns the rates as a project sees them, at most `RATES_SECONDS` old.
   * @param launches returns all that are recorded now
   */
  rates(launches: () => readonly StoredLaunch[], viewer: Viewer, now: Date): Rates {
    const known = this.#latest
    // The clock may be set back.
    const isFresh = known !== undefined && Math.abs(secondsBetween(known.at, now)) < RATES_SECONDS
    const { at, pools } = isFresh ? known : this.#count(launches(), now)
    const { namespace, launchAccounts, personOf } = viewer
    const accounts = new Set(
      launchAccounts.flatMap((one) => (one.connection === undefined ? [] : accountKey({ ...one, namespace }))),
    )
    const isOwn = (record: PoolRecord) => record.namespace === namespace || accounts.has(record.account ?? "")
    const personIn = (record: PoolRecord) => personOf?.(record.namespace) ?? record.namespace
    return (offer) => preemptionRate(sumExposure(pools.get(poolOf(offer)) ?? [], at, { isOwn, personIn }))
  }

  #count(launches: readonly StoredLaunch[], at: Date): { at: Date; pools: ReadonlyMap<string, readonly PoolRecord[]> } {
    const spot = launches.filter(({ spec, status }) => spec.offer.provisioning === "spot" && status?.vm !== undefined)
    const ended = spot.filter(isOver)
    for (const launch of ended) if (!this.#counted.has(launch.metadata.name)) this.#add(launch)
    this.#counted = new Set(ended.map(({ metadata }) => metadata.name))
    const running = spot.filter((launch) => !isOver(launch)).map((launch) => recordOf(launch, at))
    this.#latest = { at, pools: Map.groupBy([...this.#records.values(), ...running], ({ pool }) => pool) }
    return this.#latest
  }

  #add(launch: StoredLaunch): void {
    const added = recordOf(launch, new Date(launch.status?.vm?.terminationTime ?? launch.metadata.creationTimestamp))
    const key = JSON.stringify([added.pool, added.namespace, added.account])
    const known = this.#records.get(key)
    const time = Math.max(known?.time ?? 0, added.time)
    this.#records.delete(key)
    this.#records.set(key, {
      ...added,
      time,
      sure: sum([faded(known?.sure, known?.time, time), added.sure]),
      claimed: sum([faded(known?.claimed, known?.time, time), added.claimed]),
    })
    for (const oldest of this.#records.keys()) {
      if (this.#records.size <= MOST_RECORDS) break
      this.#records.delete(oldest)
    }
  }
}

/** Returns the record of one VM until a time. */
function recordOf(launch: StoredLaunch, until: Date): PoolRecord {
  const { offer, connection, job } = launch.spec
  const hours = hoursOf(launch, until)
  const witness = preemptedBy(launch)
  const exposure = { hours, preemptions: Number(witness !== undefined) }
  return {
    pool: poolOf(offer),
    namespace: job.namespace,
    account: connection === undefined ? undefined : accountKeyOf(launch),
    sure: witness === "agent" ? NOTHING : exposure,
    claimed: witness === "agent" ? exposure : NOTHING,
    time: until.getTime(),
  }
}

/** Relation of a project to the VMs of a record. */
interface Relation {
  isOwn: (record: PoolRecord) => boolean
  personIn: (record: PoolRecord) => string
}

/** Returns what a project counts of a pool. */
function sumExposure(records: readonly PoolRecord[], at: Date, { isOwn, personIn }: Relation): Exposure {
  const [own, others] = [records.filter(isOwn), records.filter((record) => !isOwn(record))]
  const fadedSum = (of: readonly PoolRecord[], part: "sure" | "claimed") =>
    sum(of.map((record) => faded(record[part], record.time, at.getTime())))
  return sum([
    fadedSum(own, "sure"),
    fadedSum(own, "claimed"),
    ...[...Map.groupBy(others, personIn).values()].map((of) => limitExposure(fadedSum(of, "sure"))),
  ])
}

/** Returns an exposure that counts no more than MOST_OF_ANOTHER. Long hours keep their rate, as far as that allows. */
function limitExposure({ hours, preemptions }: Exposure): Exposure {
  const share = Math.min(1, MOST_OF_ANOTHER.hours / Math.max(hours, Number.MIN_VALUE))
  return { hours: hours * share, preemptions: Math.min(MOST_OF_ANOTHER.preemptions, preemptions * share) }
}

const NOTHING: Exposure = { hours: 0, preemptions: 0 }

function sum(parts: readonly Exposure[]): Exposure {
  return parts.reduce(
    (all, { hours, preemptions }) => ({ hours: all.hours + hours, preemptions: all.preemptions + preemptions }),
    NOTHING,
  )
}

function poolOf({ cloud, region, instanceType }: Offer): string {
  return JSON.stringify([cloud, region, instanceType])
}

/** Returns what is left of an exposure after the time from `since` to `time`, milliseconds. */
function faded(exposure: Exposure | undefined, since = 0, time: number): Exposure {
  if (exposure === undefined) return NOTHING
  const left = 0.5 ** (Math.max(0, time - since) / 3_600_000 / HALF_LIFE_HOURS)
  return { hours: exposure.hours * left, preemptions: exposure.preemptions * left }
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
export function preemptionRate({ hours, preemptions }: Exposure): PreemptionRate {
  const perHour = (preemptions + ASSUMED_RATE * ASSUMED_HOURS) / (hours + ASSUMED_HOURS)
  return { perHour, hours, preemptions }
}
