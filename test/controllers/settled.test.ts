import { expect, test } from "vitest"
import { timestamp } from "../../src/core/apis/clock.ts"
import { defined } from "../../src/core/apis/defined.ts"
import { JOB_FINALIZER } from "../../src/core/apis/job.ts"
import { launchName } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS, LABELS } from "../../src/core/apis/meta.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import type { ServerMeta } from "../../src/core/kube/resource.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import type { ReconcileContext } from "../../src/core/runtime/controller.ts"
import { release } from "../../src/operator/job/actions.ts"
import type { JobControllerDependencies } from "../../src/operator/job/dependencies.ts"
import {
  checkSelection,
  type SettledJob,
  SettledJobs,
  type SettledJobsOptions,
} from "../../src/operator/settled-jobs.ts"
import { launchOf } from "../harness/builders.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const newHarness = controllerHarnesses()

function stored(harness: ControllerHarness, name: string) {
  return ifFound(harness.client.get(JOBS, { namespace: harness.namespace, name }))
}

/** Stores a job that ended at once, as an operator leaves it. */
async function storeSettled(harness: ControllerHarness, name: string): Promise<void> {
  const job = await harness.submit(name, { ttlSecondsAfterFinished: 0 })
  const { creationTimestamp: completionTime, generation: observedGeneration } = job.metadata
  const status = { phase: "succeeded", completionTime, settled: true, ...defined({ observedGeneration }) } as const
  await harness.client.replaceStatus(JOBS, { ...job, status })
}

function settledJobs(
  { client, namespace, clock }: ControllerHarness,
  options: Partial<SettledJobsOptions>,
): SettledJobs {
  return new SettledJobs({
    ...{ client, namespace, clock, fence: () => undefined, logger: silentLogger, ttlSeconds: 60 },
    limitsHistory: () => false,
    isAwaited: () => false,
    ...options,
  })
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
    clock: harness.clock,
    fence: () => undefined,
  }
  const releaseAt = (next: number) =>
    release(
      job,
      { do: "release", next },
      options as unknown as JobControllerDependencies,
      context as unknown as ReconcileContext,
    )
  expect(await releaseAt(1)).toBeUndefined()
  expect(seen).toEqual([launchName(job.metadata.uid, 1)])
  expect((await harness.job("job")).metadata.finalizers).toEqual([JOB_FINALIZER])
  expect((await releaseAt(2))?.metadata.finalizers ?? []).toEqual([])
})

test("a settled job and its Launch have no managedFields, unless a tool owns fields of the job", async () => {
  const harness = await newHarness()
  const { client, namespace } = harness
  const operator = harness.operator()
  for (const name of ["own", "labelled", "applied"]) await harness.submit(name)
  const label = { merge: { metadata: { labels: { seen: "yes" } } } }
  await client.patch(JOBS, { namespace, name: "labelled" }, label, { fieldManager: "kubectl-label" })
  const applied = { metadata: { namespace, name: "applied", labels: { team: "a" } } }
  await client.apply(JOBS, applied, { fieldManager: "flux" })
  await eventually(async () => {
    await harness.agentsStep()
    for (const name of ["own", "labelled", "applied"]) expect((await harness.job(name)).status?.settled).toBe(true)
    for (const { metadata } of await harness.launches()) expect(metadata).not.toHaveProperty("managedFields")
  })
  await operator.stop()
  const ownersOf = async (name: string) => {
    const { managedFields = [], annotations } = (await harness.job(name)).metadata as ServerMeta
    return [[...new Set(managedFields.map(({ manager }) => manager))], annotations?.[ANNOTATIONS.updatedAt]]
  }
  expect(await ownersOf("own")).toEqual([[], expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)])
  expect(await ownersOf("labelled")).toEqual([expect.arrayContaining(["berth", "kubectl-label"]), undefined])
  expect(await ownersOf("applied")).toEqual([expect.arrayContaining(["berth", "flux"]), undefined])
  // The tool still owns its label: when it applies the job without the label, it removes the label.
  await client.apply(JOBS, { metadata: { namespace, name: "applied" } }, { fieldManager: "flux" })
  expect((await harness.job("applied")).metadata.labels ?? {}).not.toHaveProperty("team")
})

