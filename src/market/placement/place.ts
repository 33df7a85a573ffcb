import { timestamp } from "../../core/apis/clock.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { JobReason, type JobSpec, type StoredJob } from "../../core/apis/job.ts"
import { OWN_CLOUD } from "../../core/apis/machine.ts"
import { LABELS } from "../../core/apis/meta.ts"
import type { Prerequisite, PrerequisiteName } from "../../core/apis/prerequisites.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import type { Reuse } from "../../core/apis/reuse.ts"
import type { SecretRefs } from "../../core/apis/secret-env.ts"
import type { Obstacle } from "../../core/order/prerequisites.ts"
import { reuseOf } from "../../core/reuse/reuse.ts"
import type { CooldownTally, LaunchAccount } from "../router/cooldown.ts"
import {
  describeOffer,
  explainCauses,
  explainChoice,
  explainLostWork,
  explainMemory,
  explainRanking,
  explainShortfall,
  usd,
} from "../router/explain.ts"
import { lostHours } from "../router/lost-work.ts"
import { type Requirements, toRequirements } from "../router/requirements.ts"
import { type RankedPlacement, type RouteContext, type Routing, rank, route } from "../router/route.ts"
import type { OfferNeeds, Shortfall } from "../router/shortfall.ts"
import { jobBudget, longestBilledSeconds, vmLifetime } from "./budget.ts"
import { hasStrictCap, mayIdle, overCapsText, roomUnder, vmCapReached } from "./caps.ts"
import { explainTakeover, findTakeover, mayBeKept, type Takeover, type TakeoverTerms } from "./idle.ts"
import { type Buckets, choosePlatform, type Images, reasonToWait, requiredDiskGib, whenVolumesFound } from "./inputs.ts"
import { LaunchLedger } from "./ledger.ts"
import { type Amounts, compareWaiters, isDue, type LinePlace, lineText, toWaiter } from "./line.ts"
import { ownCooldowns } from "./machines.ts"
import {
  buildMarket,
  expectedRunSeconds,
  type GroupState,
  type Market,
  type MarketSources,
  marketInLine,
} from "./market.ts"
import { JOB_DEFAULTS, type JobSettings } from "./settings.ts"
import { warningsOf } from "./warnings.ts"

/** Result of the search for a place. */
export type PlaceVerdict =
  | { kind: "placed"; placement: RankedPlacement<LaunchAccount> | Takeover; why: string }
  /** `needs`: what its VM takes from the caps for which it waits. */
  | { kind: "wait"; reason: JobReason; message: string; seconds: number; needs?: Amounts }
  /** No offer of any cloud can ever match. */
  | { kind: "noOffer"; message: string }
  /** The registry says that there is no such image. */
  | { kind: "noImage"; message: string }
  /** Too little is left of the job's maxCostUsd for a VM. */
  | { kind: "overBudget"; message: string }

type Waiting = Extract<PlaceVerdict, { kind: "wait" }>

/** Delay before checking again for a registry's answer, seconds. */
const LOOK_AGAIN_SECONDS = 1

/** Finds the cheapest offer that matches, has an account, is not in cooldown, and is under the caps. Pure. */
export function place(job: Pick<StoredJob, "spec">, market: Market, now: Date, settings: JobSettings): PlaceVerdict {
  return placeAmong(job, market, now, settings).verdict
}

/**
 * Returns the result of `place` with all candidates, best first. A job that waits for room under a cap has candidates
 * too.
 */
