import { describe, expect, it } from "vitest"
import { CANCEL_JOBS_FINALIZER, CRON_JOB_ANNOTATIONS } from "../../../src/apis/cronjob.ts"
import { JOB, type StoredJob } from "../../../src/apis/job.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../../src/apis/meta.ts"
import { JOBS } from "../../../src/controllers/cronjob/options.ts"
import { type ApiObject, resourceOf } from "../../../src/kube/resource.ts"
import { eventually } from "../../cloud/eventually.ts"
import { type CronStage, cronStages } from "./stage.ts"

const newStage = cronStages()

const QUOTAS = resourceOf<ApiObject & { spec: { hard: Record<string, string> } }>({
  group: "",
  version: "v1",
  kind: "ResourceQuota",
  plural: "resourcequotas",
  namespaced: true,
})

/** Once the reason is among what was told of it. */
function tells(stage: CronStage, name: string, reason: string): Promise<string> {
  return eventually(async () => {
    const told = (await stage.told(name)).find((event) => event.reason === reason)
    if (told === undefined) throw new Error(`no ${reason} of ${name}`)
    return told.message
  })
}

describe("a CronJob", () => {
  it("makes one Job at each tick, of its definition and its name, and says so", async () => {
    const stage = await newStage()
    stage.operator()
    const jobDefinition = {
      image: "busybox",
      env: { A: "b" },
      cloud: ["local"],
      timeoutSeconds: 60,
      labels: { team: "a" },
    }
    const { metadata } = await stage.create("nightly", { jobDefinition })
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
    expect(job?.spec).toMatchObject(jobDefinition)

    stage.clock.goTo("2026-05-01T12:02:00.500Z")
    await stage.waitsFor("nightly", "2026-05-01T12:03:00Z")
    expect(await stage.jobNames()).toEqual(["nightly-20260501t120100z", "nightly-20260501t120200z"])
    await eventually(async () => {
      const created = (await stage.told("nightly")).filter(({ reason }) => reason === "JobCreated")
      expect(created.map(({ message }) => message)).toEqual(
        (await stage.jobNames()).map((name) => `created Job ${name}`),
      )
    })
  })

  it("of the longest names that the contract allows has Jobs, whatever stands at the name's end", async () => {
    const stage = await newStage()
    stage.operator()
    const names = ["a".repeat(100), `${"b".repeat(99)}-x.x0`]
    for (const name of names) await stage.create(name)
    for (const name of names) await stage.waitsFor(name, "2026-05-01T12:01:00Z")
    stage.clock.goTo("2026-05-01T12:01:00Z")
    for (const name of names) await stage.waitsFor(name, "2026-05-01T12:02:00Z")
    const time = "20260501t120100z"
    expect(await stage.jobNames()).toEqual([`${"a".repeat(100)}-${time}`, `${"b".repeat(99)}--${time}`])
  })

  it("pauses, resumes without what it missed, and follows another schedule from its change on", async () => {
    const stage = await newStage()
    const operator = stage.operator()
    await stage.create("changing")
    await stage.waitsFor("changing", "2026-05-01T12:01:00Z")
    await stage.change("changing", { active: false })
    await stage.waitsFor("changing", undefined)
    stage.clock.goTo("2026-05-01T12:10:20Z")
    await stage.change("changing", { active: true })
    await stage.waitsFor("changing", "2026-05-01T12:11:00Z")
    expect(await stage.jobs()).toEqual([])

    // While nobody looks: the old schedule's ticks are not made up for, one of the new one's is.
    await operator.stop()
    stage.clock.goTo("2026-05-01T12:20:20Z")
    await stage.change("changing", { schedule: "*/5 * * * *" })
    stage.clock.goTo("2026-05-01T12:26:00Z")
    stage.operator()
    await stage.waitsFor("changing", "2026-05-01T12:30:00Z")
    expect(await stage.jobNames()).toEqual(["changing-20260501t122500z"])
  })

  it("makes up for the latest tick of a downtime alone, and counts the others", async () => {
    const stage = await newStage()
    const operator = stage.operator()
    await stage.create("down")
    await stage.create("strict", { startingDeadlineSeconds: 20 })
    await stage.waitsFor("down", "2026-05-01T12:01:00Z")
    await stage.waitsFor("strict", "2026-05-01T12:01:00Z")
    await operator.stop()
    stage.clock.goTo("2026-05-01T18:30:30Z")
    stage.operator()
    await stage.waitsFor("down", "2026-05-01T18:31:00Z")
    await stage.waitsFor("strict", "2026-05-01T18:31:00Z")
    expect(await stage.jobNames()).toEqual(["down-20260501t183000z"])
    expect(await tells(stage, "down", "TicksSkipped")).toContain("skipped 389 ticks after 2026-05-01T12:00:30Z")
    expect(await tells(stage, "strict", "DeadlineExceeded")).toContain("skipped 390 ticks")
  })

  it("Forbid: the tick waits for the end of what runs; Replace: what runs is cancelled", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.create("forbid", { concurrencyPolicy: "Forbid" })
    await stage.create("replace", { concurrencyPolicy: "Replace" })
    for (const time of ["12:01:00", "12:02:00"]) {
      for (const name of ["forbid", "replace"]) await stage.waitsFor(name, `2026-05-01T${time}Z`)
      stage.clock.goTo(`2026-05-01T${time}Z`)
    }
    for (const name of ["forbid", "replace"]) await stage.waitsFor(name, "2026-05-01T12:03:00Z")
    const [first, ...others] = await stage.jobs()
    expect(others.map(({ metadata }) => metadata.name)).toEqual([
      "replace-20260501t120100z",
      "replace-20260501t120200z",
    ])
    expect(first?.metadata.name).toBe("forbid-20260501t120100z")
    expect(others.map(({ spec }) => spec.cancelled)).toEqual([true, false])
    expect(await tells(stage, "forbid", "JobActive")).toContain("forbid-20260501t120100z")
    expect(await tells(stage, "replace", "JobReplaced")).toContain("replace-20260501t120100z")

    await stage.report("forbid-20260501t120100z", "succeeded")
    await eventually(async () => expect(await stage.jobNames()).toContain("forbid-20260501t120200z"))
  })

  it("keeps as many ended Jobs as its limits say, and tells the next one how long they took", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.create("kept", { successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 1 })
    for (const [minute, phase] of [
      [1, "succeeded"],
      [2, "failed"],
      [3, "succeeded"],
      [4, "cancelled"],
    ] as const) {
      await stage.waitsFor("kept", `2026-05-01T12:0${minute}:00Z`)
      stage.clock.goTo(`2026-05-01T12:0${minute}:00Z`)
      await stage.waitsFor("kept", `2026-05-01T12:0${minute + 1}:00Z`)
      const times = { startTime: "2026-05-01T12:00:00Z", completionTime: "2026-05-01T12:01:40Z" }
      await stage.report(`kept-20260501t120${minute}00z`, phase, times)
    }
    await eventually(async () => {
      expect(await stage.jobNames()).toEqual(["kept-20260501t120300z", "kept-20260501t120400z"])
    })
    stage.clock.goTo("2026-05-01T12:05:00Z")
    await stage.waitsFor("kept", "2026-05-01T12:06:00Z")
    const fifth = (await stage.jobs()).at(-1)
    expect(fifth?.metadata.annotations?.[CRON_JOB_ANNOTATIONS.expectedSeconds]).toBe("100")
  })
})

