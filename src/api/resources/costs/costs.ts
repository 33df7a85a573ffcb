import { isOver, type StoredLaunch } from "../../../core/apis/launch.ts"
import { roundUsd } from "../../../core/apis/money.ts"
import { type CostParts, sumOfParts } from "../../../core/apis/price.ts"
import { dayOf, type StoredStatement } from "../../../core/apis/statement.ts"
import { costsSoFar, isMarked, type MonthlyCost, monthlyCosts } from "../../../market/placement/statements.ts"

/** Days of a report (UTC): from the first, until before the second. */
export interface Period {
  /** Such as `2026-11-01`. */
  from: string
  to: string
}

/** Cost of one day, cloud and purchase option. */
export interface Cell extends CostParts {
  /** Day; the month alone for costs that its Statement does not keep by day. */
  day: string
  cloud: string
  provisioning: string
  vmSeconds: number
}

/** Costs of a project that no Statement has yet. */
interface OpenCost extends MonthlyCost {
  launch: StoredLaunch
}

/** Statements and Launches of one project. */
export interface CostSources {
  statements: readonly StoredStatement[]
  launches: readonly StoredLaunch[]
}

/** Returns the costs of a project that its Statements do not have: of ended VMs, and of live ones so far. */
export function openCosts({ statements, launches }: CostSources, now: Date): OpenCost[] {
  const counted = new Map(statements.map(({ spec, status }) => [spec.month, new Set(status?.counted)]))
  return launches.flatMap((launch) => {
    if (isMarked(launch)) return []
    const costs = isOver(launch) ? monthlyCosts(launch) : costsSoFar(launch, now)
    const { name } = launch.metadata
    return costs.filter(({ month }) => !counted.get(month)?.has(name)).map((cost) => ({ ...cost, launch }))
  })
}

/** Returns the costs of a period by day, cloud and purchase option. Pure. */
export function collectCells(sources: CostSources, { from, to }: Period, now: Date): Cell[] {
  const cells = new Map<string, Cell>()
  const add = (cell: Cell): void => {
    if (!isIn(cell.day, { from, to })) return
    const key = `${cell.day} ${cell.cloud} ${cell.provisioning}`
    const { machineUsd = 0, diskUsd = 0, addressUsd = 0, vmSeconds = 0 } = cells.get(key) ?? {}
    cells.set(key, {
      ...cell,
      machineUsd: roundUsd(machineUsd + cell.machineUsd),
      diskUsd: roundUsd(diskUsd + cell.diskUsd),
      addressUsd: roundUsd(addressUsd + cell.addressUsd),
      vmSeconds: vmSeconds + cell.vmSeconds,
    })
  }
  for (const statement of sources.statements) for (const cell of recordedCells(statement)) add(cell)
  for (const { launch, days } of openCosts(sources, now)) {
    const { cloud, provisioning } = launch.spec.offer
    for (const { day, seconds, cost } of days) add({ day, cloud, provisioning, vmSeconds: seconds, ...cost })
  }
  return [...cells.values()].sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
}

function keyOf({ day, cloud, provisioning }: Cell): string {
  return `${day} ${cloud} ${provisioning}`
}

/** A month without days is in a period that has a part of it. */
function isIn(day: string, { from, to }: Period): boolean {
  if (day.length > 7) return day >= from && day < to
  return day >= from.slice(0, 7) && `${day}-01` < to
}

/** Returns the cells of a Statement. Costs beyond MOST_DAILY, which have no day, are one cell by cloud. */
function recordedCells({ spec: { month }, status }: StoredStatement): Cell[] {
  const { daily = [], byCloud = {} } = status ?? {}
  const cells = daily.map(
    ({ day, vmSeconds = 0, ...part }): Cell => ({
      ...part,
      vmSeconds,
      day: `${month}-${String(day).padStart(2, "0")}`,
    }),
  )
  const withoutDay = Object.entries(byCloud).flatMap(([cloud, usd]): Cell[] => {
    const known = cells.filter((cell) => cell.cloud === cloud).reduce((total, cell) => total + sumOfParts(cell), 0)
    const machineUsd = roundUsd(usd - known)
    if (machineUsd <= 0) return []
    return [{ day: month, cloud, provisioning: "unknown", vmSeconds: 0, machineUsd, diskUsd: 0, addressUsd: 0 }]
  })
  return [...cells, ...withoutDay]
}

