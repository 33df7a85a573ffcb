import type { CapLevel, SpendCaps } from "../../core/apis/caps.ts"
import { secondsBetween } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import { highestPricesOf, isOver, pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { costOf, type HourlyPrices, sumOfParts } from "../../core/apis/price.ts"
import { monthOf, type StoredStatement } from "../../core/apis/statement.ts"
import { idlenessOf, keptVms, minimumBilledSecondsOf, vmLifetimeOf } from "../../core/reuse/reuse.ts"
import { usd } from "../router/explain.ts"
import type { Room } from "../router/route.ts"
import type { Shortfall } from "../router/shortfall.ts"
import { END_RESERVE_SECONDS, longestBilledSeconds } from "./budget.ts"
import type { Amounts, Pool, Waiter } from "./line.ts"
import { isMarked, monthlyCosts } from "./statements.ts"

/** Caps of one level, and the VMs and Statements that count under them. */
export interface LevelCaps {
  level: CapLevel
  /** Name of the organization or project; absent for the installation. */
  name?: string
  caps: SpendCaps
  /** Returns true for a namespace whose costs count. `organization`: the one that paid, if it is recorded. */
  owns: (namespace: string, organization: string | undefined) => boolean
}

/** Spending under the caps of one level. */
export interface Spending {
  vms: number
  gpus: number
  /** VMs among them that wait for another job. */
  idleVms: number
  hourlyUsd: number
  /** Cost of the month's ended VMs, USD. */
  endedUsd: number
  /** Cost so far of live VMs in the month, USD. */
  liveUsd: number
  /** Expected cost of live VMs in the month, with the cost so far, USD. */
  expectedUsd: number
  /** Most that live VMs can cost in the month, and that ended spot VMs may have cost beyond `endedUsd`, USD. */
  mostUsd: number
}

/** Caps of one level with the spending under them. */
export interface CappedLevel extends LevelCaps {
  spending: Spending
  /** Room that jobs ahead in the line take, or that is kept for them. */
  taken?: Readonly<Amounts>
}

/** Costs of a level that are in Statements. */
export interface Recorded {
  usd: number
  marginUsd: number
  /** Names of Launches whose cost is included, although they do not say so yet. */
  counted: ReadonlySet<string>
}

export const NOTHING_RECORDED: Recorded = { usd: 0, marginUsd: 0, counted: new Set() }

/** Returns the costs of a month (UTC) that are in a level's Statements. */
export function sumRecorded(statements: readonly StoredStatement[]): Recorded {
  return {
    usd: sum(statements.map(({ status }) => status?.spentUsd ?? 0)),
    marginUsd: sum(statements.map(({ status }) => status?.marginUsd ?? 0)),
    counted: new Set(statements.flatMap(({ status }) => status?.counted ?? [])),
  }
}

/**
 * Sums the Launches of one level, and what Statements have of it.
 * @param expectedSeconds expected lifetime of a VM whose Launch says no expected cost
 */
export function sumSpending(
  launches: readonly StoredLaunch[],
  now: Date,
  expectedSeconds: number,
  recorded: Recorded = NOTHING_RECORDED,
): Spending {
  const unended = launches.filter((launch) => !isOver(launch))
  // A Launch that is about to take over a VM stands for it already.
  const taken = new Set(unended.map(({ spec }) => spec.takesOver))
  const live = unended.filter(({ metadata }) => !taken.has(metadata.name))
  const ended = launches.filter(
    (launch) => isOver(launch) && !isMarked(launch) && !recorded.counted.has(launch.metadata.name),
  )
  const month = monthOf(now)
  const costs = ended.flatMap(monthlyCosts).filter((cost) => cost.month === month)
  const amounts = live.map((launch) => liveAmounts(launch, now, expectedSeconds))
  return {
    vms: live.length,
    gpus: sum(live.map(({ spec }) => spec.offer.gpu?.count ?? 0)),
    idleVms: live.filter(isIdle).length,
    hourlyUsd: sum(live.map((launch) => sumOfParts(pricesOf(launch)))),
    endedUsd: sum([recorded.usd, ...costs.map((cost) => cost.usd)]),
    liveUsd: sum(amounts.map(({ soFarUsd }) => soFarUsd)),
    expectedUsd: sum(amounts.map((amount) => amount.expectedUsd)),
    mostUsd: sum([
      recorded.marginUsd,
      ...costs.map(({ marginUsd }) => marginUsd),
      ...amounts.map((amount) => amount.mostUsd),
    ]),
  }
}

/**
 * Returns the VMs that have been idle for the longest time, beyond a level's `maxIdleVms`.
 * @param launches all of the level
 */
export function surplusIdle(launches: readonly StoredLaunch[], maxIdleVms: number): StoredLaunch[] {
  return keptVms(launches).filter(isIdle).slice(maxIdleVms)
}

function isIdle(launch: StoredLaunch): boolean {
  return idlenessOf(launch).is === "idle"
}

/**
 * Returns what a live VM costs in the present month: so far, as expected, and at most. A VM whose job has no timeout is
 * expected to run as long again as it has run.
 */
function liveAmounts(launch: StoredLaunch, now: Date, expectedSeconds: number) {
  const { run, reservedUsd } = launch.spec
  const lifetimeSeconds = vmLifetimeOf(launch.spec)
  const begin = launch.status?.vm?.createTime ?? launch.metadata.creationTimestamp
  const [prices, highest] = [pricesOf(launch), highestPricesOf(launch)]
  const usdFor = (hourly: HourlyPrices, seconds: number) =>
    sumOfParts(costOf(hourly, { seconds, minimumBilledSeconds: minimumBilledSecondsOf(launch) }))
  const monthBegin = new Date(`${monthOf(now)}-01T00:00:00Z`)
  const earlierSeconds = Math.max(0, secondsBetween(begin, monthBegin))
  const beforeUsd = (hourly: HourlyPrices) => (earlierSeconds === 0 ? 0 : usdFor(hourly, earlierSeconds))
  const lived = Math.max(0, secondsBetween(begin, now))
  const soFar = launch.status?.vm?.createTime === undefined ? 0 : usdFor(prices, lived)
  const reserved = reservedUsd ?? usdFor(prices, expectedSeconds)
  const asLongAgain = Math.min(2 * soFar, usdFor(prices, run.timeoutSeconds ?? lifetimeSeconds))
  const most = usdFor(highest, longestBilledSeconds(lifetimeSeconds))
  const inMonth = (all: number, before: number) => Math.max(0, all - before)
  return {
    soFarUsd: inMonth(soFar, beforeUsd(prices)),
    expectedUsd: inMonth(Math.max(reserved, asLongAgain, soFar), beforeUsd(prices)),
    mostUsd: inMonth(Math.max(most, usdFor(highest, lived)), beforeUsd(highest)),
  }
}

/** Returns the levels as they are once a live VM is another one's. What it has cost stays spent. */
export function withoutVm(
  levels: readonly CappedLevel[],
  launch: StoredLaunch,
  now: Date,
  expectedSeconds: number,
): CappedLevel[] {
  const { soFarUsd, expectedUsd, mostUsd } = liveAmounts(launch, now, expectedSeconds)
  return levels.map(({ spending, ...level }) => ({
    ...level,
    spending: {
      ...spending,
      vms: spending.vms - 1,
      gpus: spending.gpus - (launch.spec.offer.gpu?.count ?? 0),
      hourlyUsd: roundUsd(spending.hourlyUsd - sumOfParts(pricesOf(launch))),
      expectedUsd: roundUsd(spending.expectedUsd - expectedUsd + soFarUsd),
      mostUsd: roundUsd(spending.mostUsd - mostUsd + soFarUsd),
    },
  }))
}

/** Returns the cost of the month so far, USD. */
export function spentUsd({ endedUsd, liveUsd }: Spending): number {
  return roundUsd(endedUsd + liveUsd)
}

/** Returns the further cost that live VMs take from a level's cap, USD. */
export function reservedUsd({ caps, spending }: Pick<CappedLevel, "caps" | "spending">): number {
  const { liveUsd, expectedUsd, mostUsd } = spending
  return Math.max(0, roundUsd((isStrict(caps) ? mostUsd : expectedUsd) - liveUsd))
}

function isStrict({ reserve, maxMonthlyUsd }: SpendCaps): boolean {
  return reserve === "strict" && maxMonthlyUsd !== undefined
}

/** Returns true if a level has a month's cap that is never exceeded. */
export function hasStrictCap(levels: readonly Pick<LevelCaps, "caps">[]): boolean {
  return levels.some(({ caps }) => isStrict(caps))
}

/** Returns true if a VM may wait for another job under the caps. A strict cap holds by the VM's own timer. */
export function mayIdle(levels: readonly Pick<LevelCaps, "caps">[]): boolean {
  return !hasStrictCap(levels) && levels.every(({ caps }) => caps.maxIdleVms !== 0)
}

/** Returns what a level's cap of the month leaves for new VMs, USD, at least 0; undefined without one. */
export function leftUsd({
  caps,
  spending,
  taken,
}: Pick<CappedLevel, "caps" | "spending" | "taken">): number | undefined {
  const { maxMonthlyUsd } = caps
  if (maxMonthlyUsd === undefined) return undefined
  const takenUsd = (isStrict(caps) ? taken?.mostUsd : taken?.expectedUsd) ?? 0
  return Math.max(0, roundUsd(maxMonthlyUsd - spentUsd(spending) - reservedUsd({ caps, spending }) - takenUsd))
}

function leftPerHour({ caps: { maxHourlyUsd }, spending, taken }: CappedLevel): number | undefined {
  if (maxHourlyUsd === undefined) return undefined
  return Math.max(0, roundUsd(maxHourlyUsd - spending.hourlyUsd - (taken?.hourlyUsd ?? 0)))
}

function leftGpus({ caps: { maxGpus }, spending, taken }: CappedLevel): number | undefined {
  return maxGpus === undefined ? undefined : Math.max(0, maxGpus - spending.gpus - (taken?.gpus ?? 0))
}

function leftVms({ caps: { maxVms }, spending, taken }: CappedLevel): number | undefined {
  return maxVms === undefined ? undefined : Math.max(0, maxVms - spending.vms - (taken?.vms ?? 0))
}

/** Returns a level as a pool of the line of a namespace's project. */
export function poolOf(level: CappedLevel, namespace: string): Pool {
  const { caps, spending } = level
  const { maxVms: vms, maxGpus: gpus, maxHourlyUsd: hourlyUsd, maxMonthlyUsd } = caps
  const monthly = (usd: number | undefined) => (isStrict(caps) ? { mostUsd: usd } : { expectedUsd: usd })
  // What is spent stays spent until the month ends.
  const unspentUsd = maxMonthlyUsd === undefined ? undefined : Math.max(0, roundUsd(maxMonthlyUsd - spentUsd(spending)))
  const left = {
    vms: leftVms(level),
    gpus: leftGpus(level),
    hourlyUsd: leftPerHour(level),
    ...monthly(leftUsd(level)),
  }
  const concerns = ({ key }: Waiter) => level.level !== "project" || key.startsWith(`${namespace}/`)
  const whole = { vms, gpus, hourlyUsd, ...monthly(unspentUsd) }
  return { level: level.level, concerns, left: defined(left), whole: defined(whole) }
}

/** Returns the remaining budget under the caps of all levels, at least 0. */
export function roomUnder(levels: readonly CappedLevel[]): Room {
  const least = (among: readonly CappedLevel[], leftIn: (level: CappedLevel) => number | undefined) => {
    const left = among.map(leftIn).filter((each) => each !== undefined)
    return left.length === 0 ? undefined : Math.min(...left)
  }
  const gpus = least(levels, leftGpus)
  const hourlyUsd = least(levels, leftPerHour)
  const monthlyUsd = least(
    levels.filter(({ caps }) => !isStrict(caps)),
    leftUsd,
  )
  const strictUsd = least(
    levels.filter(({ caps }) => isStrict(caps)),
    leftUsd,
  )
  return {
    ...defined({ gpus, hourlyUsd, monthlyUsd, strictUsd }),
  }
}

/** Returns the level for people, such as `the organization acme`. */
function nameOf({ level }: Pick<LevelCaps, "level">): string {
  return `the ${level}`
}

/** Returns the message for a cap of VMs that is reached; undefined if none is. */
export function vmCapReached(levels: readonly CappedLevel[]): string | undefined {
  const full = levels.find((level) => leftVms(level) === 0)
  if (full === undefined) return undefined
  return `${nameOf(full)}'s cap of ${full.caps.maxVms} VMs is reached: it has ${full.spending.vms}${aheadText(full, ({ vms }) => String(vms))}`
}

/** Returns why no matching offer is under the caps, with the numbers of each cap that leaves too little. */
export function overCapsText(levels: readonly CappedLevel[], overCaps: Shortfall["overCaps"]): string {
  const { offers, fewestGpus = 0, cheapestHourlyUsd = 0, cheapestUsd = 0, cheapestMostUsd = 0 } = overCaps
  const blocking = levels.flatMap((level) => {
    const [left, perHour, gpus] = [leftUsd(level), leftPerHour(level), leftGpus(level)]
    const needed = isStrict(level.caps) ? cheapestMostUsd : cheapestUsd
    return [
      ...(gpus !== undefined && fewestGpus > gpus ? [gpusText(level, gpus)] : []),
      ...(perHour !== undefined && cheapestHourlyUsd > perHour ? [hourlyText(level, perHour)] : []),
      ...(left !== undefined && needed > left ? [monthlyText(level, left)] : []),
    ]
  })
  const isAnyStrict = hasStrictCap(levels)
  const deadline = isAnyStrict ? `, and up to ${usd(cheapestMostUsd)} until the VM's deadline` : ""
  const needsGpus = fewestGpus === 0 ? "" : `${fewestGpus} ${fewestGpus === 1 ? "GPU" : "GPUs"}, `
  const needs = `the cheapest of ${offers.toLocaleString("en-US")} matching offers needs ${needsGpus}${usd(cheapestHourlyUsd)}/h, ${usd(cheapestUsd)} for the job${deadline}`
  const isTooLow = levels.some(
    ({ caps: { maxGpus = Infinity, maxHourlyUsd = Infinity, maxMonthlyUsd = Infinity, ...caps } }) =>
      fewestGpus > maxGpus ||
      cheapestHourlyUsd > maxHourlyUsd ||
      (isStrict({ ...caps, maxMonthlyUsd }) ? cheapestMostUsd : cheapestUsd) > maxMonthlyUsd,
  )
  const when = isTooLow ? "that is more than the whole cap: raise it" : "the job starts when that is left"
  const advice = isAnyStrict ? `${when}; set timeoutSeconds or maxCostUsd to need less` : when
  return `${blocking.join("; ") || "the caps leave too little"}; ${needs}; ${advice}`
}

function gpusText(level: CappedLevel, left: number): string {
  const { caps, spending } = level
  return `${nameOf(level)}'s cap of ${caps.maxGpus} GPUs leaves ${left}: its VMs have ${spending.gpus}${aheadText(level, ({ gpus }) => String(gpus))}`
}

/** Returns what jobs ahead in the line take; empty if none takes anything. */
function aheadText({ taken }: CappedLevel, amountOf: (taken: Readonly<Amounts>) => string): string {
  return taken === undefined || taken.vms === 0 ? "" : `, and jobs ahead in the line take ${amountOf(taken)}`
}

function hourlyText(level: CappedLevel, left: number): string {
  const { caps, spending } = level
  return `${nameOf(level)}'s cap of ${usd(caps.maxHourlyUsd ?? 0)} an hour leaves ${usd(left)}: ${spending.vms} VMs cost ${usd(spending.hourlyUsd)}/h${aheadText(level, ({ hourlyUsd }) => `${usd(hourlyUsd)}/h`)}`
}

function monthlyText(level: CappedLevel, left: number): string {
  const { caps, spending } = level
  return (
    `${nameOf(level)}'s cap of ${usd(caps.maxMonthlyUsd ?? 0)} a month leaves ${usd(left)}: ` +
    `${usd(spentUsd(spending))} is spent and ${usd(reservedUsd(level))} is reserved for ${spending.vms} ${spending.vms === 1 ? "VM" : "VMs"}` +
    aheadText(level, ({ expectedUsd, mostUsd }) => usd(isStrict(caps) ? mostUsd : expectedUsd))
  )
}

/** State of the caps that cancel running jobs. */
export interface CancelState {
  /** Reason to cancel running jobs now. Absent: no cap is spent. */
  message?: string
  /** Seconds until the present VMs spend a cap. Absent: they never do. */
  secondsLeft?: number
}

/**
 * Returns whether a cap cancels running jobs now. The time in which their VMs end counts as spent, so that the cap is not
 * exceeded by it.
 */
export function cancelState(levels: readonly CappedLevel[]): CancelState {
  let secondsLeft: number | undefined
  for (const level of levels) {
    const { caps, spending } = level
    if (caps.onExceeded !== "cancel" || caps.maxMonthlyUsd === undefined) continue
    const hourlyUsd = spending.hourlyUsd
    const left = roundUsd(caps.maxMonthlyUsd - spentUsd(spending) - (hourlyUsd * END_RESERVE_SECONDS) / 3600)
    if (left <= 0) return { message: cancelText(level) }
    if (hourlyUsd > 0) secondsLeft = Math.min(secondsLeft ?? Number.POSITIVE_INFINITY, (left * 3600) / hourlyUsd)
  }
  return secondsLeft === undefined ? {} : { secondsLeft }
}

function cancelText(level: CappedLevel): string {
  const { caps, spending } = level
  return (
    `${nameOf(level)} has spent ${usd(spentUsd(spending))} of its cap of ${usd(caps.maxMonthlyUsd ?? 0)} a month, ` +
    "and its caps say onExceeded: cancel. Raise maxMonthlyUsd, or run the job again next month"
  )
}

function sum(numbers: readonly number[]): number {
  return roundUsd(numbers.reduce((total, number) => total + number, 0))
}