export function placeAmong(
  job: Pick<StoredJob, "spec">,
  market: Market,
  now: Date,
  settings: JobSettings,
): { verdict: PlaceVerdict; placements: RankedPlacement<LaunchAccount>[] } {
  const { architectures, note, conflict } = choosePlatform(market.image, market.agentImage, settings.architectures)
  const requirements = toRequirements(job.spec, architectures)
  const clouds = allowedClouds(requirements, market)
  const notes = [note, explainMemory({ ...requirements, clouds }, market.offers)].filter((each) => each !== undefined)
  const noted = (text: string) => [text, ...notes].join("; ")
  const context = createContext(job, market, now, settings)
  const routing = route(requirements, market.offers, context)
  const { shortfall } = routing
  const unpaused = withoutPaused(routing, requirements, market, context)
  const open = unpaused.placements
  const placements = open.length > 0 ? open : routing.placements
  const judged = (verdict: PlaceVerdict) => ({ verdict, placements })
  if (market.agentImage?.state === "looking") {
    return judged(wait(JobReason.Queued, "resolving the CPU architectures of Berth's agent image", LOOK_AGAIN_SECONDS))
  }
  if (market.agentImage?.state === "missing") {
    const message = `no VM could pull Berth's agent image: ${market.agentImage.why}; correct the operator's --agent-image`
    return judged(wait(JobReason.AgentImageMissing, message, settings.agentImageRetrySeconds))
  }
  if (market.image?.state === "missing") {
    const message = `image ${job.spec.image} can't be pulled: ${market.image.why}; correct the image in a new job`
    return judged({ kind: "noImage", message })
  }
  if (conflict !== undefined)
    return judged(wait(JobReason.AgentImageMismatch, conflict, settings.agentImageRetrySeconds))
  const takeover = takeoverFor(job, market, { requirements, context, best: open[0], now, settings })
  if (takeover?.isClean === false) {
    const message = `waits a few seconds for the VM of ${takeover.holder.spec.job.name}, which removes what is left of it`
    return judged(wait(JobReason.Queued, message, settings.capRetrySeconds))
  }
  if (takeover !== undefined) {
    const why = noted(`${describeOffer(takeover.offer)}: ${explainTakeover(takeover, open[0])}`)
    return { verdict: { kind: "placed", placement: takeover, why }, placements: [takeover, ...placements] }
  }
  if (routing.offers === 0) {
    return judged(wait(JobReason.NoCapacity, "the catalogue has no offers yet", settings.capRetrySeconds))
  }
  if (shortfall?.fitting === 0) {
    return judged({ kind: "noOffer", message: noted(explainShortfall(shortfall, requirements)) })
  }
  if (open.length === 0 && routing.placements.length > 0) return judged(allPaused(market.paused, now, settings))
  const unaffordable = overBudget(job, shortfall, market)
  if (unaffordable !== undefined) return judged(unaffordable)
  const blocked = blockingReason(open[0], shortfall, market, settings)
  if (blocked !== undefined) return judged(blocked)
  const [best] = open
  if (best === undefined) return judged(noCapacity(shortfall?.cooldowns, now))
  const cost = `${withParts(best, market.offers)}; expected to cost ${usd(best.totalUsd)}${explainLostWork(best, context.lostWork)}`
  const why = `${explainChoice({ ...routing, ...unpaused }, clouds)}${cost}`
  return judged({ kind: "placed", placement: best, why: noted(`${describeOffer(best.offer)}: ${why}`) })
}

/** Returns the idle VM that a job takes over; undefined if it wants none, or its group is full. */
function takeoverFor(
  job: Pick<StoredJob, "spec">,
  market: Market,
  terms: Pick<TakeoverTerms, "requirements" | "context" | "best" | "now" | "settings">,
): Takeover | undefined {
  const { spec } = job
  const reuse = reuseOf(job, terms.settings)
  const isOpen = market.group === undefined || groupFull(market.group, market.line) === undefined
  if (reuse === undefined || !isOpen || market.budget !== undefined || !mayIdle(market.levels)) return undefined
  const { settings } = terms
  const lifetimeSeconds = vmLifetime({ spec }, spec.timeoutSeconds ?? settings.timeoutSeconds, settings)
  return findTakeover(market, { ...terms, spec, reuse, lifetimeSeconds })
}

