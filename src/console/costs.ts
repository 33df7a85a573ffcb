import type { CostReport } from "../client/costs.ts"

/** Costs of each day of a period, in parts that a chart stacks. */
export interface Stack {
  /** Names of the parts, the most expensive first. */
  keys: string[]
  days: Day[]
  /** Cost that no day has, because its Statement has too many parts to keep it by day, USD. */
  undatedUsd: number
}

export interface Day {
  /** Such as `2026-11-24`. */
  day: string
  usd: number
  /** Cost by the keys of the stack, USD. */
  parts: number[]
}

/** Property of a day by which a chart stacks it. */
export type Part = "by_cloud" | "by_provisioning"

/** Most parts of a stack: as many as there are colors. The last one has the rest. */
export const MOST_PARTS = 5
const REST = "other"
const DAY_MS = 86_400_000

/** Returns the days of a report by day. Days without costs are there too. @param part absent: days in one part */
export function stackCosts({ rows, from, to }: CostReport, part?: Part): Stack {
  const partsOf = (row: CostReport["rows"][number]): Record<string, number> =>
    (part === undefined ? undefined : row[part]) ?? { total: row.cost_usd }
  const sums = new Map<string, number>()
  for (const row of rows)
    for (const [key, usd] of Object.entries(partsOf(row))) sums.set(key, (sums.get(key) ?? 0) + usd)
  const sorted = [...sums].sort(([, a], [, b]) => b - a).map(([key]) => key)
  const named = sorted.filter((key) => key !== REST)
  const keys = sorted.length > MOST_PARTS ? [...named.slice(0, MOST_PARTS - 1), REST] : sorted
  const found = new Map(rows.map((row) => [row.key, row]))
  const days = daysBetween(from, to).map((day): Day => {
    const row = found.get(day)
    const parts = keys.map(() => 0)
    for (const [key, usd] of Object.entries(row === undefined ? {} : partsOf(row))) {
      const at = keys.includes(key) ? keys.indexOf(key) : keys.length - 1
      parts[at] = (parts[at] ?? 0) + usd
    }
    return { day, usd: row?.cost_usd ?? 0, parts }
  })
  const undated = rows.filter(({ key }) => key === null || key.length < from.length)
  return { keys, days, undatedUsd: undated.reduce((sum, { cost_usd }) => sum + cost_usd, 0) }
}

function daysBetween(from: string, to: string): string[] {
  const count = Math.round((Date.parse(to) - Date.parse(from)) / DAY_MS)
  return Array.from({ length: count }, (_, index) => isoDay(Date.parse(from) + index * DAY_MS))
}

function isoDay(time: number): string {
  return new Date(time).toISOString().slice(0, 10)
}

/** Months of which Berth keeps the costs. */
const KEPT_MONTHS = 13

/** Returns the months (UTC) whose costs Berth keeps, the present one first, such as `2026-11`. */
export function keptMonths(now: number): string[] {
  const date = new Date(now)
  const monthAt = (index: number): string =>
    isoDay(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - index, 1)).slice(0, 7)
  return Array.from({ length: KEPT_MONTHS }, (_, index) => monthAt(index))
}

/** Returns the first round amount that is not below a number: 1, 2 or 5 times a power of ten. */
export function roundedUp(usd: number): number {
  if (usd <= 0) return 1
  const power = 10 ** Math.floor(Math.log10(usd))
  const factor = [1, 2, 5, 10].find((one) => one * power >= usd * (1 - 1e-9)) ?? 10
  return Number((factor * power).toPrecision(1))
}
