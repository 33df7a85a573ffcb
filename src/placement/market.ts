import { type Clock, secondsBetween } from "../apis/clock.ts"
import { CRON_JOB_ANNOTATIONS } from "../apis/cronjob.ts"
import type { StoredJob } from "../apis/job.ts"
import { isOver, type Launch, type StoredLaunch } from "../apis/launch.ts"
import { LIMITS } from "../apis/limits.ts"
import { keyOf } from "../apis/meta.ts"
import { billedUsd, roundUsd } from "../apis/money.ts"
import type { SpendCaps } from "../apis/project.ts"
import type { Offers } from "../catalogue/offers.ts"
import type { Catalogue } from "../router/catalogue.ts"
import type { BucketPlace } from "../router/egress.ts"
import type { Payer, Rest } from "../router/rest.ts"
import type { Room } from "../router/route.ts"
import type { ImageState } from "./inputs.ts"
import type { JobSettings } from "./settings.ts"
import { pausedPayers, restingOffers } from "./unavailable.ts"

/** Who can pay for a project's VMs. */
export interface Payers {
  /** Ready connections of the namespace that can run VMs, and clouds that need none. */
  of(namespace: string): readonly Payer[]
  /** Connections of the namespace that are Ready, but not allowed to start VMs. */
  refused?(namespace: string): readonly RefusedPayer[]
}

/** A connection that can't pay for VMs although its credentials are good. */
export interface RefusedPayer {
  cloud: string
  connection: string
  /** Why, and what to do. */
  message: string
}

/** All that a placement is decided by, besides the job. */
export interface Market {
  offers: Catalogue
  payers: readonly Payer[]
  /** Who would pay if the credentials were allowed to start VMs. */
  refusedPayers?: readonly RefusedPayer[]
  resting: readonly Rest[]
  caps: SpendCaps
  /** Nothing, where the caps limit nothing. */
  spending: Spending
  /** Where the job's buckets are, as far as that is known. */
  buckets?: readonly BucketPlace[]
  /** What the job's image runs on, as far as that is known. */
  image?: ImageState
  /** What the agent's image runs on; absent: VMs need none, or nobody asks. */
  agentImage?: ImageState
  /** Payers that nothing is launched for, although they would pay. */
  paused: readonly Rest[]
  /** Seconds until the launch rate allows another one; 0: now. */
  rateWaitSeconds: number
}

/** What a market is reckoned from. */
export interface MarketFacts {
  /** Of the project. */
  namespace: string
  offers: Catalogue
  payers: readonly Payer[]
  refusedPayers?: readonly RefusedPayer[]
  agentImage?: ImageState | undefined
  /** All Launches there are, and those of the job's project among them. */
  launches: readonly StoredLaunch[]
  projectLaunches: readonly StoredLaunch[]
  projectCaps: SpendCaps | undefined
  /** What jobs of the project spent this month whose Launches' records are deleted, US dollars. */
  recordedUsd: number
}

/** Reckons the market of one project at one moment. Pure. */
export function appraise(facts: MarketFacts, now: Date, settings: JobSettings): Market {
  const caps = effectiveCaps(facts.projectCaps, settings.caps)
  const isCapped = Object.values(caps).some((cap) => cap !== undefined)
  // Without a cap nobody asks what is spent, which takes longer to reckon than all else.
  const spending = isCapped ? spendingOf(facts.projectLaunches, now, settings.expectedSeconds) : UNCAPPED
  const { namespace, payers, launches } = facts
  return {
    offers: facts.offers,
    payers,
    ...(facts.refusedPayers && { refusedPayers: facts.refusedPayers }),
    ...(facts.agentImage && { agentImage: facts.agentImage }),
    resting: restingOffers(launches, now, settings),
    paused: pausedPayers(payers, namespace, launches, { now, settings }),
    caps,
    spending: { ...spending, monthlyUsd: spending.monthlyUsd + facts.recordedUsd },
    rateWaitSeconds: rateWait(launches, namespace, now, settings.launchesPerMinute),
  }
}

const UNCAPPED: Spending = { vms: 0, hourlyUsd: 0, monthlyUsd: 0 }

/**
 * Seconds until the installation has made fewer than `perMinute` Launches in the last minute, or the project fewer than its
 * share: an equal part for each project that made any. So nobody's launches, or refusals, keep others from theirs.
 */
