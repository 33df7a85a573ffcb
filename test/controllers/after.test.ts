import { describe, expect, it } from "vitest"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { isTerminal, type JobSpec, type StoredJob } from "../../src/core/apis/job.ts"
import { AWAITED_OUTCOMES } from "../../src/core/apis/prerequisites.ts"
import { JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"

const newHarness = controllerHarnesses()

/** Waits until the job has the reason and the message. Returns it. */
async function untilWaits(
  harness: ControllerHarness,
  name: string,
  reason: string,
  message: string | RegExp,
): Promise<StoredJob> {
  return await eventually(async () => {
    const job = await harness.job(name)
    expect(job.status).toMatchObject({ phase: "queued", reason })
    expect(job.status?.message).toMatch(message)
    return job
  })
}

/** Runs the agents until all jobs have ended, without a step of the clock. Jobs named `bad…` fail. Returns their phases. */
async function runAll(harness: ControllerHarness, names: readonly string[]): Promise<Record<string, string>> {
  return await eventually(async () => {
    await harness.agentsStep(({ spec }) => (spec.job.name.startsWith("bad") ? "ContainerFailed" : "Succeeded"))
    const jobs = await Promise.all(names.map((name) => harness.job(name)))
    expect(jobs.filter(({ status }) => !isTerminal(status?.phase)).map(({ metadata }) => metadata.name)).toEqual([])
    return Object.fromEntries(jobs.map(({ metadata, status }) => [metadata.name, status?.phase ?? ""]))
  })
}

async function launchedJobs(harness: ControllerHarness): Promise<string[]> {
  return (await harness.launches()).map(({ spec }) => spec.job.name).sort()
}

describe("a job with a prerequisite", () => {
  it("waits until it exists, then until it has ended, and starts without a step of the clock", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("train", { after: [{ job: "prepare" }] })
    await untilWaits(harness, "train", "JobMissing", /^prepare is not there yet\. Create it, or cancel this one$/)
    const { metadata } = await harness.submit("prepare")
    await untilWaits(harness, "train", "WaitsForJob", /^waits for prepare \((queued|booting)\)$/)
    await eventually(async () => {
      await harness.agentsStep("run")
      expect((await harness.job("prepare")).status?.phase).toBe("running")
    })
    await untilWaits(harness, "train", "WaitsForJob", /^waits for prepare \(running since 20.*Z\)$/)
    expect(await launchedJobs(harness)).toEqual(["prepare"])
    const waiting = await harness.job("train")
    expect(waiting.status?.after).toEqual([{ job: "prepare", uid: metadata.uid }])
    expect(findCondition(waiting.status?.conditions, "Reconciling")?.status).toBe("True")
    expect(await runAll(harness, ["prepare", "train"])).toEqual({ prepare: "succeeded", train: "succeeded" })
    const [prepare, train] = [await harness.job("prepare"), await harness.job("train")]
    expect(train.status?.after).toEqual([{ job: "prepare", uid: metadata.uid, outcome: "succeeded" }])
    expect(Date.parse(train.status?.startTime ?? "")).toBeGreaterThanOrEqual(
      Date.parse(prepare.status?.completionTime ?? ""),
    )
  })

  it("starts after the outcome that it names, and fails after another one", async () => {
    const harness = await newHarness()
    const before = harness.operator()
    const waiting = ["good", "bad", "halted", "cut"].flatMap((job) =>
      AWAITED_OUTCOMES.map((outcome) => ({ name: `after-${job}-${outcome}`, job, outcome })),
    )
    for (const { name, job, outcome } of waiting) await harness.submit(name, { after: [{ job, outcome }] })
    for (const name of ["good", "bad", "halted", "cut"]) await harness.submit(name)
    for (const { name } of waiting) await untilWaits(harness, name, "WaitsForJob", /^waits for /)
    await harness.cancel("halted")
    await harness.delete("cut")
    expect(
      await runAll(
        harness,
        waiting.map(({ name }) => name),
      ),
    ).toEqual({
      "after-good-succeeded": "succeeded",
      "after-good-failed": "failed",
      "after-good-ended": "succeeded",
      "after-bad-succeeded": "failed",
      "after-bad-failed": "succeeded",
      "after-bad-ended": "succeeded",
      "after-halted-succeeded": "failed",
      "after-halted-failed": "failed",
      "after-halted-ended": "succeeded",
      "after-cut-succeeded": "failed",
      "after-cut-failed": "failed",
      "after-cut-ended": "succeeded",
    })
    const said = async (name: string) => {
      const { status } = await harness.job(name)
      return `${status?.reason}: ${status?.message}`
    }
    expect(await said("after-good-failed")).toBe(
      "DependencyFailed: good has succeeded, and this one runs only after it has failed",
    )
    expect(await said("after-bad-succeeded")).toBe(
      "DependencyFailed: bad has failed, and this one runs only after it has succeeded",
    )
    expect(await said("after-halted-succeeded")).toBe(
      "DependencyFailed: halted was cancelled, and this one runs only after it has succeeded",
    )
    expect(await said("after-cut-succeeded")).toBe("DependencyFailed: cut was deleted before it ended")
    await before.stop()
  })

  it("starts also if the prerequisite succeeded and was deleted while no operator ran", async () => {
    const harness = await newHarness()
    const before = harness.operator()
    await harness.submit("prepare")
    await harness.submit("train", { after: [{ job: "prepare" }] })
    await untilWaits(harness, "train", "WaitsForJob", /^waits for prepare/)
    // The end of the job is written, and its operator dies before the next write.
    await eventually(async () => {
      await harness.agentsStep("run")
      expect((await harness.job("prepare")).status?.phase).toBe("running")
    })
    await before.stop()
    const status = { phase: "succeeded", reason: "Succeeded", completionTime: "2026-01-01T00:00:00Z" } as const
    await harness.client.patchStatus(JOBS, { namespace: harness.namespace, name: "prepare" }, { merge: { status } })
    await harness.delete("prepare")
    harness.operator()
    await eventually(async () => expect(await launchedJobs(harness)).toContain("train"))
    expect((await harness.job("train")).status?.after).toMatchObject([{ job: "prepare", outcome: "succeeded" }])
    await eventually(async () => await expect(harness.job("prepare")).rejects.toMatchObject({ code: 404 }))
  })

  it("remembers an outcome: a later job of the name does not count", async () => {
    const harness = await newHarness()
    harness.operator()
    const first = await harness.submit("prepare")
    await runAll(harness, ["prepare"])
    await harness.submit("train", { after: [{ job: "prepare" }, { job: "late" }] })
    await untilWaits(harness, "train", "JobMissing", /^late is not there yet/)
    const remembered = [{ job: "prepare", uid: first.metadata.uid, outcome: "succeeded" }]
    expect((await harness.job("train")).status?.after).toEqual(remembered)
    await eventually(async () => expect((await harness.job("prepare")).status?.settled).toBe(true))
    await harness.delete("prepare")
    await eventually(async () => await expect(harness.job("prepare")).rejects.toMatchObject({ code: 404 }))
    await harness.submit("prepare")
    await harness.cancel("prepare")
    await runAll(harness, ["prepare"])
    await harness.submit("late")
    expect(await runAll(harness, ["late", "train"])).toEqual({ late: "succeeded", train: "succeeded" })
  })

  it("is cancelled while it waits, and gets no VM", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("train", { after: [{ job: "never" }] })
    await untilWaits(harness, "train", "JobMissing", /^never /)
    await harness.cancel("train")
    await eventually(async () => expect((await harness.job("train")).status).toMatchObject({ phase: "cancelled" }))
    expect(await launchedJobs(harness)).toEqual([])
  })
})