test("an ended job whose end nothing awaits any more is settled by the next leader, and deleted after its TTL", async () => {
  const harness = await newHarness()
  const job = await harness.submit("expired", { ttlSecondsAfterFinished: 60 }, { finalizers: [JOB_FINALIZER] })
  // What waited for its end, such as a webhook, was deleted while no operator led.
  const status = { phase: "succeeded", completionTime: job.metadata.creationTimestamp, cost: { actualUsd: 0 } } as const
  await harness.client.replaceStatus(JOBS, { ...job, status })
  const operator = harness.operator()
  await eventually(async () => {
    const { metadata, status: settled } = await harness.job("expired")
    expect([metadata.finalizers ?? [], settled?.settled]).toEqual([[], true])
  })
  await eventually(() => expect(operator.jobs.size).toBe(0))
  harness.clock.advance(61)
  await eventually(async () => expect(await stored(harness, "expired")).toBeUndefined())
})

test("a next leader deletes settled jobs after their TTL, by their present version", async () => {
  const harness = await newHarness()
  const first = harness.operator()
  for (const name of ["expires", "extended", "stuck"]) await harness.submit(name, { ttlSecondsAfterFinished: 60 })
  for (const name of ["expires", "extended", "stuck"]) await harness.cancel(name)
  await eventually(async () => {
    const all = await harness.client.list(JOBS, { namespace: harness.namespace })
    expect(all.items.map(({ status }) => status?.settled)).toEqual([true, true, true])
  })
  await first.stop()
  const ref = (name: string) => ({ namespace: harness.namespace, name })
  await harness.client.patch(JOBS, ref("stuck"), { merge: { metadata: { finalizers: [JOB_FINALIZER] } } })
  await harness.delete("stuck")
  harness.operator()
  // A tool put the finalizer back. Without an operator that looks, the deletion would never end.
  await eventually(async () => expect(await stored(harness, "stuck")).toBeUndefined())
  await harness.client.patch(JOBS, ref("extended"), { merge: { spec: { ttlSecondsAfterFinished: 3600 } } })
  harness.clock.advance(61)
  await eventually(async () => expect(await stored(harness, "expires")).toBeUndefined())
  expect(await stored(harness, "extended")).toBeDefined()
})

test("the oldest settled jobs of a full project are deleted", async () => {
  const harness = await newHarness()
  const args = ["x".repeat(16_000)]
  for (let at = 0; at < 70; at++) {
    const job = await harness.submit(`old-${at}`, { args })
    const completionTime = timestamp(new Date(Date.parse(job.metadata.creationTimestamp) + at * 1000))
    const status = { phase: "succeeded", completionTime, cost: { actualUsd: 0 }, settled: true } as const
    await harness.client.replaceStatus(JOBS, { ...job, status })
  }
  harness.operator({ limits: { projectMib: 1 } })
  await eventually(async () => {
    const { items } = await harness.client.list(JOBS, { namespace: harness.namespace })
    const left = items.map(({ metadata }) => Number(metadata.name.slice(4))).sort((a, b) => a - b)
    expect(left.length).toBeLessThan(62)
    expect(left.length).toBeGreaterThan(50)
    expect(left.at(-1)).toBe(69)
    expect(left[0]).toBe(70 - left.length)
  })
})

