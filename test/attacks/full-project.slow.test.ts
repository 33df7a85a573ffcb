import { describe, expect, it } from "vitest"
import { JOBS } from "../../src/core/resources.ts"
import { controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"

const newHarness = controllerHarnesses()

describe("jobs applied with kubectl beyond the limits of a project", () => {
  it("wait with ProjectLimit, the newest first, and start when older jobs have ended", async () => {
    const harness = await newHarness()
    await harness.submit("first")
    await harness.submit("second")
    // Kubernetes' times have whole seconds, and equal times are ordered by uid.
    await new Promise((resolve) => setTimeout(resolve, 1100))
    await harness.submit("third")
    harness.operator({ limits: { unfinishedJobs: 2 }, settings: { limitRetrySeconds: 1 } })
    await eventually(async () => expect((await harness.job("third")).status?.reason).toBe("ProjectLimit"))
    expect((await harness.job("third")).status).toMatchObject({
      phase: "queued",
      message: "the project has 3 unfinished jobs; the limit is 2. Wait until jobs end, or cancel some",
    })
    await eventually(async () => {
      const phases = await Promise.all(["first", "second"].map(async (name) => (await harness.job(name)).status?.phase))
      expect(phases).toEqual(["booting", "booting"])
    })
    await harness.cancel("first")
    await eventually(async () => expect((await harness.job("third")).status?.phase).toBe("booting"))
  })

  it("delete the oldest ended jobs of a full project, and no other job", async () => {
    const harness = await newHarness()
    const fill = { env: { FILL: "x".repeat(10_000) }, args: ["x".repeat(10_000)] }
    const names = Array.from({ length: 60 }, (_, i) => `ended-${String(i).padStart(2, "0")}`)
    for (const name of names) await harness.submit(name, { ...fill, cancelled: true })
    await harness.submit("live", fill)
    harness.operator({ limits: { projectMib: 1 }, settings: { limitRetrySeconds: 1 } })
    await eventually(async () => {
      const { items } = await harness.client.list(JOBS, { namespace: harness.namespace })
      const left = items.map(({ metadata }) => metadata.name)
      expect(left).toContain("live")
      expect(left.length).toBeGreaterThan(30)
      expect(left.length).toBeLessThan(50)
    })
    await eventually(async () => expect((await harness.job("live")).status?.phase).toBe("booting"))
  })
})
