import { expect, test } from "vitest"
import { controllerHarnesses } from "../harness/controllers.ts"
import { runGraphs } from "./after-kills.ts"

const newHarness = controllerHarnesses()

test(
  "1,000 random graphs start in their order and end once, although the operator dies 30 times",
  async () => {
    const run = { graphs: 1000, kills: 30, seed: 2, seconds: 3600 }
    const { breaches, nodes, failed, cancelled } = await runGraphs(await newHarness(), run)
    console.log(`${nodes} jobs and arrays, ${failed} failed, ${cancelled} cancelled, ${breaches.length} breaches`)
    expect(breaches).toEqual([])
  },
  2 * 3_600_000,
)
