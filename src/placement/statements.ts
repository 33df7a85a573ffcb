import { isTerminal, type StoredJob } from "../apis/job.ts"
import { isOver, type StoredLaunch } from "../apis/launch.ts"
import { ANNOTATIONS } from "../apis/meta.ts"
import { roundUsd } from "../apis/money.ts"
import { MOST_LABELS, monthOf, type StatementStatus, type StoredStatement } from "../apis/statement.ts"

/** Part of a cost in one month. */
export interface MonthlyCost {
  /** Such as `2026-11`. */
  month: string
  usd: number
}

/**
 * Returns the cost of an ended VM by month (UTC), oldest first. A VM that runs at the end of a month is split by time. The
 * parts add up to its cost. Empty: the Launch is not over, or cost nothing.
 */
export function costsOf(launch: StoredLaunch): MonthlyCost[] {
  const { metadata, status } = launch
  const { vm, costUsd = 0 } = status ?? {}
  if (!isOver(launch) || costUsd === 0) return []
  const end = new Date(vm?.terminationTime ?? metadata.creationTimestamp)
  const begin = new Date(vm?.createTime ?? metadata.creationTimestamp)
  const total = end.getTime() - begin.getTime()
  const costs: MonthlyCost[] = []
  let left = costUsd
  for (let from = begin; monthOf(from) < monthOf(end); ) {
    const to = nextMonth(from)
    const usd = roundUsd((costUsd * (to.getTime() - from.getTime())) / total)
    if (usd > 0) costs.push({ month: monthOf(from), usd })
    left = roundUsd(left - usd)
    from = to
  }
  return left > 0 ? [...costs, { month: monthOf(end), usd: left }] : costs
}

function nextMonth(time: Date): Date {
  return new Date(Date.UTC(time.getUTCFullYear(), time.getUTCMonth() + 1, 1))
}

/** Returns true if an ended Launch says that its cost is counted. */
export function isMarked({ metadata }: StoredLaunch): boolean {
  return metadata.annotations?.[ANNOTATIONS.counted] !== undefined
}

/** Returns true if a Launch that is over adds nothing to any Statement: it is counted in all its months, or cost nothing. */
export function isCounted(
  launch: StoredLaunch,
  statementOf: (namespace: string, month: string) => StoredStatement | undefined,
): boolean {
  if (isMarked(launch)) return true
  const { namespace } = launch.spec.job
  const { name } = launch.metadata
  return costsOf(launch).every(({ month }) => statementOf(namespace, month)?.status?.counted?.includes(name) ?? false)
}

/** Returns true once costs have been written into a Statement. A new one has none yet. */
export function hasBegun(statement: StoredStatement | undefined): statement is StoredStatement {
  return statement?.status?.spentUsd !== undefined
}

/** Cost that a Statement gets, and what it is shown by. */
export interface Item {
  usd: number
  cloud: string
  provisioning: string
  labels: Readonly<Record<string, string>>
}

/**
 * Returns the costs of jobs that ended in a month before their project had Statements, without the part that their
 * Launches still show. A job that ended since is settled, and its Launches were counted.
 */
export function earlierItems(
  jobs: readonly StoredJob[],
  launchesOf: (job: StoredJob) => readonly StoredLaunch[],
  month: string,
): Item[] {
  return jobs.flatMap((job) => {
    const { phase, completionTime, settled, cost, placement } = job.status ?? {}
    if (!isTerminal(phase) || settled === true || !completionTime?.startsWith(month)) return []
    const shown = launchesOf(job).reduce((total, { status }) => total + (status?.costUsd ?? 0), 0)
    const usd = roundUsd((cost?.actualUsd ?? 0) - shown)
    const { cloud = "unknown", provisioning = "unknown" } = placement?.offer ?? {}
    return usd > 0 ? [{ usd, cloud, provisioning, labels: job.spec.labels ?? {} }] : []
  })
}

/** Returns the part of a Launch's cost as an item. */
export function itemOf({ spec }: StoredLaunch, usd: number): Item {
  const { cloud, provisioning } = spec.offer
  return { usd, cloud, provisioning, labels: spec.labels ?? {} }
}

/** Costs of a Statement. */
export type Costs = Pick<StatementStatus, "spentUsd" | "byCloud" | "byProvisioning" | "byLabel" | "otherLabelsUsd">

/** Returns the costs with further items. */
export function addedTo(before: Costs, items: readonly Item[]): Costs {
  const spentUsd = items.reduce((total, { usd }) => roundUsd(total + usd), before.spentUsd ?? 0)
  const labels = items.flatMap((item) =>
    Object.entries(item.labels).map(([key, value]) => ({ key, value, usd: item.usd })),
  )
  return {
    spentUsd,
    byCloud: summed(
      before.byCloud,
      items.map(({ cloud, usd }) => [cloud, usd]),
    ),
    byProvisioning: summed(
      before.byProvisioning,
      items.map(({ provisioning, usd }) => [provisioning, usd]),
    ),
    ...byLabelOf(before, labels),
  }
}

function summed(before: Record<string, number> = {}, parts: readonly [name: string, usd: number][]) {
  const sums = new Map(Object.entries(before))
  for (const [name, usd] of parts) sums.set(name, roundUsd((sums.get(name) ?? 0) + usd))
  return Object.fromEntries(sums)
}

/** Returns the costs by label. New labels beyond the maximum share one sum. */
function byLabelOf(
  { byLabel = [], otherLabelsUsd = 0 }: Costs,
  parts: NonNullable<Costs["byLabel"]>,
): Pick<Costs, "byLabel" | "otherLabelsUsd"> {
  const sums = new Map(byLabel.map((part) => [JSON.stringify([part.key, part.value]), part]))
  let others = otherLabelsUsd
  for (const part of parts) {
    const id = JSON.stringify([part.key, part.value])
    const known = sums.get(id)
    if (known === undefined && sums.size >= MOST_LABELS) others = roundUsd(others + part.usd)
    else sums.set(id, { ...part, usd: roundUsd((known?.usd ?? 0) + part.usd) })
  }
  return { ...(sums.size > 0 && { byLabel: [...sums.values()] }), ...(others > 0 && { otherLabelsUsd: others }) }
}
