import { describe, expect, onTestFinished, test } from "vitest"
import { isOver, LAUNCH_FINALIZER, type LaunchStatus, pricesOf, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { billedUsd, roundUsd } from "../../src/core/apis/money.ts"
import { sumOfParts } from "../../src/core/apis/price.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import type { ApiObject, Resource } from "../../src/core/kube/resource.ts"
import { LAUNCHES, ORGANIZATIONS, PROJECTS, STATEMENTS } from "../../src/core/resources.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses, type OperatorClients } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"

const newHarness = controllerHarnesses()

const REUSE = { idleSeconds: 300 }

/** Runs the agents until jobs have this phase. */
async function untilPhase(harness: ControllerHarness, names: readonly string[], phase: string): Promise<void> {
  await eventually(async () => {
    await harness.agentsStep()
    for (const name of names) expect((await harness.job(name)).status?.phase).toBe(phase)
  })
}

/** Runs the agents until the VM of a job that has ended waits for another one, and its operator knows it. */
async function untilIdle(harness: ControllerHarness, job: string): Promise<StoredLaunch> {
  const idle = await eventually(async () => {
    await harness.agentsStep()
    const launch = await launchOf(harness, job)
    expect(launch.status?.agent?.idleTime).toBeDefined()
    expect((await harness.job(job)).status?.phase).toBe("succeeded")
    return launch
  })
  await harness.caughtUp()
  return idle
}

async function launchOf(harness: ControllerHarness, job: string): Promise<StoredLaunch> {
  const found = (await harness.launches()).findLast(({ spec }) => spec.job.name === job)
  if (found === undefined) throw new Error(`${job} has no Launch`)
  return found
}

/** Sum of the clouds' bills, by their public rule: seconds of each VM, and at least its minimum. */
function billsOf(harness: ControllerHarness, launches: readonly StoredLaunch[]): number {
  return harness.cloud.vms.reduce((sum, { vm }) => {
    const [root] = launches.filter(({ metadata }) => metadata.name === vm.launch)
    if (root === undefined || vm.terminationTime === undefined) throw new Error(`${vm.id} has no bill`)
    const seconds = (Date.parse(vm.terminationTime) - Date.parse(vm.createTime)) / 1000
    return sum + billedUsd(sumOfParts(pricesOf(root)), seconds, root.spec.offer.minimumBilledSeconds)
  }, 0)
}

async function spentUsd(harness: ControllerHarness): Promise<number> {
  const { items } = await harness.client.list(STATEMENTS, { namespace: harness.namespace })
  return roundUsd(items.reduce((sum, { status }) => sum + (status?.spentUsd ?? 0), 0))
}

/** Moves the clock until all VMs and bills are final. Returns the Launches. */
async function untilSettled(harness: ControllerHarness): Promise<StoredLaunch[]> {
  return await eventually(async () => {
    harness.clock.advance(30)
    await harness.agentsStep()
    const launches = await harness.launches()
    expect(launches.every(isOver)).toBe(true)
    expect(launches.filter(({ metadata }) => metadata.finalizers?.length)).toEqual([])
    expect(harness.cloud.alive).toEqual([])
    return launches
  })
}

/**
 * Returns clients of an operator whose record of a VM that was taken over waits. So the takeover stops half-way: its
 * predecessor is bound already.
 */
function holdingRecord({ client, cloud }: ControllerHarness, until: Promise<void>): OperatorClients {
  const patchStatus: KubeClient["patchStatus"] = async (...args) => {
    const { phase, vm } = (args[2] as { merge?: { status?: LaunchStatus } }).merge?.status ?? {}
    if (args[0].kind === LAUNCHES.kind && phase === "created" && vm?.bootTime !== undefined) await until
    return await client.patchStatus(...args)
  }
  const holding = new Proxy(client, {
    get: (target, property) => {
      if (property === "patchStatus") return patchStatus
      const value: unknown = Reflect.get(target, property)
      return typeof value === "function" ? value.bind(target) : value
    },
  })
  return { client: holding, clouds: cloud, fence: () => undefined }
}

/** Cents may be rounded once for each Launch, and each bill is of whole seconds. */
function expectBilled(harness: ControllerHarness, launches: readonly StoredLaunch[], spent: number): void {
  const bills = billsOf(harness, launches)
  const perSecond = Math.max(...launches.map((launch) => sumOfParts(pricesOf(launch)))) / 3600
  expect(Math.abs(spent - bills)).toBeLessThanOrEqual(perSecond * launches.length + 1e-5)
}

describe("a VM that waits for another job", () => {
  test("is taken over: one VM, one bill after the other, and its end after the last job", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("a", { reuse: REUSE, timeoutSeconds: 600 })
    const first = await untilIdle(harness, "a")
    expect(await harness.job("a")).toMatchObject({ status: { phase: "succeeded", vm: { state: "running" } } })
    harness.clock.advance(100)

    await harness.submit("b", { reuse: REUSE, timeoutSeconds: 600 })
    await untilPhase(harness, ["b"], "succeeded")
    expect(harness.cloud.vms).toHaveLength(1)
    const [a, b] = [await launchOf(harness, "a"), await launchOf(harness, "b")]
    expect(a).toMatchObject({ status: { phase: "handedOver", handedTo: b.metadata.name } })
    expect(b).toMatchObject({ spec: { takesOver: a.metadata.name, root: a.metadata.name } })
    expect(b.status?.vm).toMatchObject({ id: first.status?.vm?.id, createTime: a.status?.vm?.terminationTime })
    expect(a.status?.idleUsd).toBeGreaterThan(0)
    await eventually(async () => expect((await harness.job("a")).status?.settled).toBe(true))
    expect((await harness.job("a")).status?.cost?.idleUsd).toBe(a.status?.idleUsd)

    harness.clock.advance(400)
    const launches = await untilSettled(harness)
    expect(harness.cloud.vms).toHaveLength(1)
    expectBilled(harness, launches, await spentUsd(harness))
  })

  test("is found by its second job in the first one's record, which is released right after", async () => {
    const harness = await newHarness()
    const { promise: recorded, resolve: record } = Promise.withResolvers<void>()
    harness.operator({ clients: holdingRecord(harness, recorded) })
    // A test that fails must not hold it for ever.
    onTestFinished(() => record())
    await harness.submit("a", { reuse: REUSE, timeoutSeconds: 600 })
    const first = await untilIdle(harness, "a")
    // A VM of less than a second costs nothing, and no Statement counts it.
    harness.clock.advance(100)
    await harness.submit("b", { reuse: REUSE, timeoutSeconds: 600 })
    await eventually(async () => {
      const { items } = await harness.client.list(STATEMENTS, { namespace: harness.namespace })
      expect(items[0]?.status?.counted).toContain(first.metadata.name)
      expect((await harness.job("a")).status?.settled).toBe(true)
    })
    // Nothing but the record keeps it now. The operator looks at it once more.
    await harness.client.patch(LAUNCHES, first.metadata, { merge: { metadata: { labels: { looked: "at" } } } })
    await harness.caughtUp()
    expect((await launchOf(harness, "a")).metadata.finalizers).toEqual([LAUNCH_FINALIZER])

    record()
    await eventually(async () => expect((await launchOf(harness, "a")).metadata.finalizers ?? []).toEqual([]))
    expect((await launchOf(harness, "b")).status?.vm?.id).toBe(first.status?.vm?.id)
  })

  test("ends after its time, and its job's cost has the idle time", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("a", { reuse: REUSE, timeoutSeconds: 600 })
    await untilIdle(harness, "a")
    harness.clock.advance(400)
    const launches = await untilSettled(harness)
    expect(launches[0]?.status).toMatchObject({ phase: "terminated" })
    expect(launches[0]?.status?.loss).toBeUndefined()
    expectBilled(harness, launches, await spentUsd(harness))
  })

  test("is one of two jobs' VM, and the other gets a VM of its own", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("a", { reuse: REUSE, timeoutSeconds: 600 })
    await untilIdle(harness, "a")
    await Promise.all(["b", "c"].map((name) => harness.submit(name, { reuse: REUSE, timeoutSeconds: 600 })))
    await untilPhase(harness, ["b", "c"], "succeeded")
    expect(harness.cloud.vms).toHaveLength(2)
    harness.clock.advance(400)
    expectBilled(harness, await untilSettled(harness), await spentUsd(harness))
  })

  test("costs its next job nothing but time if it dies before that job has it", async () => {
    const harness = await newHarness()
    harness.operator({ observeSeconds: 3600 })
    await harness.submit("a", { reuse: REUSE, timeoutSeconds: 600 })
    await untilIdle(harness, "a")
    for (const { id } of harness.cloud.alive) harness.cloud.lose(id)
    await harness.submit("b", { reuse: REUSE, timeoutSeconds: 600 })
    await eventually(async () => expect((await launchOf(harness, "b")).status?.vm).toBeDefined())
    // One list of the VMs comes due below. It says nothing of a VM that the operator does not know to have been taken.
    await harness.caughtUp()
    harness.clock.advance(3600)
    await eventually(async () => {
      harness.clock.advance(5)
      await harness.agentsStep()
      expect((await harness.job("b")).status).toMatchObject({ phase: "succeeded", launches: { count: 2, lost: 0 } })
    })
  })

  test("ends at once if a job that waits for room under a cap can't take it", async () => {
    const harness = await newHarness()
    harness.operator({ caps: { maxVms: 1 } })
    await harness.submit("a", { reuse: REUSE, timeoutSeconds: 600 })
    await untilIdle(harness, "a")
    await harness.submit("other", { timeoutSeconds: 600 })
    await untilPhase(harness, ["other"], "succeeded")
    expect(harness.cloud.vms).toHaveLength(2)
  })

  test("ends if a later VM begins to wait and the cap of idle VMs is reached", async () => {
    const harness = await newHarness()
    harness.operator({ caps: { maxIdleVms: 1 } })
    await harness.submit("a", { reuse: { ...REUSE, key: "a" }, timeoutSeconds: 600 })
    await untilIdle(harness, "a")
    harness.clock.advance(10)
    await harness.submit("b", { reuse: { ...REUSE, key: "b" }, timeoutSeconds: 600 })
    const later = await untilIdle(harness, "b")
    await eventually(() => expect(harness.cloud.alive.map(({ id }) => id)).toEqual([later.status?.vm?.id]))
    expect((await launchOf(harness, "a")).spec.ended).toBe(true)
    expect((await launchOf(harness, "b")).spec.ended).not.toBe(true)
  })

  test.each([
    ["project", PROJECTS],
    ["organization", ORGANIZATIONS],
  ])("ends as soon as the cap of its %s is lowered", async (_, level) => {
    const harness = await newHarness()
    const { client, namespace } = harness
    await client.create(ORGANIZATIONS, { metadata: { name: namespace }, spec: { displayName: "Sea" } } as never)
    await confirmedProject(client, { name: namespace, organization: namespace, namespace })
    harness.operator({ tenancy: true })
    for (const name of ["a", "b"]) {
      await harness.submit(name, { reuse: { ...REUSE, key: name }, timeoutSeconds: 600 })
      await untilIdle(harness, name)
      harness.clock.advance(10)
    }
    const later = (await launchOf(harness, "b")).status?.vm?.id
    const spec = { caps: { maxIdleVms: 1 } }
    await client.patch(level as Resource<ApiObject>, { name: namespace }, { merge: { spec } })
    await eventually(() => expect(harness.cloud.alive.map(({ id }) => id)).toEqual([later]))
  })

  test("ends with its job's deletion", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("a", { reuse: REUSE, timeoutSeconds: 600 })
    await untilIdle(harness, "a")
    await harness.delete("a")
    await eventually(() => expect(harness.cloud.alive).toEqual([]))
  })
})

