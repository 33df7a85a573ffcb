import { expect, it } from "vitest"
import { controllerHarnesses } from "../harness/controllers.ts"
import { compareReconciles, runWithKills } from "./webhook-kills.ts"

const newHarness = controllerHarnesses()

it("the operator delivers each of 5,000 ends at least once, though the receiver fails at random and the operator is killed 20 times", async () => {
  // A fast machine has a kill every 6 seconds: with the usual pace of 10, no operator would live until its first write.
  const writeSeconds = 3
  const report = await runWithKills(await newHarness(), { ends: 5000, kills: 20, writeSeconds })
  console.error(report)
  expect(report).toMatchObject({ ends: 5000, kills: 20, lost: 0, ambiguous: 0 })
  expect(Object.entries(report.faults).filter(([, count]) => count === 0)).toEqual([])
  // The times have whole seconds.
  expect(report.shortestWriteSeconds).toBeGreaterThanOrEqual(writeSeconds - 1)
  expect(report.statusWrites).toBeGreaterThanOrEqual(10)
}, 3_600_000)

it("a measurement prints how long reconciles of jobs take with webhooks, and without", async () => {
  const comparison = await compareReconciles(newHarness, { ends: 500, rounds: 4 })
  console.error(comparison)
  for (const { reconciles } of Object.values(comparison)) expect(reconciles).toBeGreaterThanOrEqual(500 * 4)
}, 3_600_000)