/** Returns the price with disk and address, for people; empty if they cost nothing. */
function withParts({ offer, prices, launchAccount }: RankedPlacement<LaunchAccount>, offers: Market["offers"]): string {
  const hourlyUsd = sumOfParts(prices)
  if (hourlyUsd === prices.machineUsd) return ""
  const { type } = launchAccount.settings?.disk ?? {}
  const isEstimated = offers.isDiskPriceEstimated(offer, type === undefined ? {} : { type })
  const mark = isEstimated ? ` (the disk's price in ${offer.region} is not published: estimated)` : ""
  return `; with disk and address ${usd(hourlyUsd)}/h${mark}`
}

/** Returns the clouds that the project can use and the job allows, sorted. */
function allowedClouds({ clouds }: Requirements, { launchAccounts }: Market): string[] {
  const usable = launchAccounts
    .map(({ cloud }) => cloud)
    .filter((cloud) => clouds.length === 0 || clouds.includes(cloud))
  return [...new Set(usable)].sort()
}

/** Returns the inputs of routing besides the job's requirements and the offers. */
function createContext(
  job: Pick<StoredJob, "spec">,
  { launchAccounts, levels, image, budget, preemptionRates, own = [], buckets = [], ...market }: Market,
  now: Date,
  settings: JobSettings,
): RouteContext<LaunchAccount> {
  const expectedSeconds = expectedRunSeconds(job, settings)
  const later = new Date(now.getTime() + settings.capRetrySeconds * 1000)
  const cooldowns = [...market.cooldowns, ...ownCooldowns(own, requiredDiskGib(job.spec, image, OWN_CLOUD), later)]
  const requiredGib = (cloud: string) => requiredDiskGib(job.spec, image, cloud)
  const room = roomUnder(levels)
  const isStrict = budget !== undefined || hasStrictCap(levels)
  const lifetime = vmLifetime(job, job.spec.timeoutSeconds ?? settings.timeoutSeconds, settings)
  const strict = isStrict ? { longestSeconds: longestBilledSeconds(lifetime) } : undefined
  const context = { launchAccounts, cooldowns, buckets, requiredGib, room, budget, strict, expectedSeconds, now }
  const { provisioning = "onDemand", volumes = {} } = job.spec
  if (provisioning === "onDemand" || preemptionRates === undefined) return context
  const hasCheckpoints = Object.values(volumes).some(({ checkpoint }) => checkpoint === true)
  return { ...context, lostWork: { hours: lostHours({ expectedSeconds, hasCheckpoints }), rateOf: preemptionRates() } }
}

/** Returns the placements without those whose launchAccount is paused. */
function withoutPaused(
  routing: Routing<LaunchAccount>,
  requirements: Requirements,
  { offers, paused }: Market,
  context: RouteContext<LaunchAccount>,
): Pick<Routing<LaunchAccount>, "placements" | "passedOver"> {
  const { placements, passedOver } = routing
  if (paused.length === 0 || placements.length === 0) return { placements, ...(passedOver && { passedOver }) }
  return rank(requirements, offers, { ...context, cooldowns: [...context.cooldowns, ...paused] })
}

/** Returns the verdict if every account with a place for the job is paused. */
function allPaused(paused: Market["paused"], now: Date, settings: JobSettings): PlaceVerdict {
  const message = `launching is paused: the last ${settings.breakerBoots} VMs never registered`
  const first = Math.min(...paused.map(({ until }) => until.getTime()))
  return wait(JobReason.LaunchesPaused, message, secondsUntil(new Date(first), now))
}

function wait(reason: JobReason, message: string, seconds: number): Waiting {
  return { kind: "wait", reason, message, seconds }
}

