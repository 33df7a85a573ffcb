import { expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { connect } from "../../src/connect.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { type Ran, runScenario } from "./run.ts"
import { scenarioOf } from "./scenario.ts"

/** Number of scenarios, and the first seed. */
const [COUNT, FIRST] = [Number(process.env["BERTH_SCENARIOS"] ?? 200), Number(process.env["BERTH_SCENARIO"] ?? 1)]

const AT_A_TIME = 4

it(
  `${COUNT} random projects keep every promise, whatever their jobs combine and whichever faults strike`,
  async () => {
    const client = connect({ kubeconfig: kubeconfigPath() })
    await installBase(client, AbortSignal.timeout(100_000))
    const seeds = Array.from({ length: COUNT }, (_, index) => FIRST + index)
    const all: Ran[] = []
    await inParallel(seeds, AT_A_TIME, async (seed) => {
      const ran = await runScenario(scenarioOf(seed), client)
      all.push(ran)
      if (ran.breaches.length > 0) console.error(ran.report)
      if (all.length % 25 === 0) console.info(`${all.length} of ${COUNT} scenarios`)
    })
    const total = (of: (ran: Ran) => number) => all.reduce((sum, ran) => sum + of(ran), 0)
    console.info(
      `${all.length} scenarios: ${total(({ jobs }) => jobs)} jobs, ${total(({ runs }) => runs)} containers, ${total(({ faults }) => faults)} operators with a fault`,
    )
    expect(all.flatMap(({ breaches }) => breaches)).toEqual([])
  },
  10 * 3600_000,
)
