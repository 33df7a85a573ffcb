import type { Clock } from "../../core/apis/clock.ts"
import { CRON_JOB_ANNOTATIONS } from "../../core/apis/cronjob.ts"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import type { ConcurrencyGroup, StoredJob } from "../../core/apis/job.ts"
import { isOver, type LaunchSpec, type StoredLaunch } from "../../core/apis/launch.ts"
import type { StoredMachine } from "../../core/apis/machine.ts"
import { monthOf, type StoredStatement } from "../../core/apis/statement.ts"
import { isKept, keptVms } from "../../core/reuse/reuse.ts"
import type { Offers } from "../catalogue/offers.ts"
import type { Catalogue } from "../router/catalogue.ts"
import type { Cooldown, LaunchAccount } from "../router/cooldown.ts"
import type { BucketPlace } from "../router/egress.ts"
import type { LostWork } from "../router/lost-work.ts"
import { pausedAccounts, type Tenants } from "./breaker.ts"
import type { Budget } from "./budget.ts"
import {
  type CappedLevel,
  type LevelCaps,
  NOTHING_RECORDED,
  poolOf,
  type Recorded,
  sumRecorded,
  sumSpending,
  surplusIdle,
} from "./caps.ts"
import { findCooldowns } from "./cooldowns.ts"
import type { ImageState } from "./inputs.ts"
import { ALL_NAMESPACES, type CachedObjects, type LaunchHistory, type LaunchLedger } from "./ledger.ts"
import { type LinePlace, type LineRoom, type LineTerms, placeBehind, type Waiter } from "./line.ts"
import { type OwnOffer, ownMachines, withOwnOffers } from "./machines.ts"
import type { PreemptionHistory } from "./preemptions.ts"
import type { JobSettings } from "./settings.ts"

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
  /** The job's place in its project's line. Absent: there are no caps, and it is in no concurrency group. */
  line?: LinePlace
  /** Concurrency group of the job. */
  group?: GroupState
  /** Known places of the job's buckets. */
  buckets?: readonly BucketPlace[]
  /** Known architectures of the job's image. */
  image?: ImageState
  /** VMs of the project that are idle, the latest first, or about to be. Absent: there are none. */
  kept?: readonly StoredLaunch[]
  /** Machines of the project. Absent: it has none. `offers` has their offers. */
  own?: readonly OwnOffer[]
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
  launches: LaunchHistory
  /** Levels of the project with caps, and the spending under them. */
  levels?: readonly CappedLevel[]
  tenants?: Tenants | undefined
  /** Preemptions that this process has seen. */
  preemptions?: PreemptionHistory
}

/** Calculates the market of one project at one time. Pure. */
export function appraise(facts: MarketFacts, now: Date, settings: JobSettings): Market {
  const { namespace, launchAccounts, launches, preemptions, tenants } = facts
  const viewer = { namespace, launchAccounts, personOf: tenants?.personOf }
  return {
    offers: facts.offers,
    launchAccounts,
    ...(facts.deniedAccounts && { deniedAccounts: facts.deniedAccounts }),
    ...(facts.agentImage && { agentImage: facts.agentImage }),
    ...(preemptions && { preemptionRates: () => preemptions.rates(() => launches.all(), viewer, now) }),
    cooldowns: findCooldowns(launches, { namespace, launchAccounts }, now, settings),
    paused: pausedAccounts(launchAccounts, namespace, launches, { now, settings, tenants: facts.tenants }),
    levels: facts.levels ?? [],
    rateWaitSeconds: rateWait(launches, namespace, now, settings.launchesPerMinute),
  }
}

/**
 * Returns the seconds until another launch is allowed. The installation may create `perMinute` Launches in a minute.
 * Each project that created any is guaranteed an equal share, so no project can block the others.
 */
