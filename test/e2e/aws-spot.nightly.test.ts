import { afterAll, beforeAll, expect } from "vitest"
import { VOLUMES_WAIT_MS } from "../agent/mounts.ts"
import { missingForVolumes } from "../agent/volume-vms.ts"
import { missingTool, needing } from "../needing.ts"
import { expectSameResult, type SpotCloud, startSpotCloud } from "./aws-spot-training.ts"

const { describe, it } = needing((await missingForVolumes()) ?? missingTool("moto"))

let cloud: SpotCloud

beforeAll(async () => {
  cloud = await startSpotCloud("spot-nightly")
}, VOLUMES_WAIT_MS)
afterAll(() => cloud?.close())

describe("a training with checkpoints", { timeout: 600_000 }, () => {
  it("ends with the result of an undisturbed run after five preemptions at random moments", async () => {
    const seed = Number(process.env["BERTH_SPOT_SEED"] ?? Date.now() % 1_000_000)
    const preemptions = ["notice", "at once", "notice", "at once", "at once"] as const
    await expectSameResult(cloud, { preemptions, steps: 60, seed })
    expect(cloud.faults()).toEqual([])
  })
})
