import { describe, expect, test } from "vitest"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { JobArrayStatus } from "../../src/core/apis/jobarray.ts"
import type { FinishReason, StoredLaunch } from "../../src/core/apis/launch.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { roundUsd } from "../../src/core/apis/money.ts"
import { isNotFound } from "../../src/core/kube/errors.ts"
import { JOB_ARRAYS, JOBS, PROJECTS } from "../../src/core/resources.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses, type OperatorOptions } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"

const newHarness = controllerHarnesses()

/** Result of the container of a job on its n-th VM; undefined while it runs. */
type Work = (name: string, vm: number) => FinishReason | undefined

/** Opens a harness with an operator and agents. Their work may change while they run. */
async function start(
  work: Work,
  options: OperatorOptions = {},
): Promise<{ harness: ControllerHarness; work: (next: Work) => void }> {
  const harness = await newHarness()
  harness.operator({ limits: {}, ...options })
  let present = work
  const end = new AbortController()
  const step = async (): Promise<void> => {
    while (!end.signal.aborted) {
      await harness.agentsStep((launch: StoredLaunch) => present(launch.spec.job.name, launch.spec.number))
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
  const stepping = step()
  const { close } = harness
  harness.close = async () => {
    end.abort()
    await stepping
    await close.call(harness)
  }
  return { harness, work: (next) => (present = next) }
}

async function jobsOf(harness: ControllerHarness): Promise<StoredJob[]> {
  const { items } = await harness.client.list(JOBS, { namespace: harness.namespace })
  return items.sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
}

const namesOf = (jobs: readonly StoredJob[]) => jobs.map(({ metadata }) => metadata.name)

/** Resolves with the status of the array when it has these fields. */
function reaches(harness: ControllerHarness, fields: Partial<JobArrayStatus>, name = "sweep"): Promise<JobArrayStatus> {
  return eventually(async () => {
    const { status } = await harness.array(name)
    expect(status).toMatchObject(fields)
    return status as JobArrayStatus
  })
}

/** Returns the number of VMs that each job ever had. */
function vmsByJob(harness: ControllerHarness): number[] {
  const byJob = Map.groupBy(harness.cloud.vms, ({ vm }) => vm.launch.slice(0, vm.launch.lastIndexOf("-")))
  return [...byJob.values()].map((vms) => vms.length)
}

describe("an array", () => {
  test("runs each combination once, and counts the cost of all", async () => {
    const { harness } = await start(() => "Succeeded")
    const array = await harness.submitArray("sweep", {
      matrix: { lr: ["0.1", "0.01"], SEED: ["1", "2", "3"] },
      parallelism: 2,
    })
    const status = await reaches(harness, { phase: "succeeded", succeededIndexes: "0-5", activeIndexes: "" })
    const jobs = await eventually(async () => {
      const found = await jobsOf(harness)
      expect(found.every((job) => job.status?.settled === true)).toBe(true)
      return found
    })
    expect(namesOf(jobs)).toEqual([0, 1, 2, 3, 4, 5].map((index) => `sweep-${index}`))
    expect(jobs[4]?.metadata.labels).toMatchObject({
      ...{ [LABELS.array]: "sweep", [LABELS.arrayUid]: array.metadata.uid, [LABELS.arrayIndex]: "4" },
    })
    expect(jobs[4]?.spec.env).toEqual({ SEED: "3", lr: "0.1", BERTH_ARRAY_INDEX: "4", BERTH_ARRAY_SIZE: "6" })
    expect(vmsByJob(harness)).toEqual([1, 1, 1, 1, 1, 1])
    const costs = jobs.reduce((sum, job) => sum + (job.status?.cost?.actualUsd ?? Number.NaN), 0)
    expect(status.costUsd).toBe(roundUsd(costs))
    expect(status.costUsd).toBeGreaterThan(0)
    expect(findCondition(status.conditions, "Complete")?.status).toBe("True")
  })

  test("counts an index once whose job gets new VMs", async () => {
    const { harness } = await start((name, vm) => (name === "sweep-1" && vm < 3 ? "ContainerFailed" : "Succeeded"))
    await harness.submitArray("sweep", {
      size: 3,
      parallelism: 3,
      maxFailed: 0,
      jobDefinition: { image: "busybox", retryRules: [{ reasons: ["ContainerFailed"], action: "newVm", limit: 2 }] },
    })
    const status = await reaches(harness, { phase: "succeeded", succeededIndexes: "0-2", failedIndexes: "" })
    expect(status.counts).toMatchObject({ succeeded: 3, failed: 0 })
    const jobs = await jobsOf(harness)
    expect(jobs.map((job) => job.status?.launches?.retried ?? 0)).toEqual([0, 2, 0])
    expect(vmsByJob(harness).sort()).toEqual([1, 1, 3])
  })

  test("counts a job that somebody cancels or deletes as cancelled, and runs named indexes again", async () => {
    const { harness, work } = await start(() => undefined)
    await harness.submitArray("sweep", { size: 4, parallelism: 3 })
    await reaches(harness, { phase: "running", activeIndexes: "0-2" })
    await eventually(async () => {
      const jobs = await jobsOf(harness)
      expect(jobs.map((job) => job.status?.phase)).toEqual(["running", "running", "running"])
    })
    await harness.cancel("sweep-0")
    await harness.delete("sweep-1")
    work((name) => (name === "sweep-2" ? "ContainerFailed" : "Succeeded"))
    await reaches(harness, { phase: "failed", cancelledIndexes: "0-1", failedIndexes: "2", succeededIndexes: "3" })
    expect(namesOf(await jobsOf(harness))).toEqual(["sweep-0", "sweep-2", "sweep-3"])

    work(() => "Succeeded")
    await harness.changeArray("sweep", { retry: { number: 1, indexes: "1-3" } })
    await reaches(harness, { phase: "failed", cancelledIndexes: "0", failedIndexes: "", succeededIndexes: "1-3" })
    expect(namesOf(await jobsOf(harness))).toEqual(["sweep-0", "sweep-1-2", "sweep-2", "sweep-2-2", "sweep-3"])
    expect(await harness.eventReasons("sweep")).toContain("Retried")
  })

  test("stops after maxFailed, and continues after a retry", async () => {
    const { harness, work } = await start(() => "ContainerFailed")
    await harness.submitArray("sweep", { size: 8, parallelism: 2, maxFailed: 1 })
    const status = await reaches(harness, { phase: "failed" })
    expect(findCondition(status.conditions, "Failed")?.reason).toBe("MaxFailedExceeded")
    expect(status.counts?.failed).toBeGreaterThan(1)
    expect(status.counts?.pending).toBeGreaterThan(3)
    work(() => "Succeeded")
    await harness.changeArray("sweep", { retry: { number: 1, indexes: status.failedIndexes ?? "" }, parallelism: 8 })
    await reaches(harness, { phase: "succeeded", succeededIndexes: "0-7" })
  })

  test("waits at the project's limit, uses another name for a taken one, and follows its parallelism", async () => {
    const { harness, work } = await start(() => undefined, { limits: { unfinishedJobs: 2 } })
    await harness.submit("sweep-1")
    await harness.submitArray("sweep", { size: 3, parallelism: 1 })
    await reaches(harness, { activeIndexes: "0" })
    await harness.changeArray("sweep", { parallelism: 3 })
    await eventually(async () => {
      const { status } = await harness.array("sweep")
      expect(findCondition(status?.conditions, "Reconciling")).toMatchObject({ status: "True", reason: "ProjectLimit" })
    })
    expect(namesOf(await jobsOf(harness))).toEqual(["sweep-0", "sweep-1"])
    work(() => "Succeeded")
    // The array looks at the limit again after 10 s.
    await eventually(() => {
      harness.clock.advance(5)
      return reaches(harness, { phase: "succeeded", attempts: [{ attempt: 2, indexes: "1" }] })
    })
    expect(namesOf(await jobsOf(harness))).toEqual(["sweep-0", "sweep-1", "sweep-1-2", "sweep-2"])
    expect((await harness.job("sweep-1")).metadata.labels ?? {}).not.toHaveProperty(LABELS.arrayUid)
    expect(await harness.eventReasons("sweep")).toEqual(expect.arrayContaining(["ProjectLimit", "NameTaken"]))
  })

  test("cancels its jobs when it is cancelled, and its rest has no jobs", async () => {
    const { harness } = await start(() => undefined)
    await harness.submitArray("sweep", { size: 1000, parallelism: 3 })
    await reaches(harness, { phase: "running", activeIndexes: "0-2" })
    await harness.changeArray("sweep", { cancelled: true })
    await reaches(harness, { phase: "cancelled", cancelledIndexes: "0-999", activeIndexes: "" })
    expect(namesOf(await jobsOf(harness))).toEqual(["sweep-0", "sweep-1", "sweep-2"])
    expect(harness.cloud.alive).toEqual([])
  })

  test("cancels its jobs when it is deleted, and they settle without it", async () => {
    const { harness } = await start(() => undefined)
    await harness.submitArray("sweep", { size: 10, parallelism: 2 })
    await reaches(harness, { phase: "running", activeIndexes: "0-1" })
    await harness.client.delete(JOB_ARRAYS, { namespace: harness.namespace, name: "sweep" })
    await eventually(async () => {
      const jobs = await jobsOf(harness)
      expect(jobs.map(({ status }) => [status?.phase, status?.settled])).toEqual([
        ["cancelled", true],
        ["cancelled", true],
      ])
    })
    await expect(harness.array("sweep")).rejects.toSatisfy(isNotFound)
    expect(harness.cloud.alive).toEqual([])
  })

  test("creates no more jobs once its project is being deleted; those that run continue", async () => {
    const { harness, work } = await start(() => undefined, { tenancy: true })
    const { client, namespace } = harness
    await confirmedProject(client, { name: namespace, organization: "sea", namespace })
    // A project stays until no job of it is unfinished. Project controllers of other suites must not release this one.
    const finalizers = ["example.com/held"]
    await client.patch(PROJECTS, { name: namespace }, { merge: { metadata: { finalizers } } })
    await harness.submitArray("sweep", { size: 5, parallelism: 2 })
    await reaches(harness, { phase: "running", activeIndexes: "0-1" })
    await eventually(async () => {
      expect((await jobsOf(harness)).map(({ status }) => status?.phase)).toEqual(["running", "running"])
    })
    await client.delete(PROJECTS, { name: namespace })
    await eventually(async () => {
      const { status } = await harness.array("sweep")
      expect(findCondition(status?.conditions, "Reconciling")).toMatchObject({
        ...{ status: "True", reason: "ProjectDeleting" },
        message: `the project ${namespace} is being deleted: it creates no jobs`,
      })
    })
    work(() => "Succeeded")
    const { counts } = await reaches(harness, { phase: "running", succeededIndexes: "0-1", activeIndexes: "" })
    expect(counts).toMatchObject({ pending: 3, succeeded: 2 })
    await eventually(async () => {
      expect((await jobsOf(harness)).map(({ status }) => status?.settled)).toEqual([true, true])
    })
    expect(harness.cloud.alive).toEqual([])
    // The namespace deletes it then, and its finalizer must not hold the namespace.
    await client.delete(JOB_ARRAYS, { namespace, name: "sweep" })
    await eventually(() => expect(harness.array("sweep")).rejects.toSatisfy(isNotFound))
    expect(namesOf(await jobsOf(harness))).toEqual(["sweep-0", "sweep-1"])
    await client.patch(PROJECTS, { name: namespace }, { merge: { metadata: { finalizers: [] } } })
  })

  test("keeps only as many ended jobs as it wants, and is deleted after its TTL", async () => {
    const { harness } = await start((name) => (/[05]$/.test(name) ? "ContainerFailed" : "Succeeded"))
    const limits = { successfulJobsHistoryLimit: 2, failedJobsHistoryLimit: 1 }
    await harness.submitArray("sweep", { size: 10, parallelism: 5, ...limits, ttlSecondsAfterFinished: 600 })
    await reaches(harness, { phase: "failed", failedIndexes: "0,5", succeededIndexes: "1-4,6-9" })
    await eventually(async () => {
      const phases = (await jobsOf(harness)).map(({ status }) => status?.phase).sort()
      expect(phases).toEqual(["failed", "succeeded", "succeeded"])
    })
    await eventually(async () => {
      harness.clock.advance(60)
      await expect(harness.array("sweep")).rejects.toSatisfy(isNotFound)
    })
    expect(await jobsOf(harness)).toHaveLength(3)
  })
})