/** Returns the verdict if too little is left of the job's own limit for any offer that could be taken, now or later. */
function overBudget(
  { spec }: Pick<StoredJob, "spec">,
  shortfall: Shortfall | undefined,
  { budget }: Market,
): PlaceVerdict | undefined {
  if (shortfall === undefined || budget === undefined || shortfall.overBudget.offers === 0) return undefined
  if (shortfall.cooldowns.offers + shortfall.overCaps.offers > 0) return undefined
  const { leftUsd, leastSeconds } = budget
  const { offers, cheapestUsd = 0 } = shortfall.overBudget
  const message =
    `${usd(leftUsd)} of maxCostUsd ${usd(spec.maxCostUsd ?? 0)} is left, and the cheapest of ${offers.toLocaleString("en-US")} matching ` +
    `offers costs ${usd(cheapestUsd)} for the shortest time of a VM (${leastSeconds / 60} minutes, with its boot and end); ` +
    "raise maxCostUsd in a new job"
  return { kind: "overBudget", message }
}

/** Returns the reason why a job with matching offers cannot be placed. */
function blockingReason(
  best: RankedPlacement<LaunchAccount> | undefined,
  shortfall: Shortfall | undefined,
  { levels, line, group, rateWaitSeconds, launchAccounts, deniedAccounts = [] }: Market,
  settings: JobSettings,
): PlaceVerdict | undefined {
  if (shortfall !== undefined && shortfall.cooldowns.offers + shortfall.overCaps.offers === 0) {
    const kinds = shortfall.unconnected.join(" or ")
    const refused = deniedAccounts
      .filter(({ cloud }) => shortfall.unconnected.includes(cloud))
      .map(({ connection, message }) => `; connection ${connection}: ${message}`)
    const elsewhere = launchAccounts
      .filter(({ cloud, regions }) => regions !== undefined && shortfall.unconnected.includes(cloud))
      .map(({ connection, regions = [] }) => `; connection ${connection} has subnets only in ${regions.join(", ")}`)
    const message = `${shortfall.fitting} offers match, but the project has no Ready connection for them: add one of type ${kinds}`
    const details = [...refused, ...elsewhere].join("")
    return wait(JobReason.NoConnection, message + details, settings.connectionRetrySeconds)
  }
  const full = vmCapReached(levels)
  const fullGroup = group && groupFull(group, line)
  if (fullGroup !== undefined) {
    const needs = { vms: 1, ...(best === undefined ? leastNeeds(shortfall) : needsOf(best)) }
    return { ...wait(JobReason.GroupFull, fullGroup, settings.capRetrySeconds), needs }
  }
  const capReached = (message: string, needs: OfferNeeds) => ({
    ...wait(JobReason.CapReached, message + lineText(line), settings.capRetrySeconds),
    needs: { vms: 1, ...needs },
  })
  if (full !== undefined) return capReached(full, best === undefined ? leastNeeds(shortfall) : needsOf(best))
  if (shortfall?.cooldowns.offers === 0) {
    return capReached(overCapsText(levels, shortfall.overCaps), leastNeeds(shortfall))
  }
  if (rateWaitSeconds > 0) {
    const message = `the installation's launch rate of ${settings.launchesPerMinute} per minute is reached; the job starts as soon as the rate allows`
    return wait(JobReason.CapReached, message, rateWaitSeconds)
  }
  return undefined
}

/** Returns the message for a concurrency group whose slots are taken, or kept for jobs ahead; undefined if one is free. */
function groupFull({ name, limit, members }: GroupState, line: LinePlace | undefined): string | undefined {
  const { slots = 0, limit: limitAhead = limit } = line?.inGroups.get(name) ?? {}
  if (members.length + slots < Math.min(limit, limitAhead)) return undefined
  const less = limitAhead < limit ? `; a job ahead in the line allows ${limitAhead}` : ""
  return `group ${name} has ${members.length} of ${limit}: ${someOf(members)}${less}${lineText(line)}`
}

/** Largest number of jobs that a message names. */
const NAMED_JOBS = 5

function someOf(names: readonly string[]): string {
  const others = names.length - NAMED_JOBS
  return `${names.slice(0, NAMED_JOBS).join(", ")}${others > 0 ? ` and ${others} others` : ""}`
}

