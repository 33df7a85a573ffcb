import { describe, expect, it } from "vitest"
import { CANCEL_JOBS_FINALIZER, CRON_JOB_ANNOTATIONS } from "../../../src/core/apis/cronjob.ts"
import { JOB, type StoredJob } from "../../../src/core/apis/job.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../../src/core/apis/meta.ts"
import { type ApiObject, declareResource } from "../../../src/core/kube/resource.ts"
import { JOBS } from "../../../src/core/resources.ts"
import { buildJob } from "../../../src/operator/cronjob/jobs.ts"
import { eventually } from "../../harness/eventually.ts"
import { type CronHarness, cronHarnesses } from "./harness.ts"

const newHarness = cronHarnesses()

const QUOTAS = declareResource<ApiObject & { spec: { hard: Record<string, string> } }>({
  group: "",
  version: "v1",
  kind: "ResourceQuota",
  plural: "resourcequotas",
  namespaced: true,
})

/** Returns the message of the CronJob's event with this reason, after waiting for it. */
function eventMessage(harness: CronHarness, name: string, reason: string): Promise<string> {
  return eventually(async () => {
    const found = (await harness.eventsOf(name)).find((event) => event.reason === reason)
    if (found === undefined) throw new Error(`no ${reason} of ${name}`)
    return found.message
  })
}

describe("a CronJob", () => {
  it("creates one Job at each tick, with its definition and name, and emits an event", async () => {
    const harness = await newHarness()
    harness.operator()
    const jobDefinition = {
      image: "busybox",
      env: { A: "b" },
      cloud: ["local"],
      timeoutSeconds: 60,
      labels: { team: "a" },
    }
    const { metadata } = await harness.create("nightly", { jobDefinition })
    await harness.waitsFor("nightly", "2026-05-01T12:01:00Z")
    expect(await harness.jobs()).toEqual([])

    harness.clock.goTo("2026-05-01T12:01:00Z")
    const cronJob = await harness.waitsFor("nightly", "2026-05-01T12:02:00Z")
    expect(cronJob.status).toMatchObject({
      lastTriggeredTime: "2026-05-01T12:01:00Z",
      countsFrom: "2026-05-01T12:01:00Z",
      conditions: [{ type: "Ready", status: "True", reason: "Scheduled", observedGeneration: 1 }],
    })
    const [job, ...others] = await harness.jobs()
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

    harness.clock.goTo("2026-05-01T12:02:00.500Z")
    await harness.waitsFor("nightly", "2026-05-01T12:03:00Z")
    expect(await harness.jobNames()).toEqual(["nightly-20260501t120100z", "nightly-20260501t120200z"])
    await eventually(async () => {
      const created = (await harness.eventsOf("nightly")).filter(({ reason }) => reason === "JobCreated")
      expect(created.map(({ message }) => message)).toEqual(
        (await harness.jobNames()).map((name) => `created Job ${name}`),
      )
    })
  })

  it("creates Jobs for the longest names of the contract, whatever characters end the name", async () => {
    const harness = await newHarness()
    harness.operator()
    const names = ["a".repeat(100), `${"b".repeat(99)}-x.x0`]
    for (const name of names) await harness.create(name)
    for (const name of names) await harness.waitsFor(name, "2026-05-01T12:01:00Z")
    harness.clock.goTo("2026-05-01T12:01:00Z")
    for (const name of names) await harness.waitsFor(name, "2026-05-01T12:02:00Z")
    const time = "20260501t120100z"
    expect(await harness.jobNames()).toEqual([`${"a".repeat(100)}-${time}`, `${"b".repeat(99)}--${time}`])
  })

  it("pauses, resumes without the missed ticks, and follows a new schedule from its change", async () => {
    const harness = await newHarness()
    const operator = harness.operator()
    await harness.create("changing")
    await harness.waitsFor("changing", "2026-05-01T12:01:00Z")
    await harness.change("changing", { active: false })
    await harness.waitsFor("changing", undefined)
    harness.clock.goTo("2026-05-01T12:10:20Z")
    await harness.change("changing", { active: true })
    await harness.waitsFor("changing", "2026-05-01T12:11:00Z")
    expect(await harness.jobs()).toEqual([])

    // While no controller runs: it makes up no tick of the old schedule, and one of the new.
    await operator.stop()
    harness.clock.goTo("2026-05-01T12:20:20Z")
    await harness.change("changing", { schedule: "*/5 * * * *" })
    harness.clock.goTo("2026-05-01T12:26:00Z")
    harness.operator()
    await harness.waitsFor("changing", "2026-05-01T12:30:00Z")
    expect(await harness.jobNames()).toEqual(["changing-20260501t122500z"])
  })

  it("makes up only the latest tick of a downtime, and counts the others", async () => {
    const harness = await newHarness()
    const operator = harness.operator()
    await harness.create("down")
    await harness.create("strict", { startingDeadlineSeconds: 20 })
    await harness.waitsFor("down", "2026-05-01T12:01:00Z")
    await harness.waitsFor("strict", "2026-05-01T12:01:00Z")
    await operator.stop()
    harness.clock.goTo("2026-05-01T18:30:30Z")
    harness.operator()
    await harness.waitsFor("down", "2026-05-01T18:31:00Z")
    await harness.waitsFor("strict", "2026-05-01T18:31:00Z")
    expect(await harness.jobNames()).toEqual(["down-20260501t183000z"])
    expect(await eventMessage(harness, "down", "TicksSkipped")).toContain(
      "skipped 389 ticks after 2026-05-01T12:00:30Z",
    )
    expect(await eventMessage(harness, "strict", "DeadlineExceeded")).toContain("skipped 390 ticks")
  })

  it("waits for the running Job with policy Forbid, and cancels the running Job with policy Replace", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("forbid", { concurrencyPolicy: "Forbid" })
    await harness.create("replace", { concurrencyPolicy: "Replace" })
    for (const time of ["12:01:00", "12:02:00"]) {
      for (const name of ["forbid", "replace"]) await harness.waitsFor(name, `2026-05-01T${time}Z`)
      harness.clock.goTo(`2026-05-01T${time}Z`)
    }
    for (const name of ["forbid", "replace"]) await harness.waitsFor(name, "2026-05-01T12:03:00Z")
    const [first, ...others] = await harness.jobs()
    expect(others.map(({ metadata }) => metadata.name)).toEqual([
      "replace-20260501t120100z",
      "replace-20260501t120200z",
    ])
    expect(first?.metadata.name).toBe("forbid-20260501t120100z")
    expect(others.map(({ spec }) => spec.cancelled)).toEqual([true, false])
    expect(await eventMessage(harness, "forbid", "JobActive")).toContain("forbid-20260501t120100z")
    expect(await eventMessage(harness, "replace", "JobReplaced")).toContain("replace-20260501t120100z")

    await harness.report("forbid-20260501t120100z", "succeeded")
    await eventually(async () => expect(await harness.jobNames()).toContain("forbid-20260501t120200z"))
  })

  it("keeps as many ended Jobs as its limits allow, and passes their durations to the next one", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("kept", { successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 1 })
    for (const [minute, phase] of [
      [1, "succeeded"],
      [2, "failed"],
      [3, "succeeded"],
      [4, "cancelled"],
    ] as const) {
      await harness.waitsFor("kept", `2026-05-01T12:0${minute}:00Z`)
      harness.clock.goTo(`2026-05-01T12:0${minute}:00Z`)
      await harness.waitsFor("kept", `2026-05-01T12:0${minute + 1}:00Z`)
      const times = { startTime: "2026-05-01T12:00:00Z", completionTime: "2026-05-01T12:01:40Z" }
      await harness.report(`kept-20260501t120${minute}00z`, phase, times)
    }
    await eventually(async () => {
      expect(await harness.jobNames()).toEqual(["kept-20260501t120300z", "kept-20260501t120400z"])
    })
    harness.clock.goTo("2026-05-01T12:05:00Z")
    await harness.waitsFor("kept", "2026-05-01T12:06:00Z")
    const fifth = (await harness.jobs()).at(-1)
    expect(fifth?.metadata.annotations?.[CRON_JOB_ANNOTATIONS.expectedSeconds]).toBe("100")
  })
})