function rateWait(launches: LaunchHistory, namespace: string, now: Date, perMinute: number): number {
  const minuteAgo = now.getTime() - 60_000
  if (launches.mostCreatedAfter(new Date(minuteAgo), now) < perMinute) return 0
  // A takeover asks no cloud for anything.
  const recent = launches.createdAfter(new Date(minuteAgo), now).filter(({ spec }) => spec.takesOver === undefined)
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

/** Concurrency group, and those of its jobs that have a VM. */
export interface GroupState extends ConcurrencyGroup {
  /** Names of the jobs that have a VM. */
  members: readonly string[]
}

/** Job that looks for a place. A planned one has no uid. */
type Candidate = Pick<Waiter, "namespace" | "group"> & Partial<Pick<Waiter, "uid">>

/** Returns the state of a job's concurrency group; undefined without one. */
function groupState({ namespace, uid: own, group }: Candidate, ledger: LaunchLedger): GroupState | undefined {
  if (group === undefined) return undefined
  const members = membersOf(group.name, namespace, ledger)
  return { ...group, members: members.filter(({ uid }) => uid !== own).map(({ name }) => name) }
}

/** Returns the room in which the jobs of a namespace's project stand in line. */
export function lineRoom(levels: readonly CappedLevel[], namespace: string, ledger: LaunchLedger): LineRoom {
  const live = new Map<string, number>()
  return {
    pools: levels.map((level) => poolOf(level, namespace)),
    liveIn: (group) => {
      const known = live.get(group) ?? membersOf(group, namespace, ledger).length
      live.set(group, known)
      return known
    },
  }
}

/** Jobs with which a job stands in line, and the terms on which they pass each other. */
export interface LineFacts {
  ledger: LaunchLedger
  terms: LineTerms
  /** Returns the jobs ahead of it: of its project in their order, and of others. It runs only if there is a line. */
  ahead: () => { own: readonly Waiter[]; others?: readonly Waiter[] }
}

/** Returns the market of a job with its place in the line, and without the room that jobs ahead of it take. */
export function marketInLine(candidate: Candidate, market: Market, { ledger, terms, ahead }: LineFacts): Market {
  const group = groupState(candidate, ledger)
  if (market.levels.length === 0 && group === undefined) return market
  const { own, others } = ahead()
  const room = lineRoom(market.levels, candidate.namespace, ledger)
  return withTaken({ ...market, ...(group && { group }) }, placeBehind(own, room, terms, others))
}

function withTaken(market: Market, line: LinePlace): Market {
  const levels = market.levels.map((level) => ({ ...level, ...defined({ taken: line.taken.get(level.level) }) }))
  return { ...market, levels, line }
}

/** Returns the jobs of a namespace's concurrency group that have a VM, or may have one. */
export function membersOf(group: string, namespace: string, ledger: LaunchLedger): readonly LaunchSpec["job"][] {
  const isMember = (launch: StoredLaunch) =>
    launch.spec.concurrencyGroup === group && !isOver(launch) && !isKept(launch)
  const live = ledger.unmarked(namespace).filter(isMember)
  return live.map(({ spec }) => spec.job)
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
  /** Statements of all projects, with the options `STATEMENT_CACHE`. */
  statements: { store: Pick<CachedObjects<StoredStatement>, "list" | "byIndex"> }
  /** Launches with the options `LAUNCH_CACHE`. */
  launches: { store: CachedObjects<StoredLaunch> }
  /** Machines that people own. Absent: there are none. */
  machines?: { store: Pick<CachedObjects<StoredMachine>, "list"> }
}

/** Returns the current market of a namespace's project. */
export function buildMarket(
  namespace: string,
  sources: MarketSources,
  ledger: LaunchLedger,
  settings: JobSettings,
): Market {
  const now = sources.clock.now()
  const machines = sources.machines?.store.list() ?? []
  const own = ownMachines(namespace, machines, (of) => ledger.unmarked(of))
  const facts = {
    namespace,
    offers: withOwnOffers(sources.offers.current(), own),
    launchAccounts: sources.launchAccounts.of(namespace),
    deniedAccounts: sources.launchAccounts.refused?.(namespace) ?? [],
    agentImage: sources.agentImage?.(),
    launches: ledger,
    levels: cappedLevels(namespace, sources, ledger, settings),
    tenants: sources.tenants,
    preemptions: ledger.preemptions,
  }
  return { ...appraise(facts, now, settings), kept: keptVms(ledger.unmarked(namespace)), own }
}

function launchesOf(level: LevelCaps, namespace: string, ledger: LaunchLedger): readonly StoredLaunch[] {
  if (level.level === "project") return ledger.unmarked(namespace)
  return ledger.unmarked(ALL_NAMESPACES).filter(({ spec }) => level.owns(spec.job.namespace, spec.organization))
}

/** Returns the levels of a namespace's project that have caps, with the spending under them. */
export function cappedLevels(
  namespace: string,
  sources: SpendingSources,
  ledger: LaunchLedger,
  { expectedSeconds }: Pick<JobSettings, "expectedSeconds">,
): CappedLevel[] {
  return (sources.caps?.(namespace) ?? []).map((level) => {
    const recorded = recordedSpending(level, sources)
    const launches = launchesOf(level, namespace, ledger)
    return { ...level, spending: sumSpending(launches, sources.clock.now(), expectedSeconds, recorded) }
  })
}

/**
 * Returns the idle VMs that are to end because a cap of a namespace's project allows fewer. A VM that ends for the project
 * is none too many for its organization any more, so no level ends more VMs than it must.
 */
export function idleBeyondCaps(
  namespace: string,
  { caps }: Pick<MarketSources, "caps">,
  ledger: LaunchLedger,
): StoredLaunch[] {
  const ending = new Map<string, StoredLaunch>()
  for (const level of caps?.(namespace) ?? []) {
    const { maxIdleVms } = level.caps
    if (maxIdleVms === undefined) continue
    const left = launchesOf(level, namespace, ledger).filter(({ metadata }) => !ending.has(metadata.name))
    for (const launch of surplusIdle(left, maxIdleVms)) ending.set(launch.metadata.name, launch)
  }
  return [...ending.values()]
}

/** Sources of the spending under caps. */
export type SpendingSources = Pick<MarketSources, "caps" | "statements" | "clock">

/** Returns this month's cost (UTC) that is in a level's Statements. */
export function recordedSpending(
  level: LevelCaps,
  { statements, clock }: Pick<SpendingSources, "statements" | "clock">,
): Recorded {
  if (level.caps.maxMonthlyUsd === undefined) return NOTHING_RECORDED
  const month = monthOf(clock.now())
  const own = statements.store
    .list()
    .filter(({ spec }) => spec.month === month && level.owns(spec.namespace, spec.organization))
  return sumRecorded(own)
}

/** Existing job, or the spec of a planned one. */
type AskedFor = Pick<StoredJob, "spec"> & { metadata?: Pick<StoredJob["metadata"], "annotations"> }

/**
 * Returns the expected run time of a job for its cost, seconds: its timeout, or the mean of earlier runs of its
 * CronJob, or the setting. Pure.
 */
export function expectedRunSeconds(
  { spec, metadata }: AskedFor,
  settings: Pick<JobSettings, "expectedSeconds">,
): number {
  if (spec.timeoutSeconds !== undefined) return spec.timeoutSeconds
  const earlier = metadata?.annotations?.[CRON_JOB_ANNOTATIONS.expectedSeconds] ?? ""
  // Users can write annotations, so the value is checked.
  if (!/^[1-9]\d{0,9}$/.test(earlier)) return settings.expectedSeconds
  return Math.min(Number(earlier), LIMITS.timeoutSeconds)
}
