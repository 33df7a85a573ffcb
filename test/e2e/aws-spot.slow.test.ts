import { afterAll, afterEach, beforeAll, expect } from "vitest"
import { VOLUMES_WAIT_MS } from "../agent/mounts.ts"
import { missingForVolumes } from "../agent/volume-vms.ts"
import { missingTool, needing } from "../needing.ts"
import { expectSameResult, type SpotCloud, startSpotCloud } from "./aws-spot-training.ts"

const { describe, it } = needing((await missingForVolumes()) ?? missingTool("moto"))

let cloud: SpotCloud

beforeAll(async () => {
  cloud = await startSpotCloud("spot")
}, VOLUMES_WAIT_MS)
afterEach(() => expect(cloud.faults()).toEqual([]))
afterAll(() => cloud?.close())

describe("a job on spot VMs", { timeout: 200_000 }, () => {
  it("ends with the result of an undisturbed run, preempted with a notice and without", async () => {
    await expectSameResult(cloud, { preemptions: ["notice", "at once"], steps: 40, seed: 20_261_124 })
  })
})