/** Returns the names of CronJobs that the costs know, by uid. They may be deleted. */
export function cronJobNamesIn({ statements, launches }: CostSources): Map<string, string> {
  const recorded = statements.flatMap(({ status }) => status?.byCronJob ?? [])
  const open = launches.map(({ spec }) => ({ uid: spec.cronJob, name: spec.cronJobName }))
  return new Map(
    [...recorded, ...open].flatMap(({ uid, name }) => (uid === undefined || name === undefined ? [] : [[uid, name]])),
  )
}

/** Costs by a key; null: the rest. */
export type Grouped = Map<string | null, number>

export function sumCells(cells: readonly Cell[]): number {
  return roundUsd(cells.reduce((total, cell) => total + sumOfParts(cell), 0))
}

/** Returns the costs of cells by one of their properties. */
export function groupCosts(cells: readonly Cell[], property: "day" | "cloud" | "provisioning"): Grouped {
  const sums: Grouped = new Map()
  for (const cell of cells) sums.set(cell[property], roundUsd((sums.get(cell[property]) ?? 0) + sumOfParts(cell)))
  return sums
}

/** Parts of the cost of one day, USD. */
export interface DayParts {
  byCloud: Record<string, number>
  byProvisioning: Record<string, number>
}

/** Returns the parts of each day. */
export function partsOfDays(cells: readonly Cell[]): Map<string, DayParts> {
  return new Map(
    [...Map.groupBy(cells, ({ day }) => day)].map(([day, of]) => {
      const byCloud = Object.fromEntries(groupCosts(of, "cloud"))
      return [day, { byCloud, byProvisioning: Object.fromEntries(groupCosts(of, "provisioning")) }]
    }),
  )
}

/** Parts of a month that Statements keep apart besides days. */
export interface Selection {
  recorded: (statement: StoredStatement) => readonly (readonly [value: string, usd: number])[]
  valueIn: (launch: StoredLaunch) => string | undefined
}

/** Selects the values of a label. */
export function byLabel(key: string): Selection {
  return {
    recorded: ({ status }) =>
      (status?.byLabel ?? []).filter((part) => part.key === key).map(({ value, usd }) => [value, usd]),
    valueIn: ({ spec }) => spec.labels?.[key],
  }
}

/** Selects the uids of CronJobs. */
export const BY_CRON_JOB: Selection = {
  recorded: ({ status }) => (status?.byCronJob ?? []).map(({ uid, usd }) => [uid, usd]),
  valueIn: ({ spec }) => spec.cronJob,
}

/** Returns the costs of whole months by a selection. The rest has other values, none, or is not kept apart. */
export function groupMonths(
  sources: CostSources,
  { from, to }: Period,
  { recorded, valueIn }: Selection,
  now: Date,
): Grouped {
  const isInPeriod = (month: string) => month >= from.slice(0, 7) && `${month}-01` < to
  const parts = [
    ...sources.statements.filter(({ spec }) => isInPeriod(spec.month)).flatMap(recorded),
    ...openCosts(sources, now)
      .filter(({ month }) => isInPeriod(month))
      .flatMap(({ launch, usd }) => {
        const value = valueIn(launch)
        return value === undefined ? [] : [[value, usd] as const]
      }),
  ]
  const sums: Grouped = new Map()
  for (const [value, usd] of parts) sums.set(value, roundUsd((sums.get(value) ?? 0) + usd))
  return sums
}

/** Returns true if a period has all costs of its months: it ends with a month, or after today. */
export function isOfMonths({ from, to }: Period, now: Date): boolean {
  return from.endsWith("-01") && (to.endsWith("-01") || to > dayOf(now))
}

/** Adds the difference to a total, so that the groups add up to it. It is negative if they have more. */
export function withRest(groups: Grouped, totalUsd: number): Grouped {
  const known = [...groups.values()].reduce((total, usd) => total + usd, 0)
  const rest = roundUsd(totalUsd - known)
  return rest === 0 ? groups : new Map([...groups, [null, rest]])
}