describe("what can't be made", () => {
  it("of a schedule that stops being valid: a condition, no Job; mended, it counts from then", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.create("broken")
    await stage.waitsFor("broken", "2026-05-01T12:01:00Z")
    await stage.change("broken", { schedule: "61 * * * *" })
    const stalled = await stage.waitsFor("broken", undefined)
    expect(stalled.status?.conditions).toMatchObject([
      { type: "Ready", status: "False", reason: "InvalidSchedule", message: expect.stringContaining("61") },
      { type: "Stalled", status: "True", reason: "InvalidSchedule" },
    ])
    stage.clock.goTo("2026-05-01T13:00:30Z")
    await stage.change("broken", { schedule: "* * * * *" })
    await stage.waitsFor("broken", "2026-05-01T13:01:00Z")
    expect(await stage.jobs()).toEqual([])
    expect(await tells(stage, "broken", "InvalidSchedule")).toContain("minute")
  })

  it("for a quota: a condition, and the Job as soon as there is room", async () => {
    const stage = await newStage()
    await stage.client.create(QUOTAS, {
      metadata: { name: "none", namespace: stage.namespace },
      spec: { hard: { "count/jobs.berth.dev": "0" } },
    })
    stage.operator()
    await stage.create("limited")
    await stage.waitsFor("limited", "2026-05-01T12:01:00Z")
    // The quota counts once its controller has seen it.
    await eventually(async () =>
      expect(stage.client.create(JOBS, foreign(stage, "probe"), { dryRun: true })).rejects.toThrow(),
    )
    stage.clock.goTo("2026-05-01T12:01:00Z")
    const refused = await stage.waitsFor("limited", "2026-05-01T12:02:00Z")
    expect(refused.status?.conditions).toMatchObject([
      { type: "Ready", status: "False", reason: "JobRefused", message: expect.stringContaining("quota: none") },
      { type: "Stalled", status: "True" },
    ])
    await stage.client.delete(QUOTAS, { namespace: stage.namespace, name: "none" })
    await eventually(() => stage.client.create(JOBS, foreign(stage, "probe"), { dryRun: true }))
    stage.clock.advance(61)
    await eventually(async () => {
      const { status } = await stage.cronJob("limited")
      expect(status?.conditions).toMatchObject([
        { type: "Ready", status: "True" },
        { type: "Stalled", status: "False" },
      ])
    })
    // The refused tick has its Job as well if it was tried again before the next one came.
    const names = (await stage.jobNames()).filter((name) => name !== "limited-20260501t120100z")
    expect(names).toEqual(["limited-20260501t120200z"])
  })

  it("under a name that another's Job has: the next name, and it says so", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.client.create(JOBS, foreign(stage, "squatted-20260501t120100z"))
    const { metadata } = await stage.create("squatted")
    await stage.waitsFor("squatted", "2026-05-01T12:01:00Z")
    stage.clock.goTo("2026-05-01T12:01:00Z")
    await stage.waitsFor("squatted", "2026-05-01T12:02:00Z")
    const jobs = await stage.jobs()
    expect(jobs.map((job) => [job.metadata.name, job.metadata.labels?.[LABELS.cronJobUid]])).toEqual([
      ["squatted-20260501t120100z", undefined],
      ["squatted-20260501t120100z-2", metadata.uid],
    ])
    expect(await tells(stage, "squatted", "NameTaken")).toContain("squatted-20260501t120100z-2")
  })
})

