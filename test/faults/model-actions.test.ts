import { beforeAll, describe, expect, test } from "vitest"
import { JOB_FINALIZER, type StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import type { ReconcileContext } from "../../src/core/runtime/controller.ts"
import { adopt, createLaunch, endLaunch, jobWriter, release } from "../../src/operator/job/actions.ts"
import type { JobControllerDependencies } from "../../src/operator/job/dependencies.ts"
import type { JobAction } from "../../src/operator/job/render.ts"
import { launchWriter, release as releaseLaunch, writeOwnStatus } from "../../src/operator/launch/actions.ts"
import { createdStatus } from "../../src/operator/launch/create.ts"
import type { OwnStatus } from "../../src/operator/launch/decide.ts"
import type { LaunchControllerDependencies } from "../../src/operator/launch/dependencies.ts"
import { dropFinalizer, remove, replaceStatus } from "../../src/operator/writes.ts"
import { agentOf, jobOf, launchOf, time } from "../harness/builders.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { writeForJob, writeForLaunch } from "./model-operator.ts"
import { partsOf } from "./model-parts.ts"
import { JOB_VERSIONS, LAUNCH_VERSIONS, newLaunch, newWorld, type World } from "./model-state.ts"

// The model writes objects by its own code, because it needs millions of writes. Here each of its writes is compared
// with the action of the controller, on the API server.

const open = controllerHarnesses()
let harness: ControllerHarness
beforeAll(async () => {
  harness = await open()
})

const context = { wrote: () => undefined, deleted: () => undefined } as unknown as ReconcileContext
const VM = {
  id: "vm-1",
  launch: "l",
  createTime: time(5),
  installation: "i",
  region: "here",
  state: "running",
} as const
const WORK = { decision: 0, step: 0, half: 0 }
const CREATED = createdStatus(VM)
const TERMINATED: OwnStatus = {
  phase: "terminated",
  message: "the VM was terminated",
  vm: { ...CREATED.vm, state: "terminated", terminationTime: time(90) },
  costUsd: 0.01,
}

function options() {
  const { client, clock, namespace: systemNamespace } = harness
  const cache = { store: {} }
  const shared = {
    client,
    clock,
    jobs: cache,
    launches: cache,
    installation: { systemNamespace },
    fence: () => undefined,
  }
  return shared as unknown as JobControllerDependencies & LaunchControllerDependencies
}

/** Stores an object in the harness's namespace, with its status. */
async function stored<T extends StoredJob | StoredLaunch>(
  resource: typeof JOBS | typeof LAUNCHES,
  object: T,
): Promise<T> {
  const { client, namespace } = harness
  const { name, labels, annotations, finalizers } = object.metadata
  const metadata = { name: `${name}-${names++}`, namespace, labels, annotations, finalizers }
  const made = await client.create(resource as typeof JOBS, { ...object, metadata } as unknown as StoredJob)
  if (object.status === undefined) return made as T
  const merge = { status: object.status }
  return (await client.patchStatus(resource as typeof JOBS, made.metadata, { merge })) as T
}
let names = 1

async function read<T extends StoredJob | StoredLaunch>(resource: typeof JOBS | typeof LAUNCHES, { metadata }: T) {
  return await ifFound(harness.client.get(resource as typeof JOBS, metadata))
}

function worldWith(job: StoredJob, launch?: StoredLaunch): World {
  const world = newWorld(job, 0)
  return launch === undefined ? world : { ...world, launches: [newLaunch(LAUNCH_VERSIONS.of(launch))] }
}

describe("the model of the job controller", () => {
  const ADOPTED = { finalizers: [JOB_FINALIZER] }
  const cases: [JobAction["do"], object, (job: StoredJob) => [JobAction, () => Promise<unknown>]][] = [
    [
      "adopt",
      { finalizers: [], annotations: {} },
      (job) => [{ do: "adopt", labels: { a: "b" } }, () => adopt(job, { a: "b" }, options(), context)],
    ],
    [
      "writeStatus",
      ADOPTED,
      (job) => {
        const status = { phase: "queued" as const, observedGeneration: 1, message: "waiting" }
        return [{ do: "writeStatus", status }, () => replaceStatus(job, status, jobWriter(options()), context)]
      },
    ],
    [
      "release",
      ADOPTED,
      (job) => [{ do: "release", next: 1 }, () => release(job, { do: "release", next: 1 }, options(), context)],
    ],
    [
      "release",
      { finalizers: [], annotations: {} },
      (job) => {
        const action = { do: "release", next: 1, labels: { a: "b" } } as const
        return [action, () => release(job, action, options(), context)]
      },
    ],
    [
      "dropFinalizer",
      ADOPTED,
      (job) => [{ do: "dropFinalizer" }, () => dropFinalizer(job, JOB_FINALIZER, jobWriter(options()), context)],
    ],
  ]
  test.each(cases)("writes what the controller writes: %s", async (name, metadata, of) => {
    const status = { phase: "booting" as const, message: "before", retryCount: 1 }
    const job = await stored(JOBS, jobOf({ metadata, status }))
    // Only a Job that is being deleted loses its finalizer.
    if (name === "dropFinalizer") await harness.delete(job.metadata.name)
    const current = (await read(JOBS, job)) as StoredJob
    const [action, act] = of(current)
    const on = JOB_VERSIONS.of(current)
    const { world, outcome } = writeForJob(worldWith(current), action, { ...WORK, on })
    await act()
    expect(outcome).toBe("done")
    const expected = partsOf(JOB_VERSIONS.get(world.job.object))
    // No decision reads the time of the last update, so the model has none.
    const annotations = { ...expected?.annotations, [ANNOTATIONS.updatedAt]: expect.any(String) }
    const written = partsOf(await read(JOBS, job))
    expect(written).toEqual(name === "release" ? { ...expected, annotations } : expected)
  })

  test("writes what the controller writes: createLaunch", async () => {
    const job = await stored(JOBS, jobOf())
    const { name, finalizers = [] } = launchOf(jobOf()).metadata
    const launch = { ...launchOf(jobOf()), metadata: { name, finalizers, namespace: harness.namespace } }
    const on = JOB_VERSIONS.of(job)
    const { world } = writeForJob(
      worldWith(job),
      { do: "createLaunch", launch, isStrict: false },
      { ...WORK, on, half: 1 },
    )
    const ledger = { forget: () => undefined } as never
    expect(
      await createLaunch(job, { do: "createLaunch", launch, isStrict: false }, { options: options(), ledger, context }),
    ).toBe(true)
    const made = LAUNCH_VERSIONS.get(world.launches[0]?.object ?? 0)
    // The API server also sets the defaults of fields.
    expect(partsOf(await read(LAUNCHES, launch as StoredLaunch))).toMatchObject(partsOf(made) ?? {})
  })

  test("writes what the controller writes: endLaunch", async () => {
    const job = jobOf()
    const launch = await stored(LAUNCHES, launchOf(jobOf(), 1, { status: CREATED }))
    const { world } = writeForJob(worldWith(job, launch), { do: "endLaunch", launch }, { ...WORK, on: 0 })
    await endLaunch(launch, options(), context)
    const ended = LAUNCH_VERSIONS.get(world.launches[0]?.object ?? 0)
    expect(partsOf(ended)).toEqual(partsOf(await read(LAUNCHES, launch)))
  })
})

describe("the model of the launch controller", () => {
  const unanswered = { class: "Unavailable", message: "no answer", since: time(1) } as const
  test.each<[string, object, OwnStatus]>([
    ["the status of a new VM", { phase: "requested", unanswered }, CREATED],
    ["the status of a deleted VM", { ...CREATED, agent: agentOf() }, TERMINATED],
    ["a launch error", { phase: "requested" }, { unanswered }],
  ])("writes what the controller writes: %s", async (_, status, next) => {
    const launch = await stored(LAUNCHES, launchOf(jobOf(), 1, { status }))
    const on = LAUNCH_VERSIONS.of(launch)
    const call = { do: "writeStatus", status: next } as const
    const { world } = writeForLaunch(worldWith(jobOf(), launch), 1, { call, work: { ...WORK, on } })
    await writeOwnStatus(launch, next, options(), context)
    const written = LAUNCH_VERSIONS.get(world.launches[0]?.object ?? 0)
    expect(partsOf(written)).toEqual(partsOf(await read(LAUNCHES, launch)))
  })

  test.each([
    ["delete" as const, "a released Launch", { finalizers: [] as string[] }, false],
    ["delete" as const, "another", {}, false],
    ["release" as const, "a Launch", {}, false],
    ["release" as const, "a deleted Launch", {}, true],
  ])("writes what the controller writes: %s %s", async (name, _, metadata, isDeleted) => {
    const launch = await stored(LAUNCHES, launchOf(jobOf(), 1, { status: TERMINATED, metadata }))
    if (isDeleted) await harness.client.delete(LAUNCHES, launch.metadata)
    const current = (await read(LAUNCHES, launch)) as unknown as StoredLaunch
    const on = LAUNCH_VERSIONS.of(current)
    const { world } = writeForLaunch(worldWith(jobOf(), current), 1, {
      call: { do: name, needed: true },
      work: { ...WORK, on },
    })
    await (name === "delete"
      ? remove(current, launchWriter(options()), context)
      : releaseLaunch(current, { needed: true }, options(), context))
    const written = LAUNCH_VERSIONS.get(world.launches[0]?.object ?? 0)
    expect(partsOf(written)).toEqual(partsOf(await read(LAUNCHES, launch)))
  })
})
