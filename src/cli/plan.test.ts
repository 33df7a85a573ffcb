import { PassThrough } from "node:stream"
import { expect, test } from "vitest"
import type { JobPlan } from "../client/client.ts"
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
