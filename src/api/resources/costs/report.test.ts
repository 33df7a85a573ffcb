import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { at, jobOf, launchOf, offerOf, time } from "../../../../test/harness/builders.ts"
import type { StoredJob } from "../../../core/apis/job.ts"
import type { LaunchStatus, StoredLaunch } from "../../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../../core/apis/meta.ts"
import { roundUsd } from "../../../core/apis/money.ts"
import { costOf, sumOfParts } from "../../../core/apis/price.ts"
import { dayOf, type StoredStatement } from "../../../core/apis/statement.ts"
import { addedTo, type Costs, monthlyCosts, toItem } from "../../../market/placement/statements.ts"
import { Problem } from "../../http/problem.ts"
import { collectCells, isOfMonths, type Period } from "./costs.ts"
import { focusCsv } from "./focus.ts"
import { buildReport, type CostFacts, type Group } from "./report.ts"

const DAY = 86_400
/** 2026-06-10T12:00:00Z: 40 days after the builders' time. */
const NOW = at(40 * DAY)

interface Vm {
  start: number
  seconds: number
  isLive: boolean
  /** True if a Statement has its cost. */
  isCounted: boolean
  usdPerHour: number
  cloud: string
  provisioning: "spot" | "onDemand"
  team?: string
  cronJob?: string
}

const vms: fc.Arbitrary<Vm[]> = fc.array(
  fc.record(
    {
      start: fc.integer({ min: -40 * DAY, max: 40 * DAY - 1 }),
      seconds: fc.oneof(fc.integer({ min: 1, max: 7200 }), fc.integer({ min: 1, max: 50 * DAY })),
      isLive: fc.boolean(),
      isCounted: fc.boolean(),
      usdPerHour: fc.double({ min: 0.001, max: 98.32, noNaN: true }),
      cloud: fc.constantFrom("aws", "gcp", "azure"),
      provisioning: fc.constantFrom("spot" as const, "onDemand" as const),
      team: fc.constantFrom("vision", "speech"),
      cronJob: fc.constantFrom("nightly", "deleted"),
    },
    { requiredKeys: ["start", "seconds", "isLive", "isCounted", "usdPerHour", "cloud", "provisioning"] },
  ),
  { maxLength: 12 },
)

function launchOfVm(vm: Vm, index: number): StoredLaunch {
  const { start, usdPerHour, cloud, provisioning, team, cronJob } = vm
  const hourly = { machineUsd: roundUsd(usdPerHour), diskUsd: 0.0041, addressUsd: 0.005 }
  const offer = offerOf({ cloud, provisioning, hourlyPriceUsd: hourly.machineUsd })
  const seconds = Math.min(vm.seconds, 40 * DAY - start)
  const cost = costOf(hourly, { seconds, minimumBilledSeconds: 60 })
  const ended = { state: "terminated" as const, createTime: time(start), terminationTime: time(start + seconds) }
  const status: LaunchStatus = vm.isLive
    ? { phase: "running", vm: { state: "running", createTime: time(start) } }
    : { phase: "terminated", vm: ended, cost, costUsd: sumOfParts(cost) }
  const spec = {
    offer,
    hourly,
    ...(team !== undefined && { labels: { team } }),
    ...(cronJob !== undefined && { cronJob, cronJobName: `name-of-${cronJob}` }),
  }
  const launch = launchOf(jobOf(), index + 1, { spec, status })
  if (vm.isLive || !vm.isCounted) return launch
  const metadata = { ...launch.metadata, annotations: { [ANNOTATIONS.counted]: "2026-06" } }
  return { ...launch, metadata }
}

function statementsOf(counted: readonly StoredLaunch[]): StoredStatement[] {
  const months = new Map<string, Costs>()
  for (const launch of counted)
    for (const cost of monthlyCosts(launch))
      months.set(cost.month, addedTo(months.get(cost.month) ?? {}, [toItem(launch, cost)]))
  return [...months].map(([month, status]) => {
    const metadata = { name: month, uid: month, resourceVersion: "1", generation: 1, creationTimestamp: time(0) }
    return { apiVersion: "", kind: "Statement", metadata, spec: { namespace: "team", month }, status }
  })
}

/** Returns the facts of a project whose VMs each ran a job of their own. Deleted jobs are not among them. */
function factsOf(all: readonly Vm[]): CostFacts {
  const launches = all.map(launchOfVm)
  const counted = launches.filter(({ metadata }) => metadata.annotations?.[ANNOTATIONS.counted] !== undefined)
  const jobs = all.flatMap(({ start, seconds, isLive, cloud }, index): StoredJob[] => {
    if (cloud === "azure") return []
    const end = time(Math.min(start + seconds, 40 * DAY))
    const status = isLive ? ({ phase: "running" } as const) : ({ phase: "succeeded", completionTime: end } as const)
    return [jobOf({ metadata: { name: `job-${index}` }, status })]
  })
  const usd = new Map(launches.map(({ status }, index) => [`job-${index}`, status?.costUsd ?? 1]))
  return {
    sources: { statements: statementsOf(counted), launches: launches.filter((launch) => !counted.includes(launch)) },
    levels: [],
    jobs,
    cronJobs: [],
    costOfJob: ({ metadata }) => usd.get(metadata.name) ?? 0,
  }
}

