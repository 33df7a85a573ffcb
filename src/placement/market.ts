import type { Clock } from "../apis/clock.ts"
import { CRON_JOB_ANNOTATIONS } from "../apis/cronjob.ts"
import type { StoredJob } from "../apis/job.ts"
import type { Launch, StoredLaunch } from "../apis/launch.ts"
import { LIMITS } from "../apis/limits.ts"
import { keyOf } from "../apis/meta.ts"
import { monthOf, type StoredStatement } from "../apis/statement.ts"
import type { Offers } from "../catalogue/offers.ts"
import type { Catalogue } from "../router/catalogue.ts"
import type { Cooldown, LaunchAccount } from "../router/cooldown.ts"
import type { BucketPlace } from "../router/egress.ts"
import type { LostWork } from "../router/lost-work.ts"
import { pausedAccounts, type Tenants } from "./breaker.ts"
import type { Budget } from "./budget.ts"
import { type CappedLevel, type LevelCaps, NOTHING_RECORDED, type Recorded, recordedIn, spendingOf } from "./caps.ts"
import { cooldownsOf } from "./cooldowns.ts"
import type { ImageState } from "./inputs.ts"
import { PreemptionHistory } from "./preemptions.ts"
import type { JobSettings } from "./settings.ts"
import { earlierItems, hasBegun } from "./statements.ts"

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
  /** Levels with caps, and the spending under them. */
  levels: readonly CappedLevel[]
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
  launches: readonly StoredLaunch[]
  /** Levels of the project with caps, and the spending under them. */
  levels?: readonly CappedLevel[]
  tenants?: Tenants | undefined
  /** Preemptions that this process has seen. */
  preemptions?: PreemptionHistory
}

/** Calculates the market of one project at one time. Pure. */
export function appraise(facts: MarketFacts, now: Date, settings: JobSettings): Market {
  const { namespace, launchAccounts, launches, preemptions } = facts
  return {
    offers: facts.offers,
    launchAccounts,
    ...(facts.deniedAccounts && { deniedAccounts: facts.deniedAccounts }),
    ...(facts.agentImage && { agentImage: facts.agentImage }),
    ...(preemptions && { preemptionRates: () => preemptions.rates(launches, now) }),
    cooldowns: cooldownsOf(launches, { namespace, launchAccounts }, now, settings),
    paused: pausedAccounts(launchAccounts, namespace, launches, { now, settings, tenants: facts.tenants }),
    levels: facts.levels ?? [],
    rateWaitSeconds: rateWait(launches, namespace, now, settings.launchesPerMinute),
  }
}

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
  /** Returns the levels of a namespace's project that have caps. */
  caps?: (namespace: string) => readonly LevelCaps[]
  /** Organizations of the projects. Absent: the installation counts as one organization. */
  tenants?: Tenants
  clock: Clock
  /** Returns the known architectures of the agent's image. Absent if VMs need none, or no registry is asked. */
  agentImage?: () => ImageState
  jobs: { store: CachedObjects<StoredJob> }
  /** Statements of all projects, with the indexes `STATEMENT_INDEXES` of the statement controller. */
  statements: { store: Pick<CachedObjects<StoredStatement>, "list" | "byIndex"> }
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
    levels: cappedLevels(namespace, sources, ledger, settings),
    tenants: sources.tenants,
    preemptions: ledger.preemptions,
  }
  return appraise(facts, now, settings)
}

function launchesOf(level: LevelCaps, namespace: string, ledger: LaunchLedger): readonly StoredLaunch[] {
  if (level.level === "project") return ledger.ofNamespace(namespace)
  return ledger.all().filter(({ spec }) => level.owns(spec.job.namespace, spec.organization))
}

/** Returns the levels of a namespace's project that have caps, with the spending under them. */
export function cappedLevels(
  namespace: string,
  sources: SpendingSources,
  ledger: LaunchLedger,
  { expectedSeconds }: Pick<JobSettings, "expectedSeconds">,
): CappedLevel[] {
  return (sources.caps?.(namespace) ?? []).map((level) => {
    const recorded = recordedOf(level, sources)
    const launches = launchesOf(level, namespace, ledger)
    return { ...level, spending: spendingOf(launches, sources.clock.now(), expectedSeconds, recorded) }
  })
}

/** Sources of the spending under caps. */
export type SpendingSources = Pick<MarketSources, "caps" | "launches" | "jobs" | "statements" | "clock">

/**
 * Returns this month's cost (UTC) that is in a level's Statements. Before the first one of a project it is the cost of the
 * jobs that ended in a version without Statements.
 */
export function recordedOf(
  level: LevelCaps,
  { launches, jobs, statements, clock }: Omit<SpendingSources, "caps">,
): Recorded {
  if (level.caps.maxMonthlyUsd === undefined) return NOTHING_RECORDED
  const month = monthOf(clock.now())
  const own = statements.store
    .list()
    .filter(({ spec }) => spec.month === month && level.owns(spec.namespace, spec.organization))
  // The version without Statements had caps of projects only.
  if (level.level !== "project" || own.some(hasBegun)) return recordedIn(own, [])
  const unrecorded = jobs.store.list().filter(({ metadata: { namespace = "" } }) => level.owns(namespace, undefined))
  const launchesOfJob = ({ metadata }: StoredJob) => launches.store.byIndex("jobUid", metadata.uid)
  return recordedIn(own, earlierItems(unrecorded, launchesOfJob, month))
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
