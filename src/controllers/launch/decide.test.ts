import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, time, vmStatus } from "../../../test/controllers/builders.ts"
import type { LaunchStatus, StoredLaunch } from "../../apis/launch.ts"
import type { Vm } from "../../cloud/provider.ts"
import { decide, givenUp, type LaunchDecision, type LaunchObservation } from "./decide.ts"
import { LAUNCH_DEFAULTS } from "./settings.ts"

const job = jobOf()

function vm(changes: Partial<Vm> = {}): Vm {
  return {
    id: "vm-1",
    launch: "l",
    installation: "i",
    region: "here",
    state: "running",
    createTime: time(5),
    ...changes,
  }
}

function decideAt(seconds: number, launch: StoredLaunch, changes: Partial<LaunchObservation> = {}): LaunchDecision {
  const observed: LaunchObservation = {
    sighting: { seen: "unknown" },
    outstanding: false,
    silent: false,
    job: "alive",
    ...changes,
  }
  return decide(launch, observed, at(seconds), LAUNCH_DEFAULTS)
}

const running = vmStatus({ phase: "running", agent: agentOf({ startTime: time(30) }) })

describe("before a VM is known", () => {
  test("the finalizer comes before any call", () => {
    const bare = launchOf(job, 1, { metadata: { finalizers: [] } })
    expect(decideAt(0, bare).actions).toEqual([{ do: "addFinalizer" }])
    expect(decideAt(0, launchOf(job)).actions).toEqual([{ do: "launch" }])
  })

  test.each([
    ["ended", { spec: { ended: true } }, {}],
    ["deleted", { metadata: { deletionTimestamp: time(1) } }, {}],
    ["without its Job", {}, { job: "gone" as const }],
  ])("%s: an outstanding call is replayed first; where there surely was none, it is over", (_, changes, observed) => {
    const launch = launchOf(job, 1, changes)
    expect(decideAt(2, launch, { ...observed, outstanding: true })).toEqual({ actions: [{ do: "launch" }], events: [] })
    expect(decideAt(2, launch, observed)).toMatchObject({ status: { phase: "terminated", costUsd: 0 }, actions: [] })
  })

  test("a cloud that nobody may ask any more is given up only after the lifetime", () => {
    expect(givenUp(launchOf(job), at(900 + 5400 + 299), LAUNCH_DEFAULTS)).toBeUndefined()
    expect(givenUp(launchOf(job), at(900 + 5400 + 300), LAUNCH_DEFAULTS)).toMatchObject({
      phase: "terminated",
      loss: { reason: "VMLost" },
    })
  })
})

describe("a VM that is wanted", () => {
  test("the agent's phases are written when they last", () => {
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(20) }) }) })
    expect(decideAt(21, launch).status).toBeUndefined()
    expect(decideAt(21, launch).requeueAfter).toBe(4)
    expect(decideAt(25, launch).status).toMatchObject({ phase: "registered", vm: { state: "running" } })
  })

  test("is followed: an address that shows up late is written", () => {
    const launch = launchOf(job, 1, { status: vmStatus() })
    expect(
      decideAt(6, launch, { sighting: { seen: "present", vm: vm({ ipAddress: "10.0.0.7" }) } }).status,
    ).toMatchObject({
      vm: { state: "booting", ipAddress: "10.0.0.7" },
    })
  })

  test.each<[string, LaunchObservation["sighting"], LaunchStatus, string]>([
    ["gone from the list", { seen: "absent" }, running, "VMLost"],
    ["terminated by the cloud", { seen: "present", vm: vm({ state: "terminated" }) }, running, "VMLost"],
    ["preempted", { seen: "present", vm: vm({ state: "terminated", preempted: true }) }, running, "Preempted"],
    [
      "gone after a notice",
      { seen: "absent" },
      vmStatus({ agent: agentOf({ preemptionNotice: time(40) }) }),
      "Preempted",
    ],
  ])("%s: lost, and paid until then", (_, sighting, status, reason) => {
    const decision = decideAt(185, launchOf(job, 1, { status }), { sighting })
    expect(decision.status).toMatchObject({
      phase: "terminated",
      loss: { reason },
      vm: { state: "terminated", terminationTime: time(185) },
      costUsd: 0.03,
    })
    expect(decision.actions).toEqual([])
    expect(decision.events.map((event) => event.reason)).toEqual([reason])
  })

  test("not having been listed yet says nothing", () => {
    expect(decideAt(185, launchOf(job, 1, { status: running })).actions).toEqual([])
  })
})

