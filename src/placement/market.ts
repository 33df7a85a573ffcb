import { type Clock, secondsBetween } from "../apis/clock.ts"
import { CRON_JOB_ANNOTATIONS } from "../apis/cronjob.ts"
import type { StoredJob } from "../apis/job.ts"
import { isOver, type Launch, pricesOf, type StoredLaunch } from "../apis/launch.ts"
import { LIMITS } from "../apis/limits.ts"
import { keyOf } from "../apis/meta.ts"
import { roundUsd } from "../apis/money.ts"
import { costOf, sumOfParts } from "../apis/price.ts"
import type { SpendCaps } from "../apis/project.ts"
import { monthOf, type StoredStatement } from "../apis/statement.ts"
import type { Offers } from "../catalogue/offers.ts"
import type { Catalogue } from "../router/catalogue.ts"
import type { Cooldown, LaunchAccount } from "../router/cooldown.ts"
import type { BucketPlace } from "../router/egress.ts"
import type { LostWork } from "../router/lost-work.ts"
import type { Room } from "../router/route.ts"
import { pausedAccounts, type Tenants } from "./breaker.ts"
import type { Budget } from "./budget.ts"
import { cooldownsOf } from "./cooldowns.ts"
import type { ImageState } from "./inputs.ts"
import { PreemptionHistory } from "./preemptions.ts"
import type { JobSettings } from "./settings.ts"
import { costsOf, earlierItems, hasBegun, isMarked } from "./statements.ts"

/** Accounts that can pay for a project's VMs. */
export interface LaunchAccounts {
  /** Ready connections of the namespace that can run VMs, and clouds that need none. */
  of(namespace: string): readonly LaunchAccount[]
  /** Returns connections of the namespace that are Ready, but not allowed to create VMs. */
  refused?(namespace: string): readonly DeniedAccount[]
}

/** Connection with valid credentials that cannot pay for VMs. */
export interface DeniedAccount {
  cloud: string
  connection: string
  /** Cause, and the action that fixes it. */
  message: string
}

/** Inputs of a placement besides the job. */
export interface Market {
  offers: Catalogue
  launchAccounts: readonly LaunchAccount[]
  /** Connections that could pay if their credentials were allowed to create VMs. */
  deniedAccounts?: readonly DeniedAccount[]
  cooldowns: readonly Cooldown[]
  caps: SpendCaps
  /** Zero if no cap limits spending. */
  spending: Spending
  /** Known places of the job's buckets. */
  buckets?: readonly BucketPlace[]
  /** Known architectures of the job's image. */
  image?: ImageState
  /** Amount that the job may still spend. Absent: it has no limit of its own. */
  budget?: Budget | undefined
  /** Known architectures of the agent's image. Absent if VMs need none, or no registry is asked. */
  agentImage?: ImageState
  /** Counts the preemptions of spot VMs. Absent: they do not count in the ranking. */
  preemptionRates?: (() => LostWork["rateOf"]) | undefined
  /** Accounts whose launches are paused. */
  paused: readonly Cooldown[]
  /** Seconds until the launch rate allows another launch; 0: now. */
  rateWaitSeconds: number
}

/** Facts from which a market is calculated. */
export interface MarketFacts {
  /** Namespace of the project. */
  namespace: string
  offers: Catalogue
  launchAccounts: readonly LaunchAccount[]
  deniedAccounts?: readonly DeniedAccount[]
  agentImage?: ImageState | undefined
  /** All Launches, and the subset of the job's project. */
  launches: readonly StoredLaunch[]
  projectLaunches: readonly StoredLaunch[]
  projectCaps: SpendCaps | undefined
  /** Cost in this month of VMs whose Launches are counted elsewhere or deleted, USD. */
  recordedUsd: number
  /** Names of Launches whose cost is in `recordedUsd`, although they do not say so yet. */
  recorded?: ReadonlySet<string>
  tenants?: Tenants | undefined
  /** Preemptions that this process has seen. */
  preemptions?: PreemptionHistory
}

