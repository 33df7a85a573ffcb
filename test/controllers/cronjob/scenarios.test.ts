import { describe, expect, it } from "vitest"
import { CRON_JOB_ANNOTATIONS } from "../../../src/apis/cronjob.ts"
import { ANNOTATIONS, LABELS } from "../../../src/apis/meta.ts"
import { eventually } from "../../cloud/eventually.ts"
import { cronStages } from "./stage.ts"

const newStage = cronStages()

describe("a CronJob", () => {
  it("makes one Job at each tick, of its definition and its name, and says so", async () => {
    const stage = await newStage()
    stage.operator()
    const definition = {
      image: "busybox",
      env: { A: "b" },
      cloud: ["local"],
      timeoutSeconds: 60,
      labels: { team: "a" },
    }
    const { metadata } = await stage.create("nightly", { jobDefinition: definition })
    await stage.waitsFor("nightly", "2026-05-01T12:01:00Z")
    expect(await stage.jobs()).toEqual([])

    stage.clock.goTo("2026-05-01T12:01:00Z")
    const cronJob = await stage.waitsFor("nightly", "2026-05-01T12:02:00Z")
    expect(cronJob.status).toMatchObject({
      lastTriggeredTime: "2026-05-01T12:01:00Z",
      countsFrom: "2026-05-01T12:01:00Z",
      conditions: [{ type: "Ready", status: "True", reason: "Scheduled", observedGeneration: 1 }],
    })
    const [job, ...others] = await stage.jobs()
    expect(others).toEqual([])
    expect(job?.metadata).toMatchObject({
      name: "nightly-20260501t120100z",
      labels: { [LABELS.cronJobUid]: metadata.uid },
      annotations: {
        [ANNOTATIONS.createdAt]: expect.stringMatching(/\.\d{6}Z$/),
        [CRON_JOB_ANNOTATIONS.scheduledTime]: "2026-05-01T12:01:00Z",
      },
    })
    expect(job?.metadata).not.toHaveProperty("ownerReferences")
    expect(job?.spec).toMatchObject(definition)

    stage.clock.goTo("2026-05-01T12:02:00.500Z")
    await stage.waitsFor("nightly", "2026-05-01T12:03:00Z")
    expect(await stage.jobNames()).toEqual(["nightly-20260501t120100z", "nightly-20260501t120200z"])
    await eventually(async () => {
      const created = (await stage.told("nightly")).filter(({ reason }) => reason === "JobCreated")
      expect(created).toHaveLength(2)
    })
  })
})
