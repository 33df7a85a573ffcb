import { PassThrough } from "node:stream"
import { expect, test } from "vitest"
import type { ArrayPlan, JobPlan, JobSubmission } from "../client/client.ts"
import { exitOfPlan, planText } from "./plan.ts"
import { Terminal } from "./terminal.ts"

const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() } as never
const terminal = new Terminal(streams, true, new AbortController().signal)

type Placement = JobPlan["placements"][number]

function placementOf(region: string, hourlyUsd: number, fields: Partial<Placement> = {}): Placement {
  const total = hourlyUsd + 0.005
  return {
    ...{ provider: "gcp", region, zone: null, instance_type: "g2-standard-4", connection: "main", why: "" },
    ...{ provisioning: "onDemand", price_date: "2026-11-01", architecture: "amd64", cpu: 4, memory: "16Gi" },
    ...{ gpu: { model: "L4", count: 1, vram: "24Gi" }, hourly_price_usd: hourlyUsd - 0.01, estimated_cost_usd: total },
    cost_breakdown: { total_usd_per_hour: hourlyUsd, total_usd: total, traffic_usd: 0.005 },
    ...fields,
  } as Placement
}

function planOf(fields: Partial<JobPlan> = {}): JobPlan {
  const placements = [placementOf("europe-west4", 0.7548), placementOf("europe-west1", 0.7907)]
  return { verdict: "placeable", reason: "Placed", message: "", placements, ...fields } as JobPlan
}

test("a plan has the price with disk and address, the expected time, and the limit of the cost", () => {
  expect(planText(planOf(), { image: "train:3", maxCostUsd: 20 }, terminal)).toBe(`\
  #  CLOUD  MACHINE        REGION        vCPU  MEM  GPU    USD/H  TOTAL*
  1  gcp    g2-standard-4  europe-west4     4   16  1×L4  0.7548    0.76  ← takes this
  2  gcp    g2-standard-4  europe-west1     4   16  1×L4  0.7907   0.796
  * 1h expected, with disk and address. --spot shows spot machines.
  At most $20.00 (1d2h here).`)
})

test("a plan of a spot job with a timeout has the cost until the timeout", () => {
  const placements = [placementOf("europe-west4", 0.2, { provisioning: "spot" })]
  const job = { image: "a", provisioning: "spot", timeoutSeconds: 7200 } as const
  expect(planText(planOf({ placements }), job, terminal).split("\n").slice(2)).toEqual([
    "  * 1h expected, with disk and address.",
    "  A run until the timeout costs $0.40, and its boot a little more.",
  ])
})

test("a plan ends with the warnings of the server", () => {
  const plan = planOf({ warnings: ["it may cost \u001b[2Jup to $5"] })
  expect(planText(plan, { image: "a" }, terminal).split("\n").at(-1)).toMatch(/Warning.*: it may cost .*up to \$5$/)
  expect(planText(plan, { image: "a" }, terminal)).not.toContain("\u001b[2J")
})

test.each([
  ["placeable", 0],
  ["noOffer", 3],
  ["waits", 4],
] as const)("a plan that is %s ends with %d", (verdict, code) => {
  expect(exitOfPlan(planOf({ verdict }))).toBe(code)
})

test("a plan without machines says why, and no price", () => {
  const plan = planOf({ verdict: "noOffer", reason: "NoOffer", message: "no offer has 9000 CPUs", placements: [] })
  expect(planText(plan, { image: "a" }, terminal)).toBe("  Nothing fits (NoOffer): no offer has 9000 CPUs")
  const failing = planOf({ ...plan, reason: "DependencyFailed", message: "prepare has failed" })
  expect(planText(failing, { image: "a" }, terminal)).toBe("  Would fail (DependencyFailed): prepare has failed")
})

/** Returns the lines about reuse of a plan for an array, whose jobs run for so many seconds. */
function reuseOfArray(seconds: number, fields: Partial<JobPlan> = {}, job: Partial<JobSubmission> = {}): string[] {
  const [price, total] = [0.6, (0.6 * seconds) / 3600]
  const cost_breakdown = { total_usd_per_hour: price, total_usd: total, traffic_usd: 0 } as Placement["cost_breakdown"]
  const placements = [placementOf("europe-west4", price, { cost_breakdown })]
  const of = planOf({ placements, estimated_cost: total, reuse: null, can_reuse: true, ...fields })
  const array = { size: 500, parallelism: 20, estimated_cost: 500 * total, hourly_usd: 12, max_cost_usd: null }
  const text = planText({ ...array, job: of } as ArrayPlan, { image: "a", ...job }, terminal, true)
  return text.split("\n").filter((line) => /--reuse|Its machines/.test(line))
}

test("a plan for an array of short jobs proposes reuse, with what it saves", () => {
  // 480 boots and ends of two minutes at $0.60 an hour.
  expect(reuseOfArray(120)).toEqual([
    "  Each job boots a machine of its own: 500 boots. With --reuse 5m it is about 20, which saves about $9.60.",
  ])
})

test.each<[string, Parameters<typeof reuseOfArray>]>([
  ["whose jobs are long", [600]],
  ["that says it itself", [120, {}, { reuse: { idleSeconds: 0 } }]],
  ["whose machines can't wait", [120, { can_reuse: false }]],
  ["of an earlier server", [120, { can_reuse: undefined, reuse: undefined } as never]],
])("a plan for an array %s proposes no reuse", (_, args) => {
  expect(reuseOfArray(...args)).toEqual([])
})

test("a plan names the installation's default of reuse, what its wait costs, and how to turn it off", () => {
  const plan = planOf({ reuse: { idle_seconds: 600, key: null }, can_reuse: true })
  const last = (job: JobSubmission) => planText(plan, job, terminal).split("\n").at(-1)
  expect(last({ image: "a" })).toBe(
    "  Then the machine waits 10m for another job, for $0.126, as this installation sets it. --reuse 0s turns that off.",
  )
  expect(last({ image: "a", reuse: { idleSeconds: 600 } })).toBe(
    "  Then the machine waits 10m for another job, for $0.126.",
  )
  const short = { reuse: { idle_seconds: 600, key: null } }
  expect(reuseOfArray(120, short)).toEqual([
    "  Its machines run one job after another, as this installation sets it. --reuse 0s turns that off.",
  ])
  expect(reuseOfArray(120, short, { reuse: { idleSeconds: 600 } })).toEqual([])
})