describe("a CronJob whose Job can't be created", () => {
  it("sets a condition for a schedule that became invalid; a corrected schedule counts from then", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("broken")
    await harness.waitsFor("broken", "2026-05-01T12:01:00Z")
    await harness.change("broken", { schedule: "0 17-9 * * *" })
    const stalled = await harness.waitsFor("broken", undefined)
    expect(stalled.status?.conditions).toMatchObject([
      { type: "Ready", status: "False", reason: "InvalidSchedule", message: expect.stringContaining("17-9") },
      { type: "Stalled", status: "True", reason: "InvalidSchedule" },
    ])
    harness.clock.goTo("2026-05-01T13:00:30Z")
    await harness.change("broken", { schedule: "* * * * *" })
    await harness.waitsFor("broken", "2026-05-01T13:01:00Z")
    expect(await harness.jobs()).toEqual([])
    expect(await eventMessage(harness, "broken", "InvalidSchedule")).toContain("hour")
  })

  it("sets a condition for a Job that exceeds a quota, and creates the Job as soon as there is room", async () => {
    const harness = await newHarness()
    await harness.client.create(QUOTAS, {
      metadata: { name: "none", namespace: harness.namespace },
      spec: { hard: { "count/jobs.berth.dev": "0" } },
    })
    harness.operator()
    await harness.create("limited")
    await harness.waitsFor("limited", "2026-05-01T12:01:00Z")
    // The quota takes effect after its controller has seen it.
    await eventually(async () =>
      expect(harness.client.create(JOBS, foreign(harness, "probe"), { dryRun: true })).rejects.toThrow(),
    )
    harness.clock.goTo("2026-05-01T12:01:00Z")
    const refused = await harness.waitsFor("limited", "2026-05-01T12:02:00Z")
    expect(refused.status?.conditions).toMatchObject([
      { type: "Ready", status: "False", reason: "JobRefused", message: expect.stringContaining("quota: none") },
      { type: "Stalled", status: "True" },
    ])
    await harness.client.delete(QUOTAS, { namespace: harness.namespace, name: "none" })
    await eventually(() => harness.client.create(JOBS, foreign(harness, "probe"), { dryRun: true }))
    harness.clock.advance(61)
    await eventually(async () => {
      const { status } = await harness.cronJob("limited")
      expect(status?.conditions).toMatchObject([
        { type: "Ready", status: "True" },
        { type: "Stalled", status: "False" },
      ])
    })
    // The rejected tick may get its Job by a retry before the next tick.
    const names = (await harness.jobNames()).filter((name) => name !== "limited-20260501t120100z")
    expect(names).toEqual(["limited-20260501t120200z"])
  })

  it("takes the next name, and emits an event, if another object's Job has the name", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.client.create(JOBS, foreign(harness, "squatted-20260501t120100z"))
    const { metadata } = await harness.create("squatted")
    await harness.waitsFor("squatted", "2026-05-01T12:01:00Z")
    harness.clock.goTo("2026-05-01T12:01:00Z")
    await harness.waitsFor("squatted", "2026-05-01T12:02:00Z")
    const jobs = await harness.jobs()
    expect(jobs.map((job) => [job.metadata.name, job.metadata.labels?.[LABELS.cronJobUid]])).toEqual([
      ["squatted-20260501t120100z", undefined],
      ["squatted-20260501t120100z-2", metadata.uid],
    ])
    expect(await eventMessage(harness, "squatted", "NameTaken")).toContain("squatted-20260501t120100z-2")
  })
})

