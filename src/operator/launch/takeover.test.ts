import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, offerOf, time, vmStatus } from "../../../test/harness/builders.ts"
import type { Vm } from "../../clouds/cloud.ts"
import type { AgentStatus, LaunchSpec, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { abandonedStatus, decide, type LaunchDecision, type LaunchObservation } from "./decide.ts"
import { keysWokenBy, needsPredecessor } from "./gather.ts"
import { LAUNCH_DEFAULTS } from "./settings.ts"
import { takeoverOf } from "./takeover.ts"

const RUN = { image: "busybox", timeoutSeconds: 3600, reuse: { idleSeconds: 300 } }
const FINISH = { reason: "Succeeded", time: time(100) } as const
const WAITS = agentOf({ startTime: time(30), finish: FINISH, lastHeartbeatTime: time(110), idleTime: time(110) })

/** Returns a Launch whose VM was created at 5 s and waits since 110 s. */
function idle(agent: Partial<AgentStatus> = {}, status: Partial<LaunchStatus> = {}): StoredLaunch {
  const vm = { state: "running", id: "vm-1", createTime: time(5), ipAddress: "192.0.2.1" } as const
  return launchOf(jobOf({ metadata: { uid: "first" } }), 1, {
    spec: { run: RUN, offer: offerOf({ hourlyPriceUsd: 36, minimumBilledSeconds: 200 }), vmLifetimeSeconds: 91_800 },
    status: vmStatus({ phase: "idle", vm, agent: { ...WAITS, ...agent }, ...status }),
  })
}

/** Returns a Launch that takes over the VM. */
function taker(spec: Partial<LaunchSpec> = {}, status?: LaunchStatus): StoredLaunch {
  const named = { takesOver: "first-1", root: "first-1", vmLifetimeSeconds: 91_800, bootDeadlineSeconds: 60 }
  const offer = offerOf({ hourlyPriceUsd: 36, minimumBilledSeconds: 200 })
  const owner = jobOf({ metadata: { uid: "second" } })
  return launchOf(owner, 1, { spec: { run: RUN, offer, ...named, ...spec }, ...(status && { status }) })
}

/** Returns a Launch after the controller's write. */
function written(launch: StoredLaunch, status: LaunchStatus): StoredLaunch {
  return { ...launch, status: { ...launch.status, ...status } }
}

function vm(changes: Partial<Vm> = {}): Vm {
  const known = { id: "vm-1", launch: "first-1", installation: "i", region: "here", createTime: time(5) }
  return { ...known, state: "running", ...changes }
}

function decideAt(seconds: number, launch: StoredLaunch, changes: Partial<LaunchObservation> = {}): LaunchDecision {
  const facts = { inFlight: false, heartbeatTimedOut: false, isCounted: true } as const
  const observed: LaunchObservation = { instance: { is: "unknown" }, job: "active", ...facts, ...changes }
  return decide(launch, observed, at(seconds), LAUNCH_DEFAULTS)
}

/** Returns the predecessor that has handed over its VM at this time. */
function handedOver(seconds: number, predecessor = idle()): StoredLaunch {
  const step = takeoverOf(taker(), predecessor, at(seconds))
  if (step.is !== "possible") throw new Error(`the takeover is ${step.is}`)
  return written(predecessor, step.predecessor)
}

describe("a takeover", () => {
  test("ends the bill of the predecessor, and begins that of its successor, at the same time", () => {
    const predecessor = handedOver(125)
    expect(predecessor.status).toMatchObject({
      ...{ phase: "handedOver", handedTo: "second-1", costUsd: 1.2, idleUsd: 0.15, agent: WAITS },
      vm: { state: "terminated", id: "vm-1", createTime: time(5), terminationTime: time(125) },
    })
    const done = takeoverOf(taker(), predecessor, at(130))
    expect(done).toMatchObject({ is: "done", own: { phase: "created" } })
    expect(done.is === "done" && done.own.vm).toEqual({
      ...{ state: "booting", id: "vm-1", ipAddress: "192.0.2.1", bootTime: time(5), createTime: time(125) },
    })
  })

  test("is the same however often it is looked at, and however late", () => {
    const [early, late] = [130, 90_000].map((seconds) => takeoverOf(taker(), handedOver(125), at(seconds)))
    expect(early).toEqual(late)
    // The predecessor may be deleted already; its finalizer holds it.
    const predecessor = handedOver(125)
    const deleted = { ...predecessor, metadata: { ...predecessor.metadata, deletionTimestamp: time(126) } }
    expect(takeoverOf(taker(), deleted, at(130))).toEqual(early)
  })

  test("keeps the time of the first boot along a chain", () => {
    const own = takeoverOf(taker(), handedOver(125), at(130))
    const second = written(taker({}, { agent: { ...WAITS, idleTime: time(300) } }), own.is === "done" ? own.own : {})
    const third = { ...taker({ takesOver: "second-1" }), metadata: { ...taker().metadata, name: "third-1" } }
    const step = takeoverOf(third, second, at(310))
    expect(step.is).toBe("possible")
    const handed = written(second, step.is === "possible" ? step.predecessor : {})
    expect(handed.status?.costUsd).toBeCloseTo(1.85)
    const next = takeoverOf(third, handed, at(311))
    expect(next.is === "done" && next.own.vm).toMatchObject({ bootTime: time(5), createTime: time(310) })
  })

  test("never ends a bill before it began, if the clock was set back", () => {
    const { vm } = handedOver(2, idle({ idleTime: time(0) })).status ?? {}
    expect(vm).toMatchObject({ createTime: time(5), terminationTime: time(5) })
  })

  test.each<[string, StoredLaunch | undefined, string]>([
    ["it is deleted", undefined, "its record is deleted"],
    [
      "another Launch has it",
      written(idle(), { handedTo: "third-1", phase: "handedOver" }),
      "another job took it first",
    ],
    ["it has left", idle({ leaveTime: time(120) }), "no job took it over within 300 s"],
    ["it is unfit", idle({ unfit: "its disk is full" }), "its disk is full"],
    ["it was terminated", idle({}, { phase: "terminated" }), "it has ended"],
    ["it is being terminated", idle({}, { phase: "terminating" }), "Berth ends this VM"],
  ])("is lost if there is no idle VM: %s", (_, predecessor, why) => {
    const message = `the idle VM of launch first-1 was not taken over: ${why}`
    const own = { phase: "terminated", message, costUsd: 0 }
    expect(takeoverOf(taker(), predecessor, at(125))).toEqual({ is: "lost", own })
  })

  test("gives the VM to the first one of two Launches only", () => {
    const other = { ...taker(), metadata: { ...taker().metadata, name: "third-1" } }
    expect(takeoverOf(other, handedOver(125), at(126)).is).toBe("lost")
  })
})

describe("a Launch that takes over a VM", () => {
  test("asks for no VM of its own", () => {
    expect(decideAt(120, taker())).toEqual({ actions: [{ do: "takeOver" }], events: [] })
  })

  test.each<[string, Partial<LaunchSpec>, Partial<LaunchObservation>]>([
    ["ended", { ended: true }, {}],
    ["without its job", {}, { job: "deleted" }],
    ["of a settled job", {}, { job: "settled" }],
  ])("has no VM if it ends before: %s", (_, spec, observed) => {
    const ended = { status: { phase: "terminated", costUsd: 0 }, actions: [] }
    expect(decideAt(120, taker(spec), observed)).toMatchObject(ended)
    // An earlier leader, or a request without an answer, may have given it the VM.
    const looks = { actions: [{ do: "takeOver" }], events: [] }
    expect(decideAt(120, taker(spec), { ...observed, inFlight: true })).toEqual(looks)
    // Its agent has registered before the VM was recorded.
    expect(decideAt(120, taker(spec, { agent: agentOf() }), observed)).toEqual(looks)
  })

  test("has a VM to follow and to end once that is recorded", () => {
    const step = takeoverOf(taker(), handedOver(125), at(130))
    const taken = written(taker(), step.is === "done" ? step.own : {})
    const found = { instance: { is: "found", vm: vm() } } as const
    expect(decideAt(140, taken, found)).toMatchObject({ actions: [] })
    expect(decideAt(140, { ...taken, spec: { ...taken.spec, ended: true } }, found)).toMatchObject({
      actions: [{ do: "terminate", vmId: "vm-1" }],
    })
  })

  test.each([
    // 120 s are paid already: 80 s are left of the cloud's minimum.
    [130, 130, 0.8],
    [400, 400, 2.75],
    // The VM had already ended when it was taken over.
    [90, 125, 0.8],
  ])("pays for the VM from the takeover on: its end at %i s is billed at %i s", (end, billed, usd) => {
    const step = takeoverOf(taker(), handedOver(125), at(125))
    const taken = written(taker(), step.is === "done" ? step.own : {})
    const terminationTime = time(end)
    const gone = { instance: { is: "found", vm: vm({ state: "terminated", terminationTime }) } } as const
    const { status } = decideAt(500, taken, { ...gone, consoleRead: "ended" })
    expect(status).toMatchObject({ phase: "terminated", loss: { reason: "VMLost" }, costUsd: usd })
    expect(status?.vm?.terminationTime).toBe(time(billed))
  })
})

describe("a Launch that has handed over its VM", () => {
  const record = handedOver(125)

  test("keeps its record until its successor has recorded the VM", () => {
    const release = [{ do: "release", needed: true }]
    expect(decideAt(200, record, { isHandoverOpen: true }).actions).toEqual([])
    expect(decideAt(200, record, { isHandoverOpen: false }).actions).toEqual(release)
    const deleted = { ...record, metadata: { ...record.metadata, deletionTimestamp: time(150) } }
    expect(decideAt(200, deleted, { isHandoverOpen: true, job: "deleted" }).actions).toEqual([])
    expect(decideAt(200, deleted, { job: "deleted" }).actions).toEqual([{ do: "release", needed: false }])
  })

  test.each<[string, StoredLaunch | undefined, boolean]>([
    ["it has no VM yet", taker(), true],
    ["its agent has registered, and it has no VM yet", taker({}, { agent: agentOf() }), true],
    ["it has the VM", taker({}, vmStatus()), false],
    ["it is over", taker({}, { phase: "terminated" }), false],
    ["it is deleted", undefined, false],
  ])("is needed by its successor or not: %s", (_, heir, isNeeded) => {
    expect(needsPredecessor(heir)).toBe(isNeeded)
    // Nothing else wakes the record that no Launch needs any more.
    const [key, old] = ["berth-system/second-1", taker()]
    const change = { key, old, ...(heir && { current: heir }) }
    expect(keysWokenBy(change)).toEqual(isNeeded ? [key] : [key, "berth-system/first-1"])
  })

  test("is looked at no more once its successor needs it no more", () => {
    const [key, has] = ["berth-system/second-1", taker({}, vmStatus())]
    expect(keysWokenBy({ key, old: has, current: has })).toEqual([key])
    expect(keysWokenBy({ key, current: idle() })).toEqual([key])
  })

  test("has no VM to end", () => {
    const observed = { job: "deleted", instance: { is: "found", vm: vm() }, isCounted: false } as const
    expect(decideAt(9000, record, observed)).toEqual({ actions: [], events: [] })
  })
})

describe("a Launch whose VM cleans up or waits", () => {
  const found = { instance: { is: "found", vm: vm() } } as const
  const { idleTime: _, ...cleaning } = WAITS
  const busy = idle(
    {},
    { phase: "finished", agent: cleaning, message: "the agent removes everything of the job from the VM" },
  )

  test.each<[string, StoredLaunch, number, string | undefined]>([
    ["it cleans up", busy, 259, undefined],
    ["it was not clean in time", busy, 261, "the agent finished: Succeeded; it was not clean within 120 s"],
    ["it waits", idle(), 439, undefined],
    ["its time is over", idle(), 441, "the agent finished: Succeeded; no job took it over within 300 s"],
    [
      "its agent leaves",
      idle({ leaveTime: time(120) }),
      121,
      "the agent finished: Succeeded; no job took it over within 300 s",
    ],
    ["it is unfit", idle({ unfit: "its disk is full" }), 121, "the agent finished: Succeeded; its disk is full"],
  ])("ends its VM when that has had its time: %s", (_, launch, seconds, message) => {
    // Berth asked for the end a while ago, so that the status says why.
    const ending = message === undefined ? {} : { terminateRequestedSecondsAgo: 20 }
    const decision = decideAt(seconds, launch, { ...found, ...ending })
    if (message === undefined) expect(decision).toMatchObject({ actions: [] })
    else expect(decision.status).toMatchObject({ phase: "terminating", message })
  })

  test("is looked at again when the time of its VM is over", () => {
    const { requeueAfter = 0 } = decideAt(200, written(idle(), { message: "the VM waits for another job" }), found)
    expect(200 + requeueAfter).toBe(441)
  })

  const endingVm = { state: "terminating", id: "vm-1", createTime: time(5) } as const
  const ending = idle({}, { phase: "terminating", message: "the Job was deleted", vm: endingVm })
  test.each<[string, StoredLaunch, number, Partial<LaunchObservation>, boolean]>([
    ["its time is over", idle(), 441, {}, true],
    ["it was not clean in time", busy, 261, {}, true],
    ["its job is deleted", idle(), 120, { job: "deleted" }, true],
    [
      "its job is deleted while it runs",
      idle({}, { phase: "running", agent: agentOf() }),
      120,
      { job: "deleted" },
      true,
    ],
    ["it is unfit", idle({ unfit: "its disk is full" }), 120, {}, false],
    ["it leaves", idle({ leaveTime: time(120) }), 121, {}, false],
    ["it is ended", { ...idle(), spec: { ...idle().spec, ended: true } }, 120, {}, false],
    ["its end is written", ending, 450, {}, false],
  ])(
    "writes the end of a VM that another Launch could have by now, before it asks for it: %s",
    (_, launch, seconds, changes, isWritten) => {
      const { status, actions } = decideAt(seconds, launch, { ...found, ...changes })
      expect(actions).toEqual([{ do: "terminate", vmId: "vm-1" }])
      expect(status?.phase).toBe(isWritten ? "terminating" : undefined)
    },
  )

  test("stays at its end, with the first reason, even if the clock is set back", () => {
    const { status } = decideAt(441, idle(), found)
    const ending = written(idle(), status ?? {})
    const again = decideAt(130, ending, { ...found, terminateRequestedSecondsAgo: 70 })
    expect(again).toMatchObject({ actions: [{ do: "terminate", vmId: "vm-1" }] })
    expect(again.status).toBeUndefined()
  })

  test("loses no VM that ends itself, and pays for the time that it waited", () => {
    const instance = { is: "found", vm: vm({ state: "terminated", terminationTime: time(305) }) } as const
    const { status, events } = decideAt(320, idle(), { instance })
    expect(events).toEqual([])
    expect(status).toMatchObject({ phase: "terminated", message: "the VM was terminated", costUsd: 3, idleUsd: 1.95 })
    expect(status?.loss).toBeUndefined()
  })

  test.each<[string, StoredLaunch, number]>([
    ["it waits", idle(), 110 + 300 + 60],
    ["it leaves", idle({ leaveTime: time(250) }), 250 + 60],
    ["it cleans up", busy, 110 + 120 + 60],
    [
      "it is unfit",
      idle({ unfit: "full", lastHeartbeatTime: time(130) }, { agent: { ...cleaning, unfit: "full" } }),
      110 + 60,
    ],
  ])("is billed for as long as its VM may have waited, if no list shows its end: %s", (_, launch, end) => {
    const { status } = decideAt(9000, launch, { instance: { is: "notFound" } })
    expect(status?.vm?.terminationTime).toBe(time(end))
  })
})

describe("the VM of a Launch whose cloud rejects the credentials", () => {
  test("may run until its dead-man switch ends it, under any Launch", () => {
    const [boot, end] = [5, 5 + 60 + 91_800 + 300]
    const running = { state: "running", id: "vm-1", bootTime: time(boot), createTime: time(125) } as const
    const launch = taker({}, vmStatus({ vm: running, agent: agentOf() }))
    expect(abandonedStatus(launch, at(end - 1), LAUNCH_DEFAULTS)).toBeUndefined()
    const status = abandonedStatus(launch, at(end), LAUNCH_DEFAULTS)
    expect(status).toMatchObject({ phase: "terminated", vm: { createTime: time(125), terminationTime: time(end) } })
  })
})
