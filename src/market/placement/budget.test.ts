import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { jobOf, launchOf } from "../../../test/harness/builders.ts"
import { costOf, sumOfParts } from "../../core/apis/price.ts"
import { BOOT_RESERVE_SECONDS, END_RESERVE_SECONDS, jobBudget, withinBudget } from "./budget.ts"

const DEADLINES = { bootDeadlineSeconds: 900, startDeadlineSeconds: 1800, lifetimeSeconds: 30 * 24 * 3600 }
const prices = { machineUsd: 0.36, diskUsd: 0.036, addressUsd: 0.004 }

describe("the deadlines of a VM within a budget", () => {
  test("leave time to boot and to end", () => {
    expect(withinBudget(DEADLINES, { leftUsd: 0.4 }, prices)).toEqual({
      bootDeadlineSeconds: 900,
      startDeadlineSeconds: 1800,
      lifetimeSeconds: 3240 + 90,
      budgetSeconds: 3240,
    })
    expect(withinBudget(DEADLINES, { leftUsd: 0.08 }, prices)).toMatchObject({ bootDeadlineSeconds: 540 })
  })

  test("are those of a job without a budget, if the budget lasts longer, or the VM is free", () => {
    expect(withinBudget(DEADLINES, { leftUsd: 1000 }, prices)).toEqual(DEADLINES)
    const free = { machineUsd: 0, diskUsd: 0, addressUsd: 0 }
    expect(withinBudget(DEADLINES, { leftUsd: 0 }, free)).toEqual(DEADLINES)
  })
})

test("VMs that live as long as they may cost no more than the job's limit in total", () => {
  // Prices have millionths of a dollar.
  const price = fc.integer({ min: 0, max: 2_000_000 }).map((millionths) => millionths / 1e6)
  const anyPrices = fc.record({ machineUsd: price, diskUsd: price, addressUsd: price })
  const vms = fc.array(
    fc.record({ hourly: anyPrices, minimum: fc.constantFrom(0, 60, 3600), part: fc.constantFrom(0, 0.3, 1) }),
    { maxLength: 6 },
  )
  let launched = 0
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 100 }), vms, (maxCostUsd, all) => {
      const job = jobOf({ spec: { maxCostUsd } })
      const costs: number[] = []
      for (const { hourly, minimum: minimumBilledSeconds, part } of all) {
        const ended = costs.map((costUsd, index) => launchOf(job, index + 1, { status: { costUsd } }))
        const budget = jobBudget(job, ended)
        if (budget === undefined) throw new Error("a job with maxCostUsd has a budget")
        const least = costOf(hourly, { seconds: budget.leastSeconds, minimumBilledSeconds })
        if (sumOfParts(least) > budget.leftUsd) continue
        launched++
        const { lifetimeSeconds } = withinBudget(DEADLINES, budget, hourly)
        // The dead-man timer ends the VM at the latest. Half of the time for the end is left to the cloud.
        const seconds = part * (BOOT_RESERVE_SECONDS + lifetimeSeconds + END_RESERVE_SECONDS / 2)
        costs.push(sumOfParts(costOf(hourly, { seconds, minimumBilledSeconds })))
      }
      // Each part of a VM is rounded to a millionth of a dollar.
      expect(costs.reduce((sum, usd) => sum + usd, 0)).toBeLessThanOrEqual(maxCostUsd + 2e-6 * costs.length)
    }),
    { numRuns: 2000, seed: 20_261_124 },
  )
  expect(launched).toBeGreaterThan(500)
})

test("the budget counts VMs whose records are deleted", () => {
  const spent = { machineUsd: 1, diskUsd: 0.2, addressUsd: 0.1 }
  const job = jobOf({ spec: { maxCostUsd: 2 }, status: { cost: { spent } } })
  expect(jobBudget(job, [])?.leftUsd).toBeCloseTo(0.7, 9)
  expect(jobBudget(job, [launchOf(job, 1, { status: { costUsd: 5 } })])?.leftUsd).toBe(0)
  expect(jobBudget(jobOf(), [])).toBeUndefined()
})