describe("a deletion", () => {
  it("leaves the Jobs, and one of the same name makes its own", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.create("again")
    await stage.waitsFor("again", "2026-05-01T12:01:00Z")
    stage.clock.goTo("2026-05-01T12:01:00Z")
    await stage.waitsFor("again", "2026-05-01T12:02:00Z")
    await stage.delete("again")
    expect(await stage.isGone("again")).toBe(true)
    stage.clock.goTo("2026-05-01T12:02:30Z")
    await stage.create("again")
    await stage.waitsFor("again", "2026-05-01T12:03:00Z")
    const [job, ...others] = await stage.jobs()
    expect(others).toEqual([])
    expect(job?.spec.cancelled).toBe(false)
  })

  it("cancels what runs where the finalizer asks for it, and the ended ones stay as they are", async () => {
    const stage = await newStage()
    const operator = stage.operator()
    await stage.create("cascade", {}, [CANCEL_JOBS_FINALIZER])
    for (const minute of [1, 2]) {
      await stage.waitsFor("cascade", `2026-05-01T12:0${minute}:00Z`)
      stage.clock.goTo(`2026-05-01T12:0${minute}:00Z`)
    }
    await stage.waitsFor("cascade", "2026-05-01T12:03:00Z")
    await stage.report("cascade-20260501t120100z", "succeeded")
    await operator.stop()
    await stage.delete("cascade")
    expect(await stage.isGone("cascade")).toBe(false)
    stage.operator()
    await eventually(async () => expect(await stage.isGone("cascade")).toBe(true))
    expect((await stage.jobs()).map(({ spec }) => spec.cancelled)).toEqual([false, true])
  })
})

/** A Job that no CronJob has made. */
function foreign(stage: CronStage, name: string): StoredJob {
  const metadata = { name, namespace: stage.namespace }
  return { apiVersion: API_VERSION, kind: JOB.kind, metadata, spec: { image: "busybox" } } as StoredJob
}