/** Calculates the market of one project at one time. Pure. */
export function appraise(facts: MarketFacts, now: Date, settings: JobSettings): Market {
  const caps = effectiveCaps(facts.projectCaps, settings.caps)
  const isCapped = Object.values(caps).some((cap) => cap !== undefined)
  // Spending is the slowest calculation, so it is skipped if there is no cap.
  const spending = isCapped
    ? spendingOf(facts.projectLaunches, now, settings.expectedSeconds, facts.recorded)
    : UNCAPPED
  const { namespace, launchAccounts, launches, preemptions } = facts
  return {
    offers: facts.offers,
    launchAccounts,
    ...(facts.deniedAccounts && { deniedAccounts: facts.deniedAccounts }),
    ...(facts.agentImage && { agentImage: facts.agentImage }),
    ...(preemptions && { preemptionRates: () => preemptions.rates(launches, now) }),
    cooldowns: cooldownsOf(launches, { namespace, launchAccounts }, now, settings),
    paused: pausedAccounts(launchAccounts, namespace, launches, { now, settings, tenants: facts.tenants }),
    caps,
    spending: { ...spending, monthlyUsd: spending.monthlyUsd + facts.recordedUsd },
    rateWaitSeconds: rateWait(launches, namespace, now, settings.launchesPerMinute),
  }
}

const UNCAPPED: Spending = { vms: 0, hourlyUsd: 0, monthlyUsd: 0 }

/**
 * Returns the seconds until another launch is allowed. The installation may create `perMinute` Launches in a minute.
 * Each project that created any is guaranteed an equal share, so no project can block the others.
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

/** Read access to a cache of objects. `Store` in kube/ implements it. */
export interface CachedObjects<T> {
  list(): T[]
  getByKey(key: string): T | undefined
  byIndex(index: string, value: string): T[]
}

/** Sources of a market in any process: caches and earlier answers. */
export interface MarketSources {
  offers: Offers
  launchAccounts: LaunchAccounts
  /** Returns the caps of a namespace's project. */
  caps?: (namespace: string) => SpendCaps | undefined
  /** Organizations of the projects. Absent: the installation counts as one organization. */
  tenants?: Tenants
  clock: Clock
  /** Returns the known architectures of the agent's image. Absent if VMs need none, or no registry is asked. */
  agentImage?: () => ImageState
  jobs: { store: CachedObjects<StoredJob> }
  /** Statements of all projects, with the indexes `STATEMENT_INDEXES` of the statement controller. */
  statements: { store: Pick<CachedObjects<StoredStatement>, "byIndex"> }
  /** Launches with the indexes `launchIndexes` of the launch controller. */
  launches: { store: CachedObjects<StoredLaunch> }
}

/** Returns the current market of a namespace's project. */
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
    launchAccounts: sources.launchAccounts.of(namespace),
    deniedAccounts: sources.launchAccounts.refused?.(namespace) ?? [],
    agentImage: sources.agentImage?.(),
    launches: ledger.all(),
    projectLaunches: ledger.ofNamespace(namespace),
    projectCaps: sources.caps?.(namespace),
    ...recordedIn(namespace, sources, settings),
    tenants: sources.tenants,
    preemptions: ledger.preemptions,
  }
  return appraise(facts, now, settings)
}

/**
 * Returns this month's cost (UTC) that is counted in the project's Statement. Before the first one it is the cost of the
 * jobs that ended in a version without Statements.
 */
function recordedIn(
  namespace: string,
  sources: MarketSources,
  settings: JobSettings,
): Pick<MarketFacts, "recordedUsd" | "recorded"> {
  const { caps, launches, jobs, statements, clock } = sources
  if ((caps?.(namespace)?.maxMonthlyUsd ?? settings.caps.maxMonthlyUsd) === undefined) return { recordedUsd: 0 }
  const month = monthOf(clock.now())
  const statement = statements.store.byIndex("project", namespace).find(({ spec }) => spec.month === month)
  if (hasBegun(statement)) {
    const { spentUsd = 0, counted = [] } = statement.status ?? {}
    return { recordedUsd: spentUsd, recorded: new Set(counted) }
  }
  const own = jobs.store.list().filter(({ metadata }) => metadata.namespace === namespace)
  const items = earlierItems(own, ({ metadata }) => launches.store.byIndex("jobUid", metadata.uid), month)
  return { recordedUsd: roundUsd(sum(items.map(({ usd }) => usd))) }
}

/** Current spending of a project, USD. */
export interface Spending {
  vms: number
  hourlyUsd: number
  /** Cost in this calendar month (UTC), with the expected cost of live VMs. */
  monthlyUsd: number
}