/** Returns what the cheapest offer over a cap takes. */
function leastNeeds(shortfall: Shortfall | undefined): OfferNeeds {
  return shortfall?.overCaps.least ?? { gpus: 0, hourlyUsd: 0, expectedUsd: 0, mostUsd: 0 }
}

function needsOf({ offer, prices, totalUsd }: RankedPlacement<LaunchAccount>): OfferNeeds {
  return { gpus: offer.gpu?.count ?? 0, hourlyUsd: sumOfParts(prices), expectedUsd: totalUsd, mostUsd: totalUsd }
}

/** Returns the wait for the end of the first cooldown, with the cause and the remedy. */
function noCapacity(cooldowns: CooldownTally = { offers: 0 }, now: Date): PlaceVerdict {
  const { offers, until = now, causes } = cooldowns
  const why = causes === undefined ? "the cloud rejected them" : explainCauses(cooldowns, true)
  const remedy = causes?.[0]?.cause.remedy
  const advice = remedy === undefined ? "" : `; ${remedy}`
  const message = `all ${offers.toLocaleString("en-US")} matching offers are in cooldown${causes === undefined ? " after " : ": "}${why}; next attempt at ${timestamp(until)}${advice}`
  return wait(JobReason.NoCapacity, message, secondsUntil(until, now))
}

/** Returns at least one second: a whole-second time must have passed at the next check. */
function secondsUntil(time: Date, now: Date): number {
  return Math.max(1, (time.getTime() - now.getTime()) / 1000)
}

/** Plan for the job, if it were submitted now. */
export interface JobPlan {
  /** `placeable`: a VM would be requested at once. `waits`: the job would stay queued. `noOffer`: it would fail. */
  verdict: "placeable" | "waits" | "noOffer"
  /** Reason of the job's condition Placed. */
  reason: JobReason
  message: string
  /**
   * Candidates, best first. Those of a job that waits are the machines that it gets when its reason ends. Their account
   * has no connection if the project must add one.
   */
  placements: readonly RankedPlacement<LaunchAccount>[]
  /** One line for each placement, for people. */
  ranking: readonly string[]
  /** Reuse of the VM of the first placement, which may be the installation's default. Absent: the job has a VM of its own. */
  reuse?: Reuse
  /** True if that VM may wait for another job: if the job asks for it. */
  canReuse?: boolean
  /** Facts that a person should know before the job runs, in sentences. Absent: there are none. */
  warnings?: readonly string[]
}

/** Job or array that is planned, with the jobs and arrays that must end first. */
export interface PlannedOrder {
  name: PrerequisiteName
  after?: readonly Prerequisite[] | undefined
}

/**
 * Plans a job of a namespace like the job controller, without side effects. Without an order it waits for no other job.
 * Rejects with RangeError for a quantity that no validated spec has.
 */
export type Planner = (namespace: string, spec: JobSpec, order?: PlannedOrder) => Promise<JobPlan>

/** Plans a job with the same function as its controller. Pure. */
export function planJob(job: Pick<StoredJob, "spec">, market: Market, now: Date, settings: JobSettings): JobPlan {
  const { verdict: found, placements } = placeAmong(job, market, now, settings)
  const waitsForAll = found.kind === "wait" && placements.length === 0
  return buildPlan(outlineOf(found), waitsForAll ? laterPlacements(job, market, now, settings) : placements)
}

/**
 * Returns the placements of a waiting job without cooldowns and caps. If the accounts have none, accounts count that the
 * project has not connected yet. Pure.
 */
export function laterPlacements(
  job: Pick<StoredJob, "spec">,
  market: Market,
  now: Date,
  settings: JobSettings,
): RankedPlacement<LaunchAccount>[] {
  const placements = openPlacements(job, market, now, settings)
  if (placements.length > 0) return placements
  return openPlacements(job, { ...market, launchAccounts: anyAccountOf(market.offers) }, now, settings)
}

