import { secondsBetween } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import { highestPricesOf, isOver, pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { addParts, type CostParts, costOf, NO_COST, sumOfParts } from "../../core/apis/price.ts"
import {
  type DailyCost,
  dayOf,
  MOST_CRON_JOBS,
  MOST_DAILY,
  MOST_LABELS,
  type StatementStatus,
  type StoredStatement,
} from "../../core/apis/statement.ts"
import { minimumBilledSecondsOf } from "../../core/reuse/reuse.ts"

/** Part of a VM's cost on one day. */
export interface DailyPart {
  /** Such as `2026-11-24` (UTC). */
  day: string
  /** Lifetime of the VM on this day, seconds. */
  seconds: number
  cost: CostParts
}

/** Part of a cost in one month. */
export interface MonthlyCost {
  /** Such as `2026-11`. */
  month: string
  usd: number
  /** Its days, oldest first. They add up to it. */
  days: DailyPart[]
  /** Amount by which a spot VM may have cost more, USD. */
  marginUsd: number
}

/**
 * Returns the cost of an ended VM by month (UTC), oldest first. A VM that runs at midnight is split by time. The parts add
 * up to its cost. Empty: the Launch is not over, or cost nothing.
 */
export function monthlyCosts(launch: StoredLaunch): readonly MonthlyCost[] {
  const known = KNOWN_COSTS.get(launch)
  if (known !== undefined) return known
  const costs = splitCosts(launch)
  KNOWN_COSTS.set(launch, costs)
  return costs
}

/** Costs of Launches that were split before. Cached objects never change, and each is asked about again and again. */
const KNOWN_COSTS = new WeakMap<StoredLaunch, readonly MonthlyCost[]>()

function splitCosts(launch: StoredLaunch): MonthlyCost[] {
  const { metadata, status } = launch
  const { vm, cost = NO_COST } = status ?? {}
  if (!isOver(launch) || sumOfParts(cost) === 0) return []
  const end = new Date(vm?.terminationTime ?? metadata.creationTimestamp)
  const begin = new Date(vm?.createTime ?? metadata.creationTimestamp)
  return byMonth(launch, daysOf(begin, end, cost))
}

/** Returns the cost so far of a VM that is not known to have ended, by month (UTC), as `monthlyCosts` of an ended one. */
export function costsSoFar(launch: StoredLaunch, now: Date): MonthlyCost[] {
  const createTime = launch.status?.vm?.createTime
  if (createTime === undefined || isOver(launch)) return []
  const begin = new Date(createTime)
  const minimumBilledSeconds = minimumBilledSecondsOf(launch)
  const cost = costOf(pricesOf(launch), { seconds: secondsBetween(begin, now), minimumBilledSeconds })
  return byMonth(launch, daysOf(begin, now, cost))
}

function byMonth(launch: StoredLaunch, days: readonly DailyPart[]): MonthlyCost[] {
  const { machineUsd } = pricesOf(launch)
  const rise = machineUsd === 0 ? 0 : highestPricesOf(launch).machineUsd / machineUsd - 1
  return [...Map.groupBy(days, ({ day }) => day.slice(0, 7))].map(([month, own]) => {
    const { machineUsd: ofMachine, ...rest } = addParts(own.map(({ cost }) => cost))
    const usd = sumOfParts({ machineUsd: ofMachine, ...rest })
    return { month, usd, days: own, marginUsd: roundUsd(ofMachine * rise) }
  })
}

/** Splits a cost by the time on each day (UTC). Days without a cost are left out. */
function daysOf(begin: Date, end: Date, cost: CostParts): DailyPart[] {
  const total = end.getTime() - begin.getTime()
  const days: DailyPart[] = []
  let before = partsOf(() => 0)
  // The sums are rounded, not the parts: a month of many days differs from its exact cost by one rounding.
  for (let from = begin; ; from = nextDay(from)) {
    const isLast = dayOf(from) >= dayOf(end)
    const share = isLast ? 1 : (nextDay(from).getTime() - begin.getTime()) / total
    const [until, known] = [partsOf((name) => roundUsd(cost[name] * share)), before]
    const part = partsOf((name) => roundUsd(until[name] - known[name]))
    const to = Math.min(end.getTime(), nextDay(from).getTime())
    const seconds = Math.max(0, Math.round((to - from.getTime()) / 1000))
    if (sumOfParts(part) > 0) days.push({ day: dayOf(isLast ? end : from), seconds, cost: part })
    if (isLast) return days
    before = until
  }
}

function partsOf(usdOf: (part: keyof CostParts) => number): CostParts {
  return { machineUsd: usdOf("machineUsd"), diskUsd: usdOf("diskUsd"), addressUsd: usdOf("addressUsd") }
}

function nextDay(time: Date): Date {
  return new Date(Date.UTC(time.getUTCFullYear(), time.getUTCMonth(), time.getUTCDate() + 1))
}

/** Returns true if an ended Launch says that its cost is counted. */
export function isMarked({ metadata }: StoredLaunch): boolean {
  return metadata.annotations?.[ANNOTATIONS.counted] !== undefined
}

/** Returns true if an ended Launch adds nothing to any Statement: it is counted in all its months, or cost nothing. */
export function isCounted(
  launch: StoredLaunch,
  statementOf: (namespace: string, month: string) => StoredStatement | undefined,
): boolean {
  if (isMarked(launch)) return true
  const { namespace } = launch.spec.job
  const { name } = launch.metadata
  return monthlyCosts(launch).every(
    ({ month }) => statementOf(namespace, month)?.status?.counted?.includes(name) ?? false,
  )
}

/** Cost that a Statement gets, and what it is shown by. */
export interface Item {
  usd: number
  cloud: string
  provisioning: string
  labels: Readonly<Record<string, string>>
  /** CronJob that created the job. Its name may be unknown. */
  cronJob?: { uid: string; name?: string | undefined } | undefined
  days: readonly DailyPart[]
  marginUsd: number
}

/** Returns the part of a Launch's cost as an item. */
export function toItem({ spec }: StoredLaunch, { usd, days, marginUsd }: MonthlyCost): Item {
  const { cloud, provisioning } = spec.offer
  const cronJob = cronJobOf(spec.cronJob, spec.cronJobName)
  return { usd, cloud, provisioning, labels: spec.labels ?? {}, cronJob, days, marginUsd }
}

function cronJobOf(uid: string | undefined, name: string | undefined): Item["cronJob"] {
  return uid === undefined ? undefined : { uid, name }
}

/** Costs of a Statement. */
export type Costs = Omit<StatementStatus, "observedGeneration" | "counted">

/** Returns the costs with further items. */
export function addedTo(before: Costs, items: readonly Item[]): Costs {
  const sum = (first: number | undefined, usdOf: (item: Item) => number) =>
    items.reduce((total, item) => roundUsd(total + usdOf(item)), first ?? 0)
  const marginUsd = sum(before.marginUsd, (item) => item.marginUsd)
  const byCloud = sumByName(before.byCloud, ...items.map(({ cloud, usd }) => [cloud, usd] as const))
  const byProvisioning = sumByName(
    before.byProvisioning,
    ...items.map(({ provisioning, usd }) => [provisioning, usd] as const),
  )
  return {
    spentUsd: sum(before.spentUsd, ({ usd }) => usd),
    ...(marginUsd > 0 && { marginUsd }),
    byCloud,
    byProvisioning,
    ...byLabelOf(before, items),
    ...byCronJobOf(before, items),
    ...dailyOf(before, items),
  }
}

function sumByName(before: Record<string, number> = {}, ...parts: readonly (readonly [name: string, usd: number])[]) {
  const sums = new Map(Object.entries(before))
  for (const [name, usd] of parts) sums.set(name, roundUsd((sums.get(name) ?? 0) + usd))
  return Object.fromEntries(sums)
}

/**
 * Adds parts to those that are kept apart, by their key. New ones beyond the maximum share one sum, which is returned
 * beside them.
 */
function keptApart<T extends { usd: number }>(
  before: readonly T[] | undefined,
  parts: readonly T[],
  { keyOf, most, othersUsd = 0 }: { keyOf: (part: T) => string; most: number; othersUsd: number | undefined },
): { kept: T[]; othersUsd: number } {
  const sums = new Map((before ?? []).map((part) => [keyOf(part), part]))
  let others = othersUsd
  for (const part of parts) {
    const key = keyOf(part)
    const known = sums.get(key)
    if (known === undefined && sums.size >= most) others = roundUsd(others + part.usd)
    else sums.set(key, { ...known, ...part, usd: roundUsd((known?.usd ?? 0) + part.usd) })
  }
  return { kept: [...sums.values()], othersUsd: others }
}

function byLabelOf(before: Costs, items: readonly Item[]): Pick<Costs, "byLabel" | "otherLabelsUsd"> {
  const parts = items.flatMap((item) =>
    Object.entries(item.labels).map(([key, value]) => ({ key, value, usd: item.usd })),
  )
  const limits = { most: MOST_LABELS, othersUsd: before.otherLabelsUsd }
  const keyOf = ({ key, value }: { key: string; value: string }) => JSON.stringify([key, value])
  const { kept, othersUsd } = keptApart(before.byLabel, parts, { ...limits, keyOf })
  return { ...(kept.length > 0 && { byLabel: kept }), ...(othersUsd > 0 && { otherLabelsUsd: othersUsd }) }
}

function byCronJobOf(before: Costs, items: readonly Item[]): Pick<Costs, "byCronJob" | "otherCronJobsUsd"> {
  const parts = items.flatMap(({ cronJob, usd }) => {
    if (cronJob === undefined) return []
    const { uid, name } = cronJob
    return [{ uid, ...defined({ name }), usd }]
  })
  const limits = { most: MOST_CRON_JOBS, othersUsd: before.otherCronJobsUsd }
  const { kept, othersUsd } = keptApart(before.byCronJob, parts, { ...limits, keyOf: ({ uid }) => uid })
  return { ...(kept.length > 0 && { byCronJob: kept }), ...(othersUsd > 0 && { otherCronJobsUsd: othersUsd }) }
}

/** Returns the costs by day. Only a day with more than 8 pairs of cloud and purchase option could lack some. */
function dailyOf({ daily = [] }: Costs, items: readonly Item[]): Pick<Costs, "daily"> {
  const keyOf = ({ day, cloud, provisioning }: DailyCost) => `${day} ${cloud} ${provisioning}`
  const sums = new Map(daily.map((part) => [keyOf(part), part]))
  for (const { cloud, provisioning, days } of items) {
    for (const { day, seconds, cost } of days) {
      const part = { day: Number(day.slice(8)), cloud, provisioning, vmSeconds: seconds, ...cost }
      const known = sums.get(keyOf(part))
      if (known === undefined && sums.size >= MOST_DAILY) continue
      const vmSeconds = (known?.vmSeconds ?? 0) + seconds
      sums.set(keyOf(part), { ...part, ...addParts([cost, ...(known ? [known] : [])]), vmSeconds })
    }
  }
  const sorted = [...sums.values()].sort((a, b) => a.day - b.day || (keyOf(a) < keyOf(b) ? -1 : 1))
  return sorted.length > 0 ? { daily: sorted } : {}
}