const days = fc.integer({ min: -45, max: 45 }).map((count) => dayOf(at(count * DAY)))
const firsts = fc.constantFrom("2026-03-01", "2026-04-01", "2026-05-01", "2026-06-01", "2026-07-01")
const border = fc.oneof(days, firsts)
const periods: fc.Arbitrary<Period> = fc
  .tuple(border, border)
  .filter(([one, other]) => one !== other)
  .map((both) => both.toSorted() as [string, string])
  .map(([from, to]) => ({ from, to }))
const groups = fc.constantFrom<Group>(
  ...(["day", "cloud", "provisioning", "job", "cronjob"] as const).map((by) => ({ by })),
  { by: "label", key: "team" },
)

describe("a report of any project, period and group", () => {
  it("has rows that add up to its total, or is a 400 for a part of a month that Statements don't keep apart", () => {
    fc.assert(
      fc.property(vms, periods, groups, (all, period, group) => {
        const isByMonth = group.by === "label" || group.by === "cronjob"
        if (isByMonth && !isOfMonths(period, NOW)) {
          expect(() => buildReport(group, period, factsOf(all), NOW)).toThrow(Problem)
          return
        }
        const { rows, total_usd } = buildReport(group, period, factsOf(all), NOW)
        expect(roundUsd(rows.reduce((sum, { cost_usd }) => sum + cost_usd, 0))).toBe(total_usd)
        if (group.by !== "job") expect(rows.filter(({ cost_usd }) => cost_usd < 0)).toEqual([])
      }),
      { numRuns: 500 },
    )
  })

  it("has unit prices in FOCUS whose product with the quantity is the cost, and plain decimals", () => {
    fc.assert(
      fc.property(vms, (all) => {
        const cells = collectCells(factsOf(all).sources, { from: "2026-01-01", to: "2026-12-31" }, NOW)
        const [header = "", ...lines] = focusCsv(cells, { projectId: "p", organizationId: "o" }).trimEnd().split("\r\n")
        const columns = header.split(",")
        for (const line of lines) {
          const cellOf = (name: string) => line.replace(/"[^"]*"/g, "").split(",")[columns.indexOf(name)] ?? ""
          const numbers = ["ListUnitPrice", "PricingQuantity", "ListCost"].map(cellOf)
          for (const number of numbers) expect(number).toMatch(/^\d+(\.\d+)?$/)
          const [price = 0, quantity = 0, cost] = numbers.map(Number)
          expect(roundUsd(price * quantity)).toBe(cost)
        }
      }),
      { numRuns: 200 },
    )
  })
})

it("the export writes the smallest unit price of FOCUS without an exponent", () => {
  const cost = { machineUsd: 1e-6, diskUsd: 0, addressUsd: 0 }
  const cell = { ...cost, day: "2026-05-01", cloud: "aws", provisioning: "spot", vmSeconds: 7.2e6 }
  const csv = focusCsv([cell], { projectId: "p", organizationId: "o" })
  expect(csv).toContain(",0.000001,0.0000000004999999999999999,")
  expect(csv).not.toMatch(/\de-\d/)
})

it("a report shows the costs of deleted cronjobs by their names, apart from a new cronjob of the same name", () => {
  const vm: Vm = {
    ...{ start: 0, seconds: DAY, isLive: false, isCounted: true, usdPerHour: 1 },
    ...{ cloud: "aws", provisioning: "spot", cronJob: "old" },
  }
  const facts = factsOf([vm, { ...vm, isCounted: false }, { ...vm, cronJob: "new" }])
  const metadata = { uid: "new", name: "name-of-old", resourceVersion: "1", generation: 1, creationTimestamp: time(0) }
  const cronJobs = [{ metadata }] as unknown as CostFacts["cronJobs"]
  const { rows } = buildReport({ by: "cronjob" }, { from: "2026-05-01", to: "2026-06-01" }, { ...facts, cronJobs }, NOW)
  expect(rows.map(({ key }) => key)).toEqual(["name-of-old (deleted)", "name-of-old"])
  expect(rows[0]?.cost_usd).toBeCloseTo(2 * (rows[1]?.cost_usd ?? 0), 4)
})

describe("a report of a part of the present month", () => {
  const vm: Vm = {
    ...{ start: 0, seconds: 35 * DAY, isLive: false, isCounted: true, usdPerHour: 1 },
    ...{ cloud: "aws", provisioning: "spot", team: "vision", cronJob: "nightly" },
  }

  it.each<Group>([{ by: "label", key: "team" }, { by: "cronjob" }])(
    "is a 400 by $by until the month has all",
    (group) => {
      const report = (to: string) => buildReport(group, { from: "2026-06-01", to }, factsOf([vm]), NOW)
      expect(() => report("2026-06-02")).toThrow(Problem)
      expect(() => report("2026-06-10")).toThrow(Problem)
      expect(report("2026-06-11").total_usd).toBeGreaterThan(0)
    },
  )

  it("shows a job with its whole cost in the period of its end, and what lies outside as a negative rest", () => {
    const { rows, total_usd } = buildReport({ by: "job" }, { from: "2026-06-05", to: "2026-06-06" }, factsOf([vm]), NOW)
    const [job, rest] = rows
    expect(job?.cost_usd).toBeGreaterThan(800)
    expect(total_usd).toBeLessThan(25)
    expect(rest).toEqual({ key: null, cost_usd: roundUsd(total_usd - (job?.cost_usd ?? 0)) })
  })
})