describe("where the installation has a default of reuse", () => {
  const settings = { reuseIdleSeconds: 300 }

  test("jobs share a VM, and one that wants a VM of its own has it for itself", async () => {
    const harness = await newHarness()
    harness.operator({ settings })
    await harness.submit("a", { timeoutSeconds: 600 })
    const { status } = await untilIdle(harness, "a")
    await harness.submit("own", { reuse: { idleSeconds: 0 }, timeoutSeconds: 600 })
    await untilPhase(harness, ["own"], "succeeded")
    await eventually(() => expect(harness.cloud.alive.map(({ id }) => id)).toEqual([status?.vm?.id]))
    await harness.submit("b", { timeoutSeconds: 600 })
    await untilPhase(harness, ["b"], "succeeded")
    expect((await launchOf(harness, "b")).status?.vm?.id).toBe(status?.vm?.id)
    expect(harness.cloud.vms).toHaveLength(2)
  })

  test("the VMs of an array end with its last jobs", async () => {
    const harness = await newHarness()
    harness.operator({ settings })
    const jobDefinition = { image: "busybox", timeoutSeconds: 600 }
    await harness.submitArray("sweep", { size: 3, parallelism: 1, jobDefinition })
    const ending = new AbortController()
    const agents = harness.agents(ending.signal)
    await eventually(async () => expect((await harness.array("sweep")).status?.phase).toBe("succeeded"))
    await eventually(() => expect(harness.cloud.alive).toEqual([]))
    ending.abort()
    await agents
    expect(harness.cloud.vms).toHaveLength(1)
  })
})

test("an array runs through as many VMs as it has jobs at a time, and ends them with its last jobs", async () => {
  const harness = await newHarness()
  harness.operator()
  const jobDefinition = { image: "busybox", reuse: REUSE, timeoutSeconds: 600 }
  await harness.submitArray("sweep", { size: 12, parallelism: 3, jobDefinition })
  const ending = new AbortController()
  const agents = harness.agents(ending.signal)
  await eventually(async () => expect((await harness.array("sweep")).status?.phase).toBe("succeeded"))
  await eventually(() => expect(harness.cloud.alive).toEqual([]))
  ending.abort()
  await agents
  expect(harness.cloud.vms.length).toBeLessThanOrEqual(4)
  expectBilled(harness, await untilSettled(harness), await spentUsd(harness))
})
