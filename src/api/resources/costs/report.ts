import type { StoredCronJob } from "../../../core/apis/cronjob.ts"
import { isTerminal, type StoredJob } from "../../../core/apis/job.ts"
import { roundUsd } from "../../../core/apis/money.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import type { CappedLevel } from "../../../market/placement/caps.ts"
import { invalidRequest } from "../../http/problem.ts"
import {
  BY_CRON_JOB,
  byLabel,
  type CostSources,
  collectCells,
  cronJobNamesIn,
  type Grouped,
  groupCosts,
  groupMonths,
  isOfMonths,
  type Period,
  partsOfDays,
  sumCells,
  withRest,
} from "./costs.ts"
import { type CostReport, toBudgetRecord } from "./schema.ts"

/** Facts about one project from which its report is calculated. */
export interface CostFacts {
  sources: CostSources
  /** Levels with caps that the project is under, with the spending. */
  levels: readonly CappedLevel[]
  jobs: readonly StoredJob[]
  cronJobs: readonly StoredCronJob[]
  /** Returns the cost of a job so far, USD. */
  costOfJob: (job: StoredJob) => number
}

/** Properties by which costs are grouped, besides labels. */
export const GROUPS = ["day", "cloud", "provisioning", "job", "cronjob"] as const
export type Group = { by: (typeof GROUPS)[number] } | { by: "label"; key: string }

/** Largest number of rows. The rest is one row. */
const MOST_ROWS = 1000

/** Returns the report of a period. Its rows add up to its total. Pure. @throws Problem 400 if the group has other periods only */
export function buildReport(group: Group, period: Period, facts: CostFacts, now: Date): CostReport {
  const cells = collectCells(facts.sources, period, now)
  const totalUsd = sumCells(cells)
  const groups = (): Grouped => {
    if (group.by === "day" || group.by === "cloud" || group.by === "provisioning") return groupCosts(cells, group.by)
    if (group.by === "job") return groupedByJob(facts, period, now)
    requireMonths(group, period, now)
    if (group.by === "label") return groupMonths(facts.sources, period, byLabel(group.key), now)
    return namedCronJobs(groupMonths(facts.sources, period, BY_CRON_JOB, now), facts)
  }
  const days = group.by === "day" ? partsOfDays(cells) : undefined
  const rows = [...withRest(largest(groups()), totalUsd)].map(([key, cost_usd]) => {
    const parts = days?.get(key ?? "")
    return { key, cost_usd, ...(parts && { by_cloud: parts.byCloud, by_provisioning: parts.byProvisioning }) }
  })
  return {
    ...period,
    by: group.by === "label" ? `label:${group.key}` : group.by,
    total_usd: totalUsd,
    rows: group.by === "day" ? rows.sort((a, b) => ((a.key ?? "") < (b.key ?? "") ? -1 : 1)) : rows,
    budgets: facts.levels.map(toBudgetRecord),
  }
}

/** Mark of a deleted CronJob. No name has a blank, so a new CronJob of the same name has another key. */
const DELETED = " (deleted)"

/** Returns the costs by the names of CronJobs instead of their uids. Deleted ones of one name share a row. */
function namedCronJobs(byUid: Grouped, { sources, cronJobs }: CostFacts): Grouped {
  const present = new Map(cronJobs.map(({ metadata }) => [metadata.uid, metadata.name]))
  const known = cronJobNamesIn(sources)
  const sums: Grouped = new Map()
  for (const [uid, usd] of byUid) {
    const name = present.get(uid ?? "") ?? known.get(uid ?? "") ?? uid ?? ""
    const key = `${fromMetadataName(name)}${present.has(uid ?? "") ? "" : DELETED}`
    sums.set(key, roundUsd((sums.get(key) ?? 0) + usd))
  }
  return sums
}

/** Returns the largest groups, largest first. */
function largest(groups: Grouped): Grouped {
  return new Map([...groups].sort(([, a], [, b]) => b - a).slice(0, MOST_ROWS))
}

/** Statements keep labels and cronjobs by month. @throws Problem 400 */
function requireMonths({ by }: Group, { from, to }: Period, now: Date): void {
  if (isOfMonths({ from, to }, now)) return
  const detail =
    `by=${by} needs whole months: from (${from}) must be the first day of a month, ` +
    `and to (${to}) the first day of a month or after today. by=day, by=cloud and by=provisioning take any period`
  throw invalidRequest([{ pointer: "", detail }], "The query")
}

/** Returns the costs of jobs that ended in the period, and of those that have not ended so far, if it reaches until now. */
function groupedByJob({ jobs, costOfJob }: CostFacts, { from, to }: Period, now: Date): Grouped {
  const sums: Grouped = new Map()
  for (const job of jobs) {
    const { phase, completionTime = "" } = job.status ?? {}
    const until = isTerminal(phase) ? completionTime : now.toISOString()
    const isOf = until >= from && until < to
    const usd = isOf ? costOfJob(job) : 0
    if (usd > 0) sums.set(job.metadata.name, roundUsd(usd))
  }
  return sums
}