/** Returns the placements of a job on the market's accounts without cooldowns and caps, best first. Pure. */
export function openPlacements(
  job: Pick<StoredJob, "spec">,
  market: Market,
  now: Date,
  settings: JobSettings,
): RankedPlacement<LaunchAccount>[] {
  const { architectures } = choosePlatform(market.image, market.agentImage, settings.architectures)
  const requirements = toRequirements(job.spec, architectures)
  const context = { ...createContext(job, market, now, settings), cooldowns: [], room: {} }
  return rank(requirements, market.offers, context).placements
}

/** Returns an account of each cloud that has offers. */
export function anyAccountOf({ clouds }: Market["offers"]): LaunchAccount[] {
  return clouds.map((cloud) => ({ cloud }))
}

/** Returns a plan with its warnings, and with what becomes of the VM of its first placement after the job. */
function complete(plan: JobPlan, job: Pick<StoredJob, "spec">, market: Market, settings: JobSettings): JobPlan {
  const [first] = plan.placements
  const warnings = warningsOf(job.spec, first && sumOfParts(first.prices), settings)
  if (first === undefined || !mayBeKept(first.offer, market)) return { ...plan, warnings }
  return { ...plan, warnings, canReuse: true, ...defined({ reuse: reuseOf(job, settings) }) }
}

type Outline = Pick<JobPlan, "verdict" | "reason" | "message">

function outlineOf(found: PlaceVerdict): Outline {
  switch (found.kind) {
    case "placed":
      return { verdict: "placeable", reason: JobReason.Placed, message: found.why }
    case "wait":
      return { verdict: "waits", reason: found.reason, message: found.message }
    case "noOffer":
      return { verdict: "noOffer", reason: JobReason.NoOffer, message: found.message }
    case "noImage":
      return { verdict: "noOffer", reason: JobReason.ImagePullFailed, message: found.message }
    case "overBudget":
      return { verdict: "noOffer", reason: JobReason.BudgetExceeded, message: found.message }
  }
}

function buildPlan({ message, ...outline }: Outline, placements: RankedPlacement<LaunchAccount>[]): JobPlan {
  return { ...outline, message: cutTo(message, LIMITS.message), placements, ranking: explainRanking({ placements }) }
}

/** Largest number of waiting jobs whose needs a plan calculates. */
const PLANNED_JOBS = 20

/**
 * Returns the market of a planned job with its place in the line, as the job controller would see it. A job ahead that is
 * not due needs nothing here: if it fitted, it would have its VM. Pure.
 * @param market that of the project, without what is known of the planned job
 */
function inPlannedLine(
  job: { metadata: { namespace: string }; spec: JobSpec },
  market: Market,
  { now, settings, ledger, waiting }: PlannedLine,
): Market {
  const terms = { now, passSeconds: settings.passSeconds }
  const ahead = () => {
    const jobs = waiting
      .map((one) => ({ one, waiter: toWaiter(one, NEVER_FITS) }))
      .filter(({ waiter }) => waiter.priority >= (job.spec.priority ?? 0))
      .sort((a, b) => compareWaiters(a.waiter, b.waiter))
    const due = jobs.filter(({ waiter }) => isDue(waiter, terms)).slice(0, PLANNED_JOBS)
    for (const { one, waiter } of due) {
      const verdict = place(one, market, now, settings)
      waiter.needs = verdict.kind === "wait" ? verdict.needs : undefined
    }
    return { own: jobs.map(({ waiter }) => waiter) }
  }
  const candidate = { namespace: job.metadata.namespace, group: job.spec.concurrencyGroup }
  return marketInLine(candidate, market, { ledger, terms, ahead })
}

interface PlannedLine {
  now: Date
  settings: JobSettings
  ledger: LaunchLedger
  waiting: readonly StoredJob[]
}

