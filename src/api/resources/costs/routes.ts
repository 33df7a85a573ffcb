import type { StoredCronJob } from "../../../core/apis/cronjob.ts"
import { quote } from "../../../core/apis/field-error.ts"
import type { StoredJob } from "../../../core/apis/job.ts"
import { dayOf, monthOf } from "../../../core/apis/statement.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import type { CappedLevel } from "../../../market/placement/caps.ts"
import { namedSchema } from "../../http/json-schema.ts"
import { invalidRequest } from "../../http/problem.ts"
import { choice, type QueryParameter } from "../../http/query.ts"
import { json, routeDeclarer } from "../../http/route.ts"
import { type CostSources, collectCells, type Period } from "./costs.ts"
import { focusCsv } from "./focus.ts"
import { buildReport, type CostFacts, GROUPS, type Group } from "./report.ts"
import { type CostReport, CostReportSchema } from "./schema.ts"

export interface CostServices {
  sourcesOf: (namespace: string) => CostSources
  /** Returns the levels with caps that a namespace's project is under, with the spending. */
  levelsOf: (namespace: string) => readonly CappedLevel[]
  jobsIn: (namespace: string) => readonly StoredJob[]
  cronJobsIn: (namespace: string) => readonly StoredCronJob[]
  /** Returns the cost of a job so far, USD. */
  costOfJob: (job: StoredJob) => number
  now: () => Date
}

/**
 * Days that exist, of years with four digits: the month after the last day has such a year too. The document has the
 * pattern, so that generated requests have no 31 November.
 */
const DAY =
  /^([12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([12][0-9](0[48]|[2468][048]|[13579][26])|(1[26]|2[048])00)-02-29)$/

/** Declares a parameter with a day. */
function day(description: string): QueryParameter<string | undefined> {
  return {
    schema: { type: "string", pattern: `^$|${DAY.source}` },
    description,
    read: (query, name) => {
      const text = query.one(name)
      if (text === undefined || text === "") return undefined
      if (DAY.test(text)) return text
      query.error(name, `must be a day (UTC) from 1000-01-01 to 2999-12-31, such as 2026-11-01, not ${quote(text)}`)
      return undefined
    },
  }
}

const GROUP_PATTERN = `^((${GROUPS.join("|")})|label:[^\\x00-\\x1f\\x7f]{1,317})$`

const BY: QueryParameter<Group> = {
  schema: { type: "string", pattern: GROUP_PATTERN, default: "day" },
  description: `One of ${GROUPS.join(", ")}, or label: and a key, such as label:team.`,
  read: (query, name) => {
    const text = query.one(name) ?? "day"
    const group = GROUPS.find((each) => each === text)
    if (group !== undefined) return { by: group }
    if (/^label:.+$/.test(text)) return { by: "label", key: text.slice(6) }
    query.error(name, `must be one of ${GROUPS.join(", ")}, or label:<key>, not ${quote(text)}`)
    return { by: "day" }
  },
}

const REPORT = namedSchema("CostReport", CostReportSchema, {
  from: "2026-11-01",
  to: "2026-12-01",
  by: "cloud",
  total_usd: 61.2,
  rows: [
    { key: "gcp", cost_usd: 42.7 },
    { key: "aws", cost_usd: 18.5 },
  ],
  budgets: [
    {
      level: "project",
      max_vms: null,
      max_gpus: null,
      max_idle_vms: null,
      max_hourly_usd: null,
      max_monthly_usd: 90,
      on_exceeded: "wait",
      reserve: "expected",
      vms: 2,
      gpus: 0,
      idle_vms: 0,
      hourly_usd: 1.2,
      spent_usd: 61.2,
      reserved_usd: 7.1,
      left_usd: 21.7,
    },
  ],
} satisfies CostReport)

const route = routeDeclarer<Principal, CostServices>({ tag: "costs" })

export const costRoutes = [
  route("GET /costs", {
    id: "getCosts",
    summary: "Get what the project's VMs cost, and the budgets that it is under.",
    role: "viewer",
    query: {
      from: day("First day (UTC). Default: the first of this month."),
      to: day("Day after the last one (UTC). Default: the first of the next month."),
      by: BY,
      format: choice(["json", "focus"], "json"),
    },
    responses: {
      200: json(REPORT, "The costs. With format=focus: CSV in the columns of FOCUS 1.2.", {
        otherMediaType: "text/csv",
      }),
    },
    handle: ({ query, principal, req, res }, services) => {
      const now = services.now()
      const period = periodOf(query, now)
      const { id: projectId, organizationId, namespace } = principal.project
      if (query.format === "json") return { body: buildReport(query.by, period, factsOf(namespace, services), now) }
      const cells = collectCells(services.sourcesOf(namespace), period, now)
      res.type("text/csv; charset=utf-8")
      res.end(req.method === "HEAD" ? undefined : focusCsv(cells, { projectId, organizationId }))
      return undefined
    },
  }),
]

/** @throws Problem 400 */
function periodOf(query: { from: string | undefined; to: string | undefined }, now: Date): Period {
  const from = query.from ?? `${monthOf(now)}-01`
  const begin = new Date(`${from}T00:00:00Z`)
  const next = new Date(Date.UTC(begin.getUTCFullYear(), begin.getUTCMonth() + 1, 1))
  const to = query.to ?? dayOf(query.from === undefined ? next : new Date(Math.max(next.getTime(), nextMonthOf(now))))
  if (from < to) return { from, to }
  throw invalidRequest([{ pointer: "", detail: `from (${from}) must be before to (${to})` }], "The query")
}

function nextMonthOf(now: Date): number {
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1)
}

function factsOf(namespace: string, services: CostServices): CostFacts {
  return {
    sources: services.sourcesOf(namespace),
    levels: services.levelsOf(namespace),
    jobs: services.jobsIn(namespace),
    cronJobs: services.cronJobsIn(namespace),
    costOfJob: services.costOfJob,
  }
}
