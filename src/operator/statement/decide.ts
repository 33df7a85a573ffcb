import type { StoredLaunch } from "../../core/apis/launch.ts"
import { MOST_COUNTED, monthOf, type StatementStatus, type StoredStatement } from "../../core/apis/statement.ts"
import { addedTo, isMarked, type MonthlyCost, monthlyCosts, toItem } from "../../market/placement/statements.ts"
import type { StatementSettings } from "./settings.ts"

/** Inputs of a decision on the Statements of one project. */
export interface StatementObservation {
  /** Statements of the project, by month. */
  statements: ReadonlyMap<string, StoredStatement>
  /** Returns the Launches of the project, at least those that are not marked as counted. */
  launches: () => readonly StoredLaunch[]
  /** Seconds since the last write for this project by this process. Absent: there was none. */
  writtenSecondsAgo?: number
}

export type StatementAction =
  | { do: "create"; month: string; organization: string | undefined; status: StatementStatus }
  | { do: "writeStatus"; statement: StoredStatement; status: StatementStatus }
  | { do: "delete"; statement: StoredStatement }

export interface StatementDecision {
  actions: StatementAction[]
  requeueAfter?: number
}

/** Longest delay before the Statements are looked at again, seconds: a month may have passed. */
const DAY_SECONDS = 24 * 3600

/** Part of the cost of a Launch that is not marked as counted. */
interface OpenCost extends MonthlyCost {
  launch: StoredLaunch
}

/**
 * Decides what is added to a project's Statements. Pure. Each cost is counted once, after any crash. One write has both
 * the cost and the name of the Launch. The Launch is marked next, and the next write removes its name.
 */
export function decide(observed: StatementObservation, now: Date, settings: StatementSettings): StatementDecision {
  const { statements, launches, writtenSecondsAgo = Number.POSITIVE_INFINITY } = observed
  const left = settings.collectSeconds - writtenSecondsAgo
  // Each VM that ends asks. Only the first one after the delay is worth reading all of them.
  if (left > 0) return { actions: [], requeueAfter: left }
  const open = launches()
    .filter((launch) => !isMarked(launch))
    .flatMap((launch) => monthlyCosts(launch).map((cost): OpenCost => ({ ...cost, launch })))
  const months = new Set([...open.map(({ month }) => month), ...statements.keys(), monthOf(now)])
  const actions = [...months].sort().flatMap((month) => decideMonth(month, open, observed, { now, settings }))
  return { actions, ...(statements.size > 0 && { requeueAfter: DAY_SECONDS }) }
}

/** Decides on the Statement of one month. The names of Launches leave it once these are marked, or deleted. */
function decideMonth(
  month: string,
  all: readonly OpenCost[],
  { statements }: StatementObservation,
  { now, settings }: { now: Date; settings: StatementSettings },
): StatementAction[] {
  const statement = statements.get(month)
  const open = all.filter((cost) => cost.month === month)
  if (open.length === 0 && isExpired(month, now, settings)) {
    return statement === undefined ? [] : [{ do: "delete", statement }]
  }
  const before = statement?.status ?? {}
  const known = new Set(before.counted)
  const [kept, fresh] = [open.filter(nameIn(known)), open.filter((cost) => !nameIn(known)(cost))]
  const added = fresh.slice(0, MOST_COUNTED - kept.length)
  const items = added.map((cost) => toItem(cost.launch, cost))
  // A later write for this month is unlikely.
  const isToClear = month < monthOf(now) && kept.length < known.size
  if (items.length === 0 && !isToClear) return []
  const status: StatementStatus = {
    observedGeneration: statement?.metadata.generation ?? 1,
    ...addedTo(before, items),
    counted: [...kept, ...added].map(({ launch }) => launch.metadata.name),
  }
  if (statement !== undefined) return [{ do: "writeStatus", statement, status }]
  const organization = added.find(({ launch }) => launch.spec.organization !== undefined)?.launch.spec.organization
  return [{ do: "create", month, organization, status }]
}

function nameIn(names: ReadonlySet<string>): (cost: OpenCost) => boolean {
  return ({ launch }) => names.has(launch.metadata.name)
}

function isExpired(month: string, now: Date, { monthsKept }: StatementSettings): boolean {
  return month < monthOf(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - monthsKept, 1)))
}