test("a copy of a settled job is held, although the original never had a Launch", async () => {
  const harness = await newHarness()
  const operator = harness.operator({ launchAccounts: () => [] })
  const submission = `${harness.installation}/${"A".repeat(22)}`
  const annotations = { [ANNOTATIONS.createdAt]: new Date().toISOString(), [ANNOTATIONS.submission]: submission }
  await harness.submit("original", {}, { annotations, finalizers: [JOB_FINALIZER] })
  await harness.cancel("original")
  await eventually(async () => expect((await harness.job("original")).status?.settled).toBe(true))
  await eventually(() => expect(operator.jobs.size).toBe(0))
  await harness.submit("copy", {}, { annotations, finalizers: [JOB_FINALIZER] })
  await eventually(async () => expect((await harness.job("copy")).status?.reason).toBe("Held"))
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

test("no VM ends because its job leaves the selection", async () => {
  const harness = await newHarness()
  const operator = harness.operator()
  await harness.submit("job")
  await eventually(async () => {
    await harness.agentsStep("run")
    expect((await harness.job("job")).status?.phase).toBe("running")
  })
  // Only Berth writes a status. It is written here, because a job that runs never leaves the selection otherwise.
  const ref = { namespace: harness.namespace, name: "job" }
  await harness.client.patchStatus(JOBS, ref, { merge: { status: { settled: true } } })
  await eventually(() => expect(operator.jobs.size).toBe(0))
  harness.clock.advance(30)
  const { metadata } = await harness.liveLaunch()
  await harness.report(metadata.name, () => ({ retryCount: 1 }))
  await operator.caughtUp()
  expect(harness.cloud.alive).toHaveLength(1)
  expect((await harness.liveLaunch()).spec.ended ?? false).toBe(false)
})

test("a change of a settled job's spec is observed, so that tools see it as current", async () => {
  const harness = await newHarness()
  const { client, namespace } = harness
  const operator = harness.operator()
  await harness.submit("ended")
  await eventually(async () => {
    await harness.agentsStep()
    expect((await harness.job("ended")).status?.settled).toBe(true)
  })
  const before = await harness.job("ended")
  await client.patch(JOBS, { namespace, name: "ended" }, { merge: { spec: { ttlSecondsAfterFinished: 5000 } } })
  await eventually(async () => {
    const { metadata, status } = await harness.job("ended")
    expect(metadata.generation).toBeGreaterThan(before.metadata.generation ?? 0)
    expect(status?.observedGeneration).toBe(metadata.generation)
    expect(status?.conditions).toEqual(
      before.status?.conditions?.map((one) => ({ ...one, observedGeneration: metadata.generation })),
    )
    expect({ ...status, conditions: [], observedGeneration: 0 }).toEqual({
      ...before.status,
      ...{ conditions: [], observedGeneration: 0 },
    })
  })
  await operator.stop()
})

test("an API server that can't select jobs by status.settled is reported with the versions that can", async () => {
  const { client, namespace } = await newHarness()
  await expect(checkSelection(client, namespace)).resolves.toBeUndefined()
  // A kind without that field.
  const without = {
    list: (_: unknown, options: object) => client.list(SECRETS, { ...options, namespace }),
  } as unknown as typeof client
  await expect(checkSelection(without)).rejects.toThrow(/status\.settled.*Kubernetes 1\.31 or newer/)
})

test("a sweep mends some of the jobs only, and later sweeps mend the others", async () => {
  const harness = await newHarness()
  const { client, namespace } = harness
  const names = ["first", "second", "third"]
  for (const name of names) await storeSettled(harness, name)
  for (const name of names) {
    await client.patch(JOBS, { namespace, name }, { merge: { spec: { ttlSecondsAfterFinished: 5000 } } })
  }
  const settled = settledJobs(harness, { mostMended: 2 })
  const countBehind = async () => {
    const { items } = await client.list(JOBS, { namespace })
    return items.filter(({ metadata, status }) => status?.observedGeneration !== metadata.generation).length
  }
  const behind: number[] = []
  for (let sweep = 0; sweep < 3; sweep++) {
    behind.push(await countBehind())
    await settled.sweep()
  }
  expect(behind).toEqual([3, 1, 0])
})

test("a settled job whose outcome is awaited is not deleted before it is known", async () => {
  const harness = await newHarness()
  await storeSettled(harness, "prepare")
  let isAwaited = true
  const settled = settledJobs(harness, { isAwaited: ({ metadata }) => isAwaited && metadata.name === "prepare" })
  const found: SettledJob[] = []
  await settled.sweep((one) => void found.push(one))
  const [expired] = found
  if (expired === undefined) throw new Error("the sweep found nothing")
  expect(await settled.delete(expired)).toBe(false)
  expect(await stored(harness, "prepare")).toBeDefined()
  isAwaited = false
  expect(await settled.delete(expired)).toBe(true)
  expect(await stored(harness, "prepare")).toBeUndefined()
})