describe("jobs that wait for each other", () => {
  it("say so, each with the circle, and end when one of them is cancelled", async () => {
    const harness = await newHarness()
    harness.operator()
    const circle: Record<string, Partial<JobSpec>> = {
      a: { after: [{ job: "b" }] },
      b: { after: [{ job: "c" }] },
      c: { after: [{ job: "a" }] },
      outside: { after: [{ job: "a" }] },
    }
    for (const [name, spec] of Object.entries(circle)) await harness.submit(name, spec)
    await untilWaits(harness, "a", "DependencyCycle", /: a → b → c → a\. Cancel one of them$/)
    await untilWaits(harness, "b", "DependencyCycle", /: b → c → a → b\. /)
    await untilWaits(harness, "c", "DependencyCycle", /: c → a → b → c\. /)
    await untilWaits(harness, "outside", "WaitsForJob", /^waits for a \(queued: DependencyCycle\)$/)
    const { status } = await harness.job("a")
    expect(findCondition(status?.conditions, "Stalled")).toMatchObject({ status: "True", reason: "DependencyCycle" })
    await harness.cancel("b")
    expect(await runAll(harness, ["a", "b", "c", "outside"])).toEqual({
      ...{ a: "failed", b: "cancelled", c: "failed", outside: "failed" },
    })
    expect(await launchedJobs(harness)).toEqual([])
  })

  it("is found through an array too", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("first", { after: [{ array: "sweep" }] })
    await harness.submitArray("sweep", { size: 2, after: [{ job: "first" }] })
    await untilWaits(harness, "first", "DependencyCycle", /: first → array\/sweep → first\./)
    await eventually(async () => {
      const { status } = await harness.array("sweep")
      expect(findCondition(status?.conditions, "Stalled")).toMatchObject({ status: "True", reason: "DependencyCycle" })
      expect(status?.phase).toBe("queued")
    })
  })

  it("can't be a job or an array that names itself", async () => {
    const harness = await newHarness()
    await expect(harness.submit("self", { after: [{ job: "self" }] })).rejects.toThrow(/must not name the job itself/)
    await expect(harness.submitArray("self", { size: 1, after: [{ array: "self" }] })).rejects.toThrow(
      /must not name the array itself/,
    )
  })
})