function rateWait(launches: readonly StoredLaunch[], namespace: string, now: Date, perMinute: number): number {
  const minuteAgo = now.getTime() - 60_000
  const recent = launches.filter(({ metadata }) => Date.parse(metadata.creationTimestamp) > minuteAgo)
  if (recent.length < perMinute) return 0
  const projects = new Set(recent.map(({ spec }) => spec.job.namespace))
  const own = recent.filter(({ spec }) => spec.job.namespace === namespace)
  const until = (made: readonly StoredLaunch[], fewerThan: number) => {
    const times = made.map(({ metadata }) => Date.parse(metadata.creationTimestamp)).sort((a, b) => b - a)
    const oldest = times[fewerThan - 1]
    return oldest === undefined ? 0 : Math.max(1, (oldest - minuteAgo) / 1000)
  }
  return Math.min(until(recent, perMinute), until(own, Math.max(1, Math.floor(perMinute / projects.size))))
}

/** Reads of a cache of objects, which `Store` in kube/ offers. */
export interface CachedObjects<T> {
  list(): T[]
  getByKey(key: string): T | undefined
  byIndex(index: string, value: string): T[]
}

/** Sources of a market in any process: caches and answers that are known already. */
export interface MarketSources {
  offers: Offers
  payers: Payers
  /** Caps of the project that a namespace belongs to. */
  caps?: (namespace: string) => SpendCaps | undefined
  clock: Clock
  /** What is known now of what the agent's image runs on; absent: VMs need none, or nobody asks. */
  agentImage?: () => ImageState
  jobs: { store: CachedObjects<StoredJob> }
  /** With the indexes `launchIndexes` of the launch controller. */
  launches: { store: CachedObjects<StoredLaunch> }
}

/** The market of a namespace's project as it is now. */
export function marketOf(
  namespace: string,
  sources: MarketSources,
  ledger: LaunchLedger,
  settings: JobSettings,
): Market {
  const now = sources.clock.now()
  const facts = {
    namespace,
    offers: sources.offers.current(),
    payers: sources.payers.of(namespace),
    refusedPayers: sources.payers.refused?.(namespace) ?? [],
    agentImage: sources.agentImage?.(),
    launches: ledger.all(),
    projectLaunches: ledger.ofNamespace(namespace),
    projectCaps: sources.caps?.(namespace),
    recordedUsd: recordedUsd(namespace, sources, settings),
  }
  return appraise(facts, now, settings)
}

/** What jobs of the project cost that ended this month (UTC) and whose Launches' records are deleted, US dollars. */
function recordedUsd(namespace: string, sources: MarketSources, settings: JobSettings): number {
  const { caps, launches, jobs, clock } = sources
  if ((caps?.(namespace)?.maxMonthlyUsd ?? settings.caps.maxMonthlyUsd) === undefined) return 0
  const month = clock.now().toISOString().slice(0, 7)
  return jobs.store
    .list()
    .filter((job) => job.metadata.namespace === namespace && job.status?.completionTime?.startsWith(month))
    .filter((job) => launches.store.byIndex("jobUid", job.metadata.uid).length === 0)
    .reduce((total, job) => total + (job.status?.cost?.actualUsd ?? 0), 0)
}

/** What a project spends now. US dollars. */
export interface Spending {
  vms: number
  hourlyUsd: number
  /** Spent in this calendar month (UTC), with what its live VMs are expected to cost. */
  monthlyUsd: number
}

/** A project's own caps, and the installation's where it has none. */
export function effectiveCaps(own: SpendCaps | undefined, defaults: SpendCaps): SpendCaps {
  return { ...defaults, ...own }
}

/**
 * What the Launches of one project come to.
 * @param expectedSeconds how long a VM is taken to live whose job has no timeout
 */
export function spendingOf(launches: readonly StoredLaunch[], now: Date, expectedSeconds: number): Spending {
  const live = launches.filter((launch) => !isOver(launch))
  const month = launches.filter((launch) => isThisMonth(launch, now))
  return {
    vms: live.length,
    hourlyUsd: roundUsd(sum(live.map((launch) => launch.spec.offer.hourlyPriceUsd))),
    monthlyUsd: roundUsd(sum(month.map((launch) => costOf(launch, now, expectedSeconds)))),
  }
}

