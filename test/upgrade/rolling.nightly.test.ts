import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { RollingBerth } from "./rolling-berth.ts"

let berth: RollingBerth
beforeAll(async () => {
  berth = await RollingBerth.start(await containerRuntime())
})
afterAll(() => berth?.close())

describe("a", () => {
  it("b", async () => {
    await berth.rest("POST", "/connections", { name: "acme", type: "aws", access_key_id: "AKIAEXAMPLE", secret_access_key: "very-secret" })
    await berth.submit("hello", "echo hi")
    await berth.until("hello", "succeeded")
    expect(await berth.world.runs("hello")).toHaveLength(1)
    await berth.applyManifests("now")
    await berth.replace("operator", "now", async () => {})
    await berth.replace("operator", "now", async () => {})
    await berth.submit("hello2", "echo hi")
    await berth.until("hello2", "succeeded")
    await berth.replace("facade", "now", async () => {})
    await berth.replace("facade", "now", async () => {})
    await berth.submit("hello3", "echo hi")
    await berth.until("hello3", "succeeded")
    console.log(await berth.situation())
    console.log((await berth.launches()).map((l) => l.spec.agentImage))
    await eventually(() => expect(berth.running).toEqual([]))
  })
})
