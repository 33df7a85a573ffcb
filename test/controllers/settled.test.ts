import { expect, test } from "vitest"
import { JOB_FINALIZER } from "../../src/apis/job.ts"
import { launchName } from "../../src/apis/launch.ts"
import { LABELS } from "../../src/apis/meta.ts"
import { release } from "../../src/controllers/job/actions.ts"
import type { JobControllerOptions } from "../../src/controllers/job/options.ts"
import { ifFound } from "../../src/kube/errors.ts"
import type { ReconcileContext } from "../../src/runtime/controller.ts"
import { eventually } from "../cloud/eventually.ts"
import { launchOf } from "./builders.ts"
import { type ControllerHarness, controllerHarnesses, JOBS, LAUNCHES } from "./harness.ts"

const newHarness = controllerHarnesses()

function stored(harness: ControllerHarness, name: string) {
  return ifFound(harness.client.get(JOBS, { namespace: harness.namespace, name }))
}

test("a settled job has no finalizer, can be selected, and is deleted at once", async () => {
  const harness = await newHarness()
  const operator = harness.operator()
  for (const name of ["ran", "cancelled"]) await harness.submit(name)
  await eventually(async () => expect((await harness.job("cancelled")).status?.phase).toBe("booting"))
  await harness.cancel("cancelled")
  await eventually(async () => {
    await harness.agentsStep()
    for (const name of ["ran", "cancelled"]) expect((await harness.job(name)).status?.settled).toBe(true)
  })
  await operator.stop()
  const { namespace } = harness
  const settled = await harness.client.list(JOBS, { namespace, fieldSelector: "status.settled=true" })
  expect(settled.items.map(({ metadata }) => [metadata.name, metadata.finalizers ?? []])).toEqual([
    ["cancelled", []],
    ["ran", []],
  ])
  await harness.delete("ran")
  expect(await stored(harness, "ran")).toBeUndefined()
})

test("a job keeps its finalizer if it has a Launch that the cache does not show", async () => {
  const harness = await newHarness()
  const { client, namespace } = harness
  const job = await harness.submit("job", {}, { finalizers: [JOB_FINALIZER] })
  const { spec } = launchOf(job)
  await client.create(LAUNCHES, { metadata: { name: launchName(job.metadata.uid, 1), namespace }, spec } as never)
  const seen: string[] = []
  const context = { wrote: (_: unknown, { metadata }: { metadata: { name: string } }) => seen.push(metadata.name) }
  const options = {
    client,
    jobs: {},
    launches: {},
    installation: { systemNamespace: namespace },
    fence: () => undefined,
  }
  const releaseAt = (next: number) =>
    release(
      job,
      { do: "release", next },
      options as unknown as JobControllerOptions,
      context as unknown as ReconcileContext,
    )
  expect(await releaseAt(1)).toBeUndefined()
  expect(seen).toEqual([launchName(job.metadata.uid, 1)])
  expect((await harness.job("job")).metadata.finalizers).toEqual([JOB_FINALIZER])
  expect((await releaseAt(2))?.metadata.finalizers ?? []).toEqual([])
})

test("a job that ended in a former version keeps its finalizer, and is deleted on request or after its TTL", async () => {
  const harness = await newHarness()
  const names = ["on-request", "expired", "kept"]
  for (const name of names) {
    const ttlSecondsAfterFinished = name === "expired" ? 60 : 3600
    const job = await harness.submit(name, { ttlSecondsAfterFinished }, { finalizers: [JOB_FINALIZER] })
    const completionTime = job.metadata.creationTimestamp
    const status = { phase: "succeeded", completionTime, cost: { actualUsd: 0 } } as const
    await harness.client.replaceStatus(JOBS, { ...job, status })
  }
  harness.operator()
  await harness.delete("on-request")
  await eventually(async () => expect(await stored(harness, "on-request")).toBeUndefined())
  expect(await stored(harness, "expired")).toBeDefined()
  harness.clock.advance(61)
  await eventually(async () => expect(await stored(harness, "expired")).toBeUndefined())
  expect((await harness.job("kept")).metadata.finalizers).toEqual([JOB_FINALIZER])
})

test("the records of settled jobs are deleted together after the retention, and no others", async () => {
  const harness = await newHarness()
  const { client, namespace } = harness
  const names = ["one", "two"]
  harness.operator()
  for (const name of names) await harness.submit(name)
  await eventually(async () => {
    await harness.agentsStep()
    for (const name of names) expect((await harness.job(name)).status?.settled).toBe(true)
  })
  await eventually(async () => {
    harness.clock.advance(1)
    const labels = (await harness.launches()).map(({ metadata }) => metadata.labels?.[LABELS.released])
    expect(labels).toEqual([expect.any(String), expect.any(String)])
  })
  await harness.submit("three")
  await eventually(() => harness.liveLaunch())
  harness.clock.advance(3600 + 120)
  await eventually(async () => {
    harness.clock.advance(30)
    expect((await harness.launches()).map(({ spec }) => spec.job.name)).toEqual(["three"])
  })
  expect((await client.list(JOBS, { namespace })).items).toHaveLength(3)
})
