import { afterAll, afterEach, beforeAll, expect } from "vitest"
import { VOLUMES_WAIT_MS } from "../agent/mounts.ts"
import { missingForVolumes } from "../agent/volume-vms.ts"
import { missingTool, needing } from "../needing.ts"
import { expectSameResult, type SpotCloud, startSpotCloud } from "./aws-spot-training.ts"

const { describe, it } = needing((await missingForVolumes()) ?? missingTool("moto"))

let cloud: SpotCloud

beforeAll(async () => {
  cloud = await startSpotCloud("spot-nightly")
}, VOLUMES_WAIT_MS)
afterEach(() => expect(cloud.faults()).toEqual([]))
afterAll(() => cloud?.close())

describe("a job on spot VMs", { timeout: 600_000 }, () => {
  it("ends its training with the result of an undisturbed run after five preemptions at random moments", async () => {
    const seed = Number(process.env["BERTH_SPOT_SEED"] ?? Date.now() % 1_000_000)
    const preemptions = ["notice", "at once", "notice", "at once", "at once"] as const
    await expectSameResult(cloud, { preemptions, steps: 60, seed })
  })

  it("continues on demand after three preemptions in a row, says so, and shows what both cost", async () => {
    const { berth } = cloud
    await berth.submit("fallback", "trap 'exit 9' TERM; while [ $BERTH_PREEMPTIONS -lt 3 ]; do sleep 0.1; done", {
      cloud: ["aws"],
      provisioning: "spotFirst",
    })
    for (const number of [1, 2, 3]) {
      const { spec } = await cloud.started("fallback", number)
      expect(spec.offer.provisioning).toBe("spot")
      await cloud.preempt("fallback", "notice")
    }
    await berth.reached("succeeded", "fallback")
    await berth.allOver()
    expect(berth.launchesOf("fallback").map(({ spec }) => spec.offer.provisioning)).toEqual([
      "spot",
      "spot",
      "spot",
      "onDemand",
    ])
    const why = "3 spot VMs in a row were preempted, so this job gets on-demand VMs (fallbackAfter is 3)"
    const record = await cloud.record("fallback")
    expect(record["placement_reason"]).toContain(why)
    expect(berth.job("fallback").status?.conditions).toContainEqual(
      expect.objectContaining({ type: "OnDemandFallback", status: "True", message: why }),
    )
    const costs = berth.launchesOf("fallback").map(({ status }) => status?.costUsd ?? 0)
    const [first = 0, second = 0, third = 0, onDemand = 0] = costs
    expect(Math.min(...costs)).toBeGreaterThan(0)
    expect(record).toMatchObject({
      preemption_count: 3,
      cost_breakdown: { spot_usd: expect.closeTo(first + second + third), on_demand_usd: expect.closeTo(onDemand) },
    })
  })
})