const NEVER_FITS: Amounts = {
  vms: Number.POSITIVE_INFINITY,
  gpus: 0,
  hourlyUsd: 0,
  expectedUsd: 0,
  mostUsd: 0,
}

/** Reads why a run's secretEnv can't be resolved now, for people; undefined: it can. */
export type WhySecretMissing = (namespace: string, refs: SecretRefs) => Promise<string | undefined>

/** Returns why a job or an array would not start yet, or never, for lack of its prerequisites; undefined: it would. */
export type ObstacleTo = (namespace: string, order: PlannedOrder) => Obstacle | undefined

/** Plans a job with an obstacle. One that no offer could ever match fails after it, so that is its plan. Pure. */
function planBehind(
  { reason, message }: Obstacle,
  job: Pick<StoredJob, "spec">,
  { market, now, settings }: { market: Market; now: Date; settings: JobSettings },
): JobPlan {
  if (reason === JobReason.DependencyFailed) return buildPlan({ verdict: "noOffer", reason, message }, [])
  const found = place(job, market, now, settings)
  if (found.kind === "noOffer" || found.kind === "overBudget") return planJob(job, market, now, settings)
  return buildPlan({ verdict: "waits", reason, message }, laterPlacements(job, market, now, settings))
}

/** Metadata of the jobs of a planned array. No VM waits for them, because their array is new. */
const PLANNED_ARRAY = { metadata: { labels: { [LABELS.arrayUid]: "planned" } } }

/**
 * Returns a planner that works from a process's caches. It writes nothing. It asks only the image's registry and the
 * accounts of the volumes' connections.
 */
export function jobPlanner(
  sources: MarketSources & {
    images?: Images
    buckets?: Buckets
    whySecretMissing?: WhySecretMissing
    /** Returns the jobs that wait in the line of a namespace's project. Absent: none does. */
    inLine?: (namespace: string) => readonly StoredJob[]
    /** Absent: nothing waits for other jobs. */
    obstacleTo?: ObstacleTo
    /** Waits until the scan of all offers may begin. */
    nextTurn: () => Promise<void>
  },
  settings: Partial<JobSettings> = {},
): Planner {
  const effective = { ...JOB_DEFAULTS, ...settings }
  // A plan reserves nothing in it.
  const ledger = new LaunchLedger(sources.launches.store, sources.clock)
  return async (namespace, spec, order) => {
    const [secretMissing, image, volumes] = await Promise.all([
      spec.secretEnv && sources.whySecretMissing?.(namespace, spec.secretEnv),
      sources.images?.whenFound(namespace, spec.image),
      sources.buckets && whenVolumesFound(namespace, spec, sources.buckets),
    ])
    await sources.nextTurn()
    const now = sources.clock.now()
    const known = { ...(image && { image }), budget: jobBudget({ spec }, []) }
    const open = buildMarket(namespace, sources, ledger, effective)
    const market = { ...open, ...known }
    const job = { spec, ...(order?.name.array !== undefined && PLANNED_ARRAY) }
    const finished = (plan: JobPlan) => complete(plan, { spec }, market, effective)
    const obstacle = order && sources.obstacleTo?.(namespace, order)
    if (obstacle !== undefined) return finished(planBehind(obstacle, job, { market, now, settings: effective }))
    const later = (reason: JobReason, message: string) =>
      finished(buildPlan({ verdict: "waits", reason, message }, laterPlacements(job, market, now, effective)))
    if (secretMissing !== undefined) return later(JobReason.SecretMissing, secretMissing)
    if (volumes !== undefined && volumes.kind !== "found") return later(reasonToWait(volumes), volumes.message)
    const waiting = sources.inLine?.(namespace) ?? []
    const inLine = inPlannedLine({ metadata: { namespace }, spec }, open, { now, settings: effective, ledger, waiting })
    const places = volumes && { buckets: volumes.places }
    return finished(planJob(job, { ...inLine, ...known, ...places }, now, effective))
  }
}