/** Returns a project's own caps, with the installation's caps as defaults. */
export function effectiveCaps(own: SpendCaps | undefined, defaults: SpendCaps): SpendCaps {
  return { ...defaults, ...own }
}

/**
 * Sums the Launches of one project.
 * @param expectedSeconds expected lifetime of a VM whose job has no timeout
 * @param recorded names of Launches whose cost is counted elsewhere
 */
export function spendingOf(
  launches: readonly StoredLaunch[],
  now: Date,
  expectedSeconds: number,
  recorded: ReadonlySet<string> = new Set(),
): Spending {
  const live = launches.filter((launch) => !isOver(launch))
  const ended = launches.filter((launch) => isOver(launch) && !isMarked(launch) && !recorded.has(launch.metadata.name))
  const month = monthOf(now)
  const costs = ended.flatMap(costsOf).filter((cost) => cost.month === month)
  const expected = live.map((launch) => expectedCostOf(launch, now, expectedSeconds))
  return {
    vms: live.length,
    hourlyUsd: roundUsd(sum(live.map((launch) => sumOfParts(pricesOf(launch))))),
    monthlyUsd: roundUsd(sum([...expected, ...costs.map(({ usd }) => usd)])),
  }
}

/** Returns the remaining budget under the caps, at least 0. */
export function roomUnder(caps: SpendCaps, spending: Spending): Room {
  const { maxHourlyUsd, maxMonthlyUsd } = caps
  return {
    ...(maxHourlyUsd !== undefined && { hourlyUsd: Math.max(0, roundUsd(maxHourlyUsd - spending.hourlyUsd)) }),
    ...(maxMonthlyUsd !== undefined && { monthlyUsd: Math.max(0, roundUsd(maxMonthlyUsd - spending.monthlyUsd)) }),
  }
}

function expectedCostOf(launch: StoredLaunch, now: Date, expectedSeconds: number): number {
  const { minimumBilledSeconds } = launch.spec.offer
  const lived = secondsBetween(launch.status?.vm?.createTime ?? launch.metadata.creationTimestamp, now)
  return sumOfParts(costOf(pricesOf(launch), { seconds: Math.max(lived, expectedSeconds), minimumBilledSeconds }))
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}

/** Existing job, or the spec of a planned one. */
type AskedFor = Pick<StoredJob, "spec"> & { metadata?: Pick<StoredJob["metadata"], "annotations"> }

/**
 * Returns the expected run time of a job for its cost, seconds: its timeout, or the mean of earlier runs of its
 * CronJob, or the setting. Pure.
 */
export function expectedSecondsOf(
  { spec, metadata }: AskedFor,
  settings: Pick<JobSettings, "expectedSeconds">,
): number {
  if (spec.timeoutSeconds !== undefined) return spec.timeoutSeconds
  const earlier = metadata?.annotations?.[CRON_JOB_ANNOTATIONS.expectedSeconds] ?? ""
  // Users can write annotations, so the value is checked.
  if (!/^[1-9]\d{0,9}$/.test(earlier)) return settings.expectedSeconds
  return Math.min(Number(earlier), LIMITS.timeoutSeconds)
}

/** Seconds for which a Launch counts that was written but never appears in the cache. Its write may have failed. */
const PATIENCE_SECONDS = 60

/**
 * Cache of all Launches, plus Launches that this process is creating. Caps and the breaker must count both. Otherwise
 * several jobs placed at once would each take the last free place.
 */
export class LaunchLedger {
  readonly #store: CachedObjects<StoredLaunch>
  readonly #clock: Clock
  readonly #pending = new Map<string, { launch: StoredLaunch; since: number }>()
  /** Preemptions that this process has seen. */
  readonly preemptions = new PreemptionHistory()

  constructor(store: CachedObjects<StoredLaunch>, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** Counts a Launch from now on. Call it before the first await after the decision to create it. */
  assume(launch: Launch): void {
    // The API server sets these fields. Only readers of this ledger see the placeholder.
    const metadata = {
      ...launch.metadata,
      uid: "",
      resourceVersion: "",
      generation: 1,
      creationTimestamp: this.#clock.now().toISOString(),
    }
    this.#pending.set(keyOf(launch), { launch: { ...launch, metadata }, since: this.#clock.monotonic() })
  }

  /** Stops counting a Launch that was not created. */
  forget(launch: Launch): void {
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