describe("arrays", () => {
  it("wait for a job, and a job waits for all their indexes", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submitArray("sweep", { size: 3, after: [{ job: "prepare" }] })
    await harness.submit("report", { after: [{ array: "sweep" }] })
    await untilWaits(harness, "report", "WaitsForJob", /^waits for array\/sweep \(queued(: JobMissing)?\)$/)
    await eventually(async () => {
      const { status } = await harness.array("sweep")
      const ready = findCondition(status?.conditions, "Ready")
      expect(ready).toMatchObject({ status: "False", reason: "JobMissing" })
    })
    expect(await launchedJobs(harness)).toEqual([])
    await harness.submit("prepare")
    await runAll(harness, ["prepare"])
    expect(await runAll(harness, ["report"])).toEqual({ report: "succeeded" })
    const { metadata, status } = await harness.array("sweep")
    expect(status).toMatchObject({ phase: "succeeded", after: [{ job: "prepare", outcome: "succeeded" }] })
    const { status: report } = await harness.job("report")
    expect(report?.after).toEqual([{ array: "sweep", uid: metadata.uid, outcome: "succeeded" }])
  })

  it("fail without a job when their prerequisite fails, and so does what waits for them", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("bad")
    await harness.submitArray("sweep", { size: 3, after: [{ job: "bad" }] })
    await harness.submit("report", { after: [{ array: "sweep" }] })
    await harness.submit("clean", { after: [{ array: "sweep", outcome: "ended" }] })
    expect(await runAll(harness, ["report", "clean"])).toEqual({ report: "failed", clean: "succeeded" })
    const { status } = await harness.array("sweep")
    expect(status).toMatchObject({ phase: "failed", counts: { pending: 3, failed: 0 } })
    expect(findCondition(status?.conditions, "Failed")).toMatchObject({
      reason: "DependencyFailed",
      message: "bad has failed, and this one runs only after it has succeeded",
    })
    expect(status?.completionTime).toBeDefined()
    expect(await launchedJobs(harness)).toEqual(["bad", "clean"])
  })

  it("stay after their time until what waits for them has their outcome", async () => {
    const harness = await newHarness()
    const before = harness.operator()
    await harness.submitArray("sweep", { size: 1, ttlSecondsAfterFinished: 0 })
    await harness.submit("report", { after: [{ array: "sweep" }] })
    await untilWaits(harness, "report", "WaitsForJob", /^waits for array\/sweep/)
    expect(await runAll(harness, ["report"])).toEqual({ report: "succeeded" })
    await eventually(async () => await expect(harness.array("sweep")).rejects.toMatchObject({ code: 404 }))
    await before.stop()
  })

  it("are deleted by a user only after what waits for them has their outcome", async () => {
    const harness = await newHarness()
    const before = harness.operator()
    await harness.submitArray("sweep", { size: 1 })
    await harness.submit("report", { after: [{ array: "sweep" }, { job: "late" }] })
    await untilWaits(harness, "report", "JobMissing", /^late /)
    await before.stop()
    const ref = { namespace: harness.namespace, name: "sweep" }
    const status = { phase: "succeeded", completionTime: "2026-01-01T00:00:00Z", activeIndexes: "" } as const
    await harness.client.patchStatus(JOB_ARRAYS, ref, { merge: { status: { ...status, succeededIndexes: "0" } } })
    await harness.client.delete(JOB_ARRAYS, ref)
    harness.operator()
    await eventually(async () => await expect(harness.array("sweep")).rejects.toMatchObject({ code: 404 }))
    expect((await harness.job("report")).status?.after).toMatchObject([{ array: "sweep", outcome: "succeeded" }])
  })
})
