import { expect, test } from "vitest"
import { controllerHarnesses } from "../harness/controllers.ts"
import { runGraphs } from "./after-kills.ts"

const newHarness = controllerHarnesses()

test("20 random graphs start in their order and end once, although the operator dies 3 times", async () => {
  const { breaches, nodes, failed, cancelled } = await runGraphs(await newHarness(), {
    graphs: 20,
    kills: 3,
    seed: 1,
    seconds: 240,
  })
  expect(breaches).toEqual([])
  expect([nodes, failed, cancelled].map((count) => count > 0)).toEqual([true, true, true])
}, 300_000)