describe("a VM that shall go", () => {
  test.each<[string, StoredLaunch, Partial<LaunchObservation>, string | undefined]>([
    ["ended", launchOf(job, 1, { spec: { ended: true }, status: running }), {}, undefined],
    ["deleted", launchOf(job, 1, { metadata: { deletionTimestamp: time(1) }, status: running }), {}, undefined],
    [
      "finished",
      launchOf(job, 1, { status: vmStatus({ agent: agentOf({ finish: { reason: "Succeeded", time: time(50) } }) }) }),
      {},
      undefined,
    ],
    ["its Job is gone", launchOf(job, 1, { status: running }), { job: "gone" }, undefined],
    [
      "another key came",
      launchOf(job, 1, { status: vmStatus({ agent: agentOf({ conflictTime: time(50) }) }) }),
      {},
      "KeyConflict",
    ],
    ["silent", launchOf(job, 1, { status: running }), { silent: true }, "Silent"],
  ])("%s", (_, launch, observed, loss) => {
    const decision = decideAt(60, launch, observed)
    expect(decision.actions).toEqual([{ do: "terminate", vmId: "vm-1" }])
    expect(decision.status?.loss?.reason).toBe(loss)
    // Asked already: it is told, and asked again only after a while.
    const asked = decideAt(65, launch, { ...observed, terminateAskedSecondsAgo: 5 })
    expect(asked.status).toMatchObject({ phase: "terminating", vm: { state: "terminating" } })
    expect(asked.actions).toEqual([])
    expect(decideAt(120, launch, { ...observed, terminateAskedSecondsAgo: 60 }).actions).toHaveLength(1)
    const gone = decideAt(125, launch, { ...observed, sighting: { seen: "absent" } })
    expect(gone.status).toMatchObject({ phase: "terminated", costUsd: 0.02 })
    expect(gone.status?.loss?.reason).toBe(loss)
  })

  test("a VM that outlived its lifetime is ended", () => {
    const launch = launchOf(job, 1, { status: running })
    expect(decideAt(5 + 900 + 5400 + 300, launch).actions).toEqual([])
    const decision = decideAt(5 + 900 + 5400 + 301, launch)
    expect(decision.actions).toEqual([{ do: "terminate", vmId: "vm-1" }])
    expect(decision.status?.loss?.reason).toBe("VMLost")
  })
})

describe("the record of a Launch that is over", () => {
  const over = launchOf(job, 1, {
    status: vmStatus({
      phase: "terminated",
      vm: { state: "terminated", id: "vm-1", terminationTime: time(100) },
      costUsd: 1,
    }),
  })

  test("is kept while its Job needs it, then for its time, then deleted", () => {
    expect(decideAt(99_999, over).actions).toEqual([])
    expect(decideAt(200, over, { job: "recorded" })).toMatchObject({ actions: [], requeueAfter: 3500 })
    expect(decideAt(3700, over, { job: "recorded" }).actions).toEqual([{ do: "delete" }])
    expect(decideAt(3700, over, { job: "gone", countsUntil: at(4000) })).toMatchObject({
      actions: [],
      requeueAfter: 300,
    })
  })

  test("loses its finalizer when it is deleted", () => {
    const deleted = launchOf(job, 1, { ...over, metadata: { deletionTimestamp: time(101) } })
    expect(decideAt(102, deleted).actions).toEqual([{ do: "dropFinalizer" }])
  })
})
