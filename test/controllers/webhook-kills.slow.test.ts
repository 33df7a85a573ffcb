import { expect, it } from "vitest"
import { controllerHarnesses } from "../harness/controllers.ts"
import { runWithKills } from "./webhook-kills.ts"

const newHarness = controllerHarnesses()

it("the operator delivers each end of a job at least once, though the receiver fails at random and the operator is killed twice", async () => {
  const report = await runWithKills(await newHarness(), { ends: 150, kills: 2 })
  expect(report).toMatchObject({ ends: 150, lost: 0, ambiguous: 0 })
  expect(Object.entries(report.faults).filter(([, count]) => count === 0)).toEqual([])
  // The times have whole seconds.
  expect(report.shortestWriteSeconds).toBeGreaterThanOrEqual(9)
}, 300_000)
