import { describe, expect, it } from "vitest"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CreationTimes } from "../../src/core/apis/creation-times.ts"
import type { JobSpec } from "../../src/core/apis/job.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import type { ApiObject, Resource } from "../../src/core/kube/resource.ts"
import { JOBS, ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { OFFERS } from "../harness/builders.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"

const newHarness = controllerHarnesses()

/** Waits until each job has the reason, or the phase if it has none here. */
async function untilReasons(harness: ControllerHarness, wanted: Record<string, string>): Promise<void> {
  await eventually(async () => {
    const found = await Promise.all(
      Object.keys(wanted).map(async (name) => [name, (await harness.job(name)).status?.reason] as const),
    )
    expect(Object.fromEntries(found)).toEqual(wanted)
  })
}

/** Runs the agents until all jobs have succeeded, without a step of the clock. Returns the jobs in the order of their VMs. */
async function runAll(harness: ControllerHarness, names: readonly string[]): Promise<string[]> {
  await eventually(async () => {
    await harness.agentsStep()
    const phases = await Promise.all(names.map(async (name) => (await harness.job(name)).status?.phase))
    expect(phases).toEqual(names.map(() => "succeeded"))
  })
  const launches = await harness.launches()
  const byTime = launches.toSorted((a, b) =>
    (a.status?.vm?.createTime ?? "") < (b.status?.vm?.createTime ?? "") ? -1 : 1,
  )
  return byTime.map(({ spec }) => spec.job.name)
}

/** The API server's times have whole seconds only. */
const CREATION_TIMES = new CreationTimes(systemClock)

async function submitInOrder(harness: ControllerHarness, jobs: Record<string, Partial<JobSpec>>): Promise<void> {
  for (const [name, spec] of Object.entries(jobs)) {
    await harness.submit(name, spec, { annotations: { [ANNOTATIONS.createdAt]: CREATION_TIMES.next() } })
    await eventually(async () => expect((await harness.job(name)).status?.phase).toBeDefined())
  }
}

describe("jobs under a cap of one VM", () => {
  it("start by priority, then by age, as soon as the VM has ended", async () => {
    const harness = await newHarness()
    harness.operator({ caps: { maxVms: 1 } })
    await submitInOrder(harness, { first: {}, second: {}, low: { priority: -1 }, urgent: { priority: 50 } })
    await untilReasons(harness, { first: "Booting", second: "CapReached", low: "CapReached", urgent: "CapReached" })
    // Each job says its place as it was at its last decision.
    expect((await harness.job("urgent")).status?.message).toMatch(/cap of 1 VMs is reached: it has 1; 1st in line$/)
    expect((await harness.job("low")).status?.message).toMatch(/; 2nd in line, behind second$/)
    expect(await runAll(harness, ["first", "urgent", "second", "low"])).toEqual(["first", "urgent", "second", "low"])
  })

  it("change their places when a priority changes", async () => {
    const harness = await newHarness()
    harness.operator({ caps: { maxVms: 1 } })
    await submitInOrder(harness, { first: {}, second: {}, third: {} })
    await untilReasons(harness, { first: "Booting", second: "CapReached", third: "CapReached" })
    const third = { namespace: harness.namespace, name: "third" }
    await harness.client.patch(JOBS, third, { merge: { spec: { priority: 1 } } })
    await eventually(async () => expect((await harness.job("third")).status?.message).toMatch(/; 1st in line$/))
    expect(await runAll(harness, ["first", "second", "third"])).toEqual(["first", "third", "second"])
  })

  it("keep their order when another operator leads", async () => {
    const harness = await newHarness()
    const before = harness.operator({ caps: { maxVms: 1 } })
    await submitInOrder(harness, { first: {}, second: {}, urgent: { priority: 9 } })
    await untilReasons(harness, { first: "Booting", second: "CapReached", urgent: "CapReached" })
    await before.stop()
    harness.operator({ caps: { maxVms: 1 } })
    expect(await runAll(harness, ["first", "second", "urgent"])).toEqual(["first", "urgent", "second"])
  })
})

describe("a job that needs more than a cap leaves", () => {
  const caps = { maxHourlyUsd: 2 }
  const small = { cpu: 1, hourlyPriceUsd: 1, instanceType: "small" }
  const large = { cpu: 8, hourlyPriceUsd: 2, instanceType: "large" }
  const market = {
    offers: [small, large].map((fields) => ({ ...(OFFERS[0] as Offer), ...fields })),
    account: { cloud: "sim", region: "here" },
  }
  const needsAll = { resources: { cpu: 8 } }

  it("is passed by smaller jobs while it has not waited for long", async () => {
    const harness = await newHarness()
    harness.operator({ caps, market })
    await submitInOrder(harness, { a: {}, large: needsAll, b: {} })
    await untilReasons(harness, { a: "Booting", large: "CapReached", b: "Booting" })
  })

  it("gets what becomes free once it has waited for the time in which it may be passed", async () => {
    const harness = await newHarness()
    harness.operator({ caps, market, settings: { passSeconds: 0 } })
    await submitInOrder(harness, { a: {}, b: {}, large: needsAll, c: {}, d: {} })
    await untilReasons(harness, { a: "Booting", b: "Booting", large: "CapReached", c: "CapReached", d: "CapReached" })
    expect((await harness.job("d")).status?.message).toMatch(/; 3rd in line, behind large$/)
    // One of the small machines ends: c would fit, but the room is kept.
    const [first] = (await harness.launches()).filter(({ spec }) => spec.job.name === "a")
    const launch = first?.metadata.name ?? ""
    await harness.register(launch)
    await harness.start(launch)
    await harness.finish(launch, "Succeeded")
    await eventually(async () => {
      await harness.agentsStep("run")
      expect((await harness.job("a")).status?.phase).toBe("succeeded")
    })
    await untilReasons(harness, { large: "CapReached", c: "CapReached", d: "CapReached" })
    expect((await runAll(harness, ["a", "b", "large", "c", "d"])).slice(2, 3)).toEqual(["large"])
  })
})

describe("jobs whose caps are raised", () => {
  /** More than those that look again by themselves. */
  const names = Array.from({ length: 20 }, (_, index) => `job-${String(index).padStart(2, "0")}`)

  it.each(["project", "organization"] as const)("start without waiting for another look: of the %s", async (level) => {
    const harness = await newHarness()
    const { client, namespace } = harness
    await client.create(ORGANIZATIONS, { metadata: { name: namespace }, spec: { displayName: "Sea" } } as never)
    await confirmedProject(client, { name: namespace, organization: namespace, namespace })
    const capped = level === "project" ? PROJECTS : ORGANIZATIONS
    const setCaps = (caps: SpendCaps | null) =>
      client.patch(capped as Resource<ApiObject>, { name: namespace }, { merge: { spec: { caps } } })
    await setCaps({ maxVms: 1 })
    harness.operator({ tenancy: true, settings: { capRetrySeconds: 86_400 } })
    for (const name of names) await harness.submit(name)
    const reasons = async () => {
      const all = await Promise.all(names.map(async (name) => (await harness.job(name)).status?.reason ?? "none"))
      return Object.fromEntries([...Map.groupBy(all, (reason) => reason)].map(([reason, its]) => [reason, its.length]))
    }
    await eventually(async () => expect(await reasons()).toEqual({ Booting: 1, CapReached: 19 }))
    await setCaps({ maxVms: 18 })
    await eventually(async () => expect(await reasons()).toEqual({ Booting: 18, CapReached: 2 }))
    await setCaps(null)
    await eventually(async () => expect(await reasons()).toEqual({ Booting: 20 }))
  })
})

describe("a concurrency group", () => {
  it("runs as many of its jobs as the waiting job allows, and no job of another group waits for it", async () => {
    const harness = await newHarness()
    harness.operator()
    const db = { concurrencyGroup: { name: "db", limit: 1 } }
    await submitInOrder(harness, { one: db, two: db, three: { ...db, priority: 1 }, free: {} })
    await untilReasons(harness, { one: "Booting", two: "GroupFull", three: "GroupFull", free: "Booting" })
    expect((await harness.job("two")).status?.message).toMatch(/^group db has 1 of 1: one; 1st in line$/)
    const order = await runAll(harness, ["one", "two", "three", "free"])
    expect(order.filter((name) => name !== "free")).toEqual(["one", "three", "two"])
  })
})