describe("settled Jobs, which the cache does not have", () => {
  it("prove that their tick had its Job, although the status does not have it", async () => {
    const harness = await newHarness()
    const cronJob = await harness.create("settled")
    // The leader died between the Job and the status, and the Job ended meanwhile.
    const facts = { tick: new Date("2026-05-01T12:01:00Z"), createdAt: "2026-05-01T12:01:00.000Z" }
    const { metadata } = await harness.client.create(JOBS, buildJob(cronJob, facts) as StoredJob)
    await harness.report(metadata.name, "succeeded")
    harness.clock.goTo("2026-05-01T12:01:10Z")
    harness.operator()
    await harness.waitsFor("settled", "2026-05-01T12:02:00Z")
    expect((await harness.cronJob("settled")).status?.lastTriggeredTime).toBe("2026-05-01T12:01:00Z")
    expect(await harness.jobNames()).toEqual([metadata.name])
  })
})

describe("the deletion of a CronJob", () => {
  it("keeps the Jobs of a deleted CronJob, and a new CronJob of the same name creates its own", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("again")
    await harness.waitsFor("again", "2026-05-01T12:01:00Z")
    harness.clock.goTo("2026-05-01T12:01:00Z")
    await harness.waitsFor("again", "2026-05-01T12:02:00Z")
    await harness.delete("again")
    expect(await harness.isGone("again")).toBe(true)
    harness.clock.goTo("2026-05-01T12:02:30Z")
    await harness.create("again")
    await harness.waitsFor("again", "2026-05-01T12:03:00Z")
    const [job, ...others] = await harness.jobs()
    expect(others).toEqual([])
    expect(job?.spec.cancelled).toBe(false)
  })

  it("cancels running Jobs of a deleted CronJob if the finalizer requires it, and leaves the ended ones unchanged", async () => {
    const harness = await newHarness()
    const operator = harness.operator()
    await harness.create("cascade", {}, [CANCEL_JOBS_FINALIZER])
    for (const minute of [1, 2]) {
      await harness.waitsFor("cascade", `2026-05-01T12:0${minute}:00Z`)
      harness.clock.goTo(`2026-05-01T12:0${minute}:00Z`)
    }
    await harness.waitsFor("cascade", "2026-05-01T12:03:00Z")
    await harness.report("cascade-20260501t120100z", "succeeded")
    await operator.stop()
    await harness.delete("cascade")
    expect(await harness.isGone("cascade")).toBe(false)
    harness.operator()
    await eventually(async () => expect(await harness.isGone("cascade")).toBe(true))
    expect((await harness.jobs()).map(({ spec }) => spec.cancelled)).toEqual([false, true])
  })
})

/** Creates a Job that belongs to no CronJob. */
function foreign(harness: CronHarness, name: string): StoredJob {
  const metadata = { name, namespace: harness.namespace }
  return { apiVersion: API_VERSION, kind: JOB.kind, metadata, spec: { image: "busybox" } } as StoredJob
}