/** What is left under the caps; never below 0. */
export function roomUnder(caps: SpendCaps, spending: Spending): Room {
  const { maxHourlyUsd, maxMonthlyUsd } = caps
  return {
    ...(maxHourlyUsd !== undefined && { hourlyUsd: Math.max(0, roundUsd(maxHourlyUsd - spending.hourlyUsd)) }),
    ...(maxMonthlyUsd !== undefined && { monthlyUsd: Math.max(0, roundUsd(maxMonthlyUsd - spending.monthlyUsd)) }),
  }
}

/** A live VM counts in the month that it lives in, an ended one in that of its end. */
function isThisMonth(launch: StoredLaunch, now: Date): boolean {
  if (!isOver(launch)) return true
  const end = new Date(launch.status?.vm?.terminationTime ?? launch.metadata.creationTimestamp)
  return end.getUTCFullYear() === now.getUTCFullYear() && end.getUTCMonth() === now.getUTCMonth()
}

function costOf(launch: StoredLaunch, now: Date, expectedSeconds: number): number {
  if (isOver(launch)) return launch.status?.costUsd ?? 0
  const { hourlyPriceUsd, minimumBilledSeconds } = launch.spec.offer
  const lived = secondsBetween(launch.status?.vm?.createTime ?? launch.metadata.creationTimestamp, now)
  return billedUsd(hourlyPriceUsd, Math.max(lived, expectedSeconds), minimumBilledSeconds)
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}

/** A job that there is, or one that somebody only asks about. */
type AskedFor = Pick<StoredJob, "spec"> & { metadata?: Pick<StoredJob["metadata"], "annotations"> }

/**
 * How long a job is taken to run, seconds, for what it will cost: its timeout, or else how long its like took that the
 * same CronJob made before, or else the setting. Pure.
 */
export function expectedSecondsOf(
  { spec, metadata }: AskedFor,
  settings: Pick<JobSettings, "expectedSeconds">,
): number {
  if (spec.timeoutSeconds !== undefined) return spec.timeoutSeconds
  const earlier = metadata?.annotations?.[CRON_JOB_ANNOTATIONS.expectedSeconds] ?? ""
  // Anybody may write annotations.
  if (!/^[1-9]\d{0,9}$/.test(earlier)) return settings.expectedSeconds
  return Math.min(Number(earlier), LIMITS.timeoutSeconds)
}

/** How long a Launch is counted that was written and never shows in the cache (its write may have failed), seconds. */
const PATIENCE_SECONDS = 60

/**
 * All Launches, with those that this process is just making and the cache doesn't show yet: caps and the breaker must
 * count them, or several jobs placed in the same moment would each find the last free place.
 */
export class LaunchLedger {
  readonly #store: CachedObjects<StoredLaunch>
  readonly #clock: Clock
  readonly #pending = new Map<string, { launch: StoredLaunch; since: number }>()

  constructor(store: CachedObjects<StoredLaunch>, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** Counts a Launch from now on; call it before anything is awaited after the decision to make it. */
  reserve(launch: Launch): void {
    // Nobody but this ledger's readers sees the fields that the API server will give it.
    const metadata = {
      ...launch.metadata,
      uid: "",
      resourceVersion: "",
      generation: 1,
      creationTimestamp: this.#clock.now().toISOString(),
    }
    this.#pending.set(keyOf(launch), { launch: { ...launch, metadata }, since: this.#clock.monotonic() })
  }

  /** The Launch was not made. */
  release(launch: Launch): void {
    this.#pending.delete(keyOf(launch))
  }

  all(): StoredLaunch[] {
    return [...this.#store.list(), ...this.#unseen()]
  }

  ofNamespace(namespace: string): StoredLaunch[] {
    const unseen = this.#unseen().filter((launch) => launch.spec.job.namespace === namespace)
    return [...this.#store.byIndex("namespace", namespace), ...unseen]
  }

  #unseen(): StoredLaunch[] {
    const patience = this.#clock.monotonic() - PATIENCE_SECONDS
    for (const [key, { since }] of this.#pending) {
      if (since < patience || this.#store.getByKey(key) !== undefined) this.#pending.delete(key)
    }
    return [...this.#pending.values()].map(({ launch }) => launch)
  }
}
