import { expect, it } from "vitest"
import { controllerHarnesses } from "./harness.ts"
import { compareReconciles, runWithKills } from "./webhook-kills.ts"

const newHarness = controllerHarnesses()

it("delivers each of 5,000 ends at least once, though the receiver fails at random and the operator is killed 20 times", async () => {
  const report = await runWithKills(await newHarness(), { ends: 5000, kills: 20 })
  console.error(report)
  expect(report).toMatchObject({ ends: 5000, kills: 20, lost: 0, ambiguous: 0 })
  expect(Object.entries(report.faults).filter(([, count]) => count === 0)).toEqual([])
  expect(report.shortestWriteSeconds).toBeGreaterThanOrEqual(9)
}, 3_600_000)

it("prints how long reconciles of jobs take with webhooks, and without", async () => {
  const comparison = await compareReconciles(newHarness, { ends: 500, rounds: 4 })
  console.error(comparison)
  for (const { reconciles } of Object.values(comparison)) expect(reconciles).toBeGreaterThanOrEqual(500 * 4)
}, 3_600_000)
