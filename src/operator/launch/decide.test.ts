import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, offerOf, time, vmStatus } from "../../../test/harness/builders.ts"
import type { Vm } from "../../clouds/cloud.ts"
import type { LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { LABELS } from "../../core/apis/meta.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { abandonedStatus, decide, type LaunchDecision, type LaunchObservation } from "./decide.ts"
import { readJobState } from "./gather.ts"
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
    instance: { is: "unknown" },
    inFlight: false,
    heartbeatTimedOut: false,
    job: "active",
    isCounted: true,
    ...changes,
  }
  return decide(launch, observed, at(seconds), LAUNCH_DEFAULTS)
}

const running = vmStatus({ phase: "running", agent: agentOf({ startTime: time(30) }) })

describe("a Launch before a VM is known", () => {
  test("gets its finalizer before any call", () => {
    const bare = launchOf(job, 1, { metadata: { finalizers: [] } })
    expect(decideAt(0, bare).actions).toEqual([{ do: "addFinalizer" }])
    expect(decideAt(0, launchOf(job)).actions).toEqual([{ do: "createInstance" }])
  })

  test.each([
    ["ended", { spec: { ended: true } }, {}],
    ["deleted", { metadata: { deletionTimestamp: time(1) } }, {}],
    ["without its Job", {}, { job: "deleted" as const }],
    ["created after its Job had ended", {}, { job: "settled" as const }],
  ])("repeats a call without an answer first, and ends if there is none: %s", (_, changes, observed) => {
    const launch = launchOf(job, 1, changes)
    expect(decideAt(2, launch, { ...observed, inFlight: true })).toEqual({
      actions: [{ do: "createInstance" }],
      events: [],
    })
    expect(decideAt(2, launch, observed)).toMatchObject({ status: { phase: "terminated", costUsd: 0 }, actions: [] })
  })

  test("is abandoned only after the lifetime if the cloud rejects the credentials", () => {
    const since = (kind: "Credentials" | "Unavailable", seconds: number) =>
      launchOf(job, 1, { status: { unanswered: { class: kind, message: "no", since: time(seconds) } } })
    const given = (launch: StoredLaunch, seconds: number) =>
      abandonedStatus(launch, at(seconds + 900 + 5400 + 300), LAUNCH_DEFAULTS)
    expect(given(since("Credentials", 1000), 999)).toBeUndefined()
    const status = given(since("Credentials", 1000), 1000)
    expect(status).toMatchObject({ phase: "terminated", loss: { reason: "VMLost" } })
    expect(status?.message).toContain("its cost is unknown")
    expect(status?.costUsd).toBeUndefined()
    // A call without an answer may have created a VM at any time.
    expect(given(since("Unavailable", 0), 99_999)).toBeUndefined()
    expect(given(launchOf(job), 99_999)).toBeUndefined()
  })
})

describe("a VM that sent a message before its creation was recorded", () => {
  const agent = agentOf({ lastHeartbeatTime: time(500) })
  const failure = { reason: "GatewayUnreachable", message: "no way", time: time(20) } as const
  const absent = { instance: { is: "notFound" } as const }
  const heard: [string, LaunchStatus][] = [
    ["its agent has registered", { phase: "requested", agent }],
    ["it has reported a failed boot", { phase: "requested", bootFailure: failure }],
  ]

  test.each(heard)("is never created again if %s", (_, status) => {
    for (const spec of [{}, { ended: true }]) {
      const launch = launchOf(job, 1, { spec, status })
      const sights = [{ is: "unknown" }, { is: "notFound" }, { is: "found", vm: vm() }] as const
      for (const instance of sights) {
        for (const inFlight of [true, false]) {
          const { actions } = decideAt(9000, launch, { instance, inFlight })
          expect(actions.map((action) => action.do)).not.toContain("createInstance")
        }
      }
      expect(decideAt(30, launch, { inFlight: true })).toMatchObject({ actions: [], requeueAfter: 6591 })
      const found = vm({ state: "terminated" })
      expect(decideAt(30, launch, { instance: { is: "found", vm: found } }).actions).toEqual([
        { do: "recordInstance", vm: found },
      ])
    }
  })

  test.each(heard)("is billed from that message if no list shows it: %s", (_, status) => {
    const ended = launchOf(job, 1, { spec: { ended: true }, status })
    const billed = decideAt(9000, ended, { ...absent, inFlight: true })
    expect(billed.actions).toEqual([])
    expect(billed.status).toMatchObject({ phase: "terminated", vm: { state: "terminated", createTime: time(20) } })
    expect(billed.status?.message).toContain(`is billed from its first message at ${time(20)}`)
    expect(billed.status?.costUsd).toBeGreaterThan(0)
  })

  test("costs what it ran since then: the difference from the cloud's bill is the time that it booted", () => {
    const finish = { reason: "Succeeded", time: time(500) } as const
    const launch = launchOf(job, 1, { status: { phase: "requested", agent: agentOf({ ...agent, finish }) } })
    // It was created at 5 s and registered at 20 s.
    const recorded = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ ...agent, finish }) }) })
    const [known, unrecorded] = [recorded, launch].map((each) => decideAt(9000, each, absent).status?.costUsd ?? 0)
    expect(((known ?? 0) - (unrecorded ?? 0)) * 3600).toBeCloseTo(15 * 0.6, 2)
  })

  test("is lost for its job if it did not finish, and a fresh heartbeat outweighs a list without it", () => {
    const launch = launchOf(job, 1, { status: { phase: "requested", agent } })
    expect(decideAt(560, launch, absent)).toEqual({ actions: [], events: [], requeueAfter: 30 })
    expect(decideAt(590, launch, absent).status).toMatchObject({ phase: "terminated", loss: { reason: "VMLost" } })
  })

  test("is listed again after its lifetime, and billed for all of it if the cloud rejects the credentials", () => {
    const launch = launchOf(job, 1, { status: { phase: "requested", agent } })
    const end = 20 + 900 + 5400 + 300
    expect(decideAt(end - 1, launch).actions).toEqual([])
    expect(abandonedStatus(launch, at(end - 1), LAUNCH_DEFAULTS)).toBeUndefined()
    expect(decideAt(end, launch)).toMatchObject({ actions: [{ do: "findInstance" }], requeueAfter: 60 })
    const status = abandonedStatus(launch, at(end), LAUNCH_DEFAULTS)
    expect(status).toMatchObject({ phase: "terminated", vm: { createTime: time(20), terminationTime: time(end) } })
    expect(status?.costUsd).toBeCloseTo(1.1)
  })
})

describe("the console of a VM without an agent", () => {
  const booting = launchOf(job, 1, { status: vmStatus() })
  const found = { instance: { is: "found", vm: vm() } } as const
  const gone = { instance: { is: "found", vm: vm({ state: "terminated" }) } } as const
  const read = (reading: string) => ({ actions: [{ do: "readConsole", vmId: "vm-1", reading }], requeueAfter: 0 })

  test("is read once after a while, and once at the VM's unexpected end", () => {
    const early = decideAt(154, booting, found)
    expect(early.actions).toEqual([])
    expect(early.requeueAfter).toBeLessThanOrEqual(2)
    expect(decideAt(156, booting, found)).toMatchObject(read("booting"))
    expect(decideAt(156, booting, { ...found, consoleRead: "booting" }).actions).toEqual([])
    expect(decideAt(30, booting, gone)).toMatchObject(read("ended"))
    expect(decideAt(300, booting, { ...gone, consoleRead: "booting" })).toMatchObject(read("ended"))
    const { status } = decideAt(300, booting, { ...gone, consoleRead: "ended" })
    expect(status).toMatchObject({ phase: "terminated", loss: { reason: "VMLost" } })
    expect(status?.message).toContain("its VM never reached https://")
  })

  test("is read at the boot deadline, before the VM is terminated", () => {
    const ended = launchOf(job, 1, { spec: { ended: true }, status: vmStatus() })
    const { bootDeadlineSeconds } = ended.spec
    const late = 6 + bootDeadlineSeconds
    expect(decideAt(late, ended, { ...found, consoleRead: "booting" })).toMatchObject(read("ended"))
    expect(decideAt(late, ended, { ...found, consoleRead: "ended" }).actions).toEqual([
      { do: "terminate", vmId: "vm-1" },
    ])
    // A cancelled job ends its Launch at any time.
    expect(decideAt(100, ended, found).actions).toEqual([{ do: "terminate", vmId: "vm-1" }])
  })

  test.each([
    ["its agent has registered", { ...vmStatus(), agent: agentOf() }, {}],
    ["it has reported a failure", { ...vmStatus(), bootFailure: failureAt(40) }, {}],
    ["its console was read", { ...vmStatus(), consoleFailure: failureAt(40) }, {}],
    ["its job was deleted", vmStatus(), { job: "deleted" as const }],
    ["its job has ended", vmStatus(), { job: "ending" as const }],
  ])("is not read if %s", (_, status, observed) => {
    const launch = launchOf(job, 1, { status })
    for (const instance of [found, gone]) {
      const { actions } = decideAt(300, launch, { ...instance, ...observed })
      expect(actions.map((action) => action.do)).not.toContain("readConsole")
    }
  })

  test("is not read for a VM that the cloud has taken back", () => {
    const preempted = { instance: { is: "found", vm: vm({ state: "terminated", preempted: true }) } } as const
    expect(decideAt(300, booting, preempted).status?.loss?.reason).toBe("Preempted")
  })

  test("ends the VM with its words, which count as a failed boot", () => {
    const launch = launchOf(job, 1, { status: { ...vmStatus(), consoleFailure: failureAt(250) } })
    expect(decideAt(251, launch, found).actions).toEqual([{ do: "terminate", vmId: "vm-1" }])
    const { status } = decideAt(260, launch, gone)
    expect(status).toMatchObject({ phase: "terminated", consoleFailure: { reason: "GatewayUnreachable" } })
    expect(status?.loss).toBeUndefined()
  })

  function failureAt(seconds: number) {
    return { reason: "GatewayUnreachable", message: "no way", time: time(seconds) } as const
  }
})

describe("a cloud that does not answer", () => {
  const launchError = { class: "Unavailable" as const, message: "out of order", since: at(10) }
  const unanswered = { class: "Unavailable" as const, message: "out of order", since: time(10) }
  const silent = launchOf(job, 1, { status: { phase: "requested", message: "", unanswered } })

  test("is called again; the error is written after it has lasted, with its first time", () => {
    expect(decideAt(24, launchOf(job), { launchError })).toEqual({ actions: [{ do: "createInstance" }], events: [] })
    const decision = decideAt(25, launchOf(job), { launchError })
    expect(decision.actions).toEqual([{ do: "createInstance" }])
    expect(decision.status).toEqual({ phase: "requested", message: "no VM yet: out of order", unanswered })
    expect(decideAt(900, silent, { launchError }).status).toBeUndefined()
  })

  test("a new text of the error is written at intervals, a new class at once with a new first time", () => {
    const other = { ...launchError, message: "out of order (request 2)", lastReported: at(30) }
    expect(decideAt(89, silent, { launchError: other }).status).toBeUndefined()
    expect(decideAt(90, silent, { launchError: other }).status?.unanswered).toEqual({
      ...unanswered,
      message: other.message,
    })
    const refused = { class: "Credentials" as const, message: "no", since: at(40), lastReported: at(50) }
    expect(decideAt(60, silent, { launchError: refused }).status?.unanswered).toEqual({
      ...refused,
      since: time(40),
      lastReported: undefined,
    })
    // A new leader keeps the first time of its predecessor.
    expect(
      decideAt(500, silent, { launchError: { ...launchError, message: "still", since: at(400) } }).status,
    ).toMatchObject({
      unanswered: { message: "still", since: time(10) },
    })
  })

  test("counts as a rejection after the whole boot deadline, but not if the Launch ended before", () => {
    const ended = launchOf(job, 1, { ...silent, spec: { ...silent.spec, ended: true } })
    const decision = decideAt(910, ended, { launchError })
    expect(decision.status).toMatchObject({
      phase: "refused",
      refusal: { class: "Unavailable", message: "out of order", time: time(910) },
      costUsd: 0,
    })
    expect(decision.actions).toEqual([])
    expect(decision.events.map(({ reason }) => reason)).toEqual(["Refused"])
    expect(decideAt(909, ended, { launchError }).status).toMatchObject({ phase: "terminated", costUsd: 0 })
    expect(decideAt(910, ended, { launchError, inFlight: true }).actions).toEqual([{ do: "createInstance" }])
  })

  test("a Launch whose create call is delayed beyond any VM's lifetime still gets its VM", () => {
    expect(decideAt(99_999, launchOf(job))).toEqual({ actions: [{ do: "createInstance" }], events: [] })
  })
})

describe("the cost of a VM whose end was not observed", () => {
  const absent = { instance: { is: "notFound" } as const }
  const morning = 12 * 3600
  const finish = { reason: "Succeeded", time: time(600) } as const
  const bill = (status: LaunchStatus, observed: Partial<LaunchObservation> = absent) =>
    decideAt(morning, launchOf(job, 1, { status }), observed).status

  test("counts until a minute after the last report of an agent that had finished", () => {
    const agent = agentOf({ startTime: time(30), finish, lastHeartbeatTime: time(700) })
    expect(bill(vmStatus({ agent }))).toMatchObject({ vm: { terminationTime: time(760) }, costUsd: 0.125833 })
    // Its clock may be wrong, or the gateway may have accepted its report late.
    const early = agentOf({ ...agent, finish: { ...finish, time: time(-9999) } })
    expect(bill(vmStatus({ agent: early }))).toMatchObject({ vm: { terminationTime: time(760) } })
    const late = agentOf({ ...agent, finish: { ...finish, time: time(99_999) } })
    expect(bill(vmStatus({ agent: late }))).toMatchObject({ vm: { terminationTime: time(morning) } })
  })

  test("counts until the end of its lifetime at most", () => {
    const end = 5 + 900 + 5400 + 300
    expect(bill(running)).toMatchObject({ vm: { terminationTime: time(end) }, costUsd: 1.1 })
  })

  test("counts until the cloud's termination time, or until the VM was last listed", () => {
    const agent = agentOf({ finish, lastHeartbeatTime: time(600) })
    const lastSeen = at(morning - 100)
    expect(bill(vmStatus({ agent }), { instance: { is: "notFound", lastSeen } })).toMatchObject({
      vm: { terminationTime: time(morning - 85) },
    })
    const listed = vm({ state: "terminated", terminationTime: time(900) })
    expect(bill(vmStatus({ agent }), { instance: { is: "found", vm: listed } })).toMatchObject({
      vm: { terminationTime: time(900) },
    })
  })

  test("counts until the last sign of life of a VM that ended while no operator ran", () => {
    const agent = agentOf({ lastHeartbeatTime: time(1000) })
    expect(bill(vmStatus({ agent }))).toMatchObject({ vm: { terminationTime: time(1090) }, loss: { reason: "VMLost" } })
    const lastSeen = at(2000)
    expect(bill(vmStatus({ agent }), { instance: { is: "notFound", lastSeen } })).toMatchObject({
      vm: { terminationTime: time(2015) },
    })
    // A wrong clock of the gateway counts no further than the longest life.
    const ahead = agentOf({ lastHeartbeatTime: time(morning - 100) })
    expect(bill(vmStatus({ agent: ahead }))).toMatchObject({ vm: { terminationTime: time(5 + 900 + 5400 + 300) } })
  })

  test("is 0 for a spot VM of AWS that AWS preempted in its first hour", () => {
    const cost = (
      cloud: string,
      seconds: number,
      changes: Partial<Vm> = {},
      provisioning: Offer["provisioning"] = "spot",
    ) => {
      const launch = launchOf(job, 1, { spec: { offer: offerOf({ cloud, provisioning }) }, status: vmStatus() })
      const ended = vm({ state: "terminated", terminationTime: time(seconds), preempted: true, ...changes })
      return decideAt(seconds + 5, launch, { instance: { is: "found", vm: ended }, consoleRead: "ended" }).status
    }
    expect(cost("aws", 3600)).toMatchObject({ costUsd: 0, loss: { reason: "Preempted" } })
    expect(cost("aws", 3605)?.costUsd).toBeGreaterThan(0)
    expect(cost("aws", 3600, { preempted: false })?.costUsd).toBeGreaterThan(0)
    expect(cost("gcp", 3600)?.costUsd).toBeGreaterThan(0)
    expect(cost("aws", 3600, {}, "onDemand")?.costUsd).toBeGreaterThan(0)
  })

  test("is the sum of the prices in the Launch. AWS charges disk and address of a preempted VM", () => {
    const hourlyPrices = { machineUsd: 0.36, diskUsd: 0.036, addressUsd: 0.0036 }
    const bill = (preempted: boolean) => {
      const offer = offerOf({ cloud: "aws", provisioning: "spot" })
      const launch = launchOf(job, 1, { spec: { offer, hourlyPrices }, status: vmStatus() })
      const ended = vm({ state: "terminated", terminationTime: time(105), preempted })
      return decideAt(110, launch, { instance: { is: "found", vm: ended }, consoleRead: "ended" }).status
    }
    const parts = { diskUsd: 0.001, addressUsd: 0.0001 }
    expect(bill(false)).toMatchObject({ costUsd: 0.0111, cost: { machineUsd: 0.01, ...parts } })
    expect(bill(true)).toMatchObject({ costUsd: 0.0011, cost: { machineUsd: 0, ...parts } })
  })

  test("is the maximum if the cloud rejects the credentials, and the message says so", () => {
    const given = (status: LaunchStatus) => abandonedStatus(launchOf(job, 1, { status }), at(morning), LAUNCH_DEFAULTS)
    const end = time(5 + 900 + 5400 + 300)
    expect(given(running)).toMatchObject({
      phase: "terminated",
      vm: { state: "terminated", id: "vm-1", terminationTime: end },
      costUsd: 1.1,
      message: `the cloud rejects the credentials; the VM has ended by its lifetime and is billed until ${end}`,
    })
    const finished = vmStatus({ agent: agentOf({ finish, lastHeartbeatTime: time(600) }) })
    expect(given(finished)).toMatchObject({ vm: { terminationTime: time(660) } })
  })
})

describe("a VM that is needed", () => {
  test("has its agent's phases written after they have lasted", () => {
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(20) }) }) })
    expect(decideAt(21, launch).status).toBeUndefined()
    expect(decideAt(21, launch).requeueAfter).toBe(14)
    expect(decideAt(35, launch).status).toMatchObject({ phase: "registered", vm: { state: "running" } })
  })

  test("gets its address in the status when the cloud lists it", () => {
    const launch = launchOf(job, 1, { status: vmStatus() })
    expect(decideAt(6, launch, { instance: { is: "found", vm: vm({ ipAddress: "10.0.0.7" }) } }).status).toMatchObject({
      vm: { state: "booting", ipAddress: "10.0.0.7" },
    })
  })

  const spot = offerOf({ provisioning: "spot" })

  test.each<[string, LaunchObservation["instance"], LaunchStatus, string]>([
    ["missing in the list", { is: "notFound" }, running, "VMLost"],
    ["terminated by the cloud", { is: "found", vm: vm({ state: "terminated" }) }, running, "VMLost"],
    ["preempted", { is: "found", vm: vm({ state: "terminated", preempted: true }) }, running, "Preempted"],
    [
      "missing after a preemption notice",
      { is: "notFound" },
      vmStatus({ agent: agentOf({ preemptionNotice: time(40) }) }),
      "Preempted",
    ],
  ])("is lost, and billed until then: %s", (_, instance, status, reason) => {
    const decision = decideAt(185, launchOf(job, 1, { spec: { offer: spot }, status }), { instance })
    expect(decision.status).toMatchObject({
      phase: "terminated",
      loss: { reason },
      vm: { state: "terminated", terminationTime: time(185) },
      costUsd: 0.03,
    })
    expect(decision.actions).toEqual([])
    expect(decision.events.map((event) => event.reason)).toEqual([reason])
  })

  test("is lost, not preempted, if it is on demand, whatever its agent announced", () => {
    const status = vmStatus({ agent: agentOf({ preemptionNotice: time(40) }) })
    const decision = decideAt(185, launchOf(job, 1, { status }), { instance: { is: "notFound" } })
    expect(decision.status?.loss?.reason).toBe("VMLost")
  })

  test("is not lost while its agent sends heartbeats, though a list lacks it: lists may be wrong", () => {
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ lastHeartbeatTime: time(150) }) }) })
    const absent = { instance: { is: "notFound" } as const }
    expect(decideAt(185, launch, absent)).toEqual({ actions: [], events: [], requeueAfter: 55 })
    expect(decideAt(240, launch, absent).status).toMatchObject({ phase: "terminated", loss: { reason: "VMLost" } })
    // A wrong clock delays the loss by no more than that.
    expect(decideAt(-9999, launch, absent).requeueAfter).toBe(90)
  })

  test("is not lost if it was not listed yet", () => {
    expect(decideAt(185, launchOf(job, 1, { status: running })).actions).toEqual([])
  })
})

describe("a VM that must end", () => {
  test.each<[string, StoredLaunch, Partial<LaunchObservation>, string | undefined]>([
    ["ended", launchOf(job, 1, { spec: { ended: true }, status: running }), {}, undefined],
    ["deleted", launchOf(job, 1, { metadata: { deletionTimestamp: time(1) }, status: running }), {}, undefined],
    [
      "finished",
      launchOf(job, 1, { status: vmStatus({ agent: agentOf({ finish: { reason: "Succeeded", time: time(50) } }) }) }),
      {},
      undefined,
    ],
    [
      "it can't run containers",
      launchOf(job, 1, {
        status: vmStatus({ bootFailure: { reason: "EngineUnavailable", message: "none", time: time(50) } }),
      }),
      {},
      undefined,
    ],
    ["its Job is deleted", launchOf(job, 1, { status: running }), { job: "deleted" }, undefined],
    ["its Job had ended", launchOf(job, 1, { status: running }), { job: "settled" }, undefined],
    [
      "a second key registered",
      launchOf(job, 1, { status: vmStatus({ agent: agentOf({ conflictTime: time(50) }) }) }),
      {},
      "KeyConflict",
    ],
    ["silent", launchOf(job, 1, { status: running }), { heartbeatTimedOut: true }, "Silent"],
  ])("is terminated: %s", (_, launch, observed, loss) => {
    const decision = decideAt(60, launch, observed)
    expect(decision.actions).toEqual([{ do: "terminate", vmId: "vm-1" }])
    expect(decision.status?.loss?.reason).toBe(loss)
    // A repeated call waits, and the status shows the first one.
    const requested = decideAt(75, launch, { ...observed, terminateRequestedSecondsAgo: 15 })
    expect(requested.status).toMatchObject({ phase: "terminating", vm: { state: "terminating" } })
    expect(requested.actions).toEqual([])
    expect(decideAt(120, launch, { ...observed, terminateRequestedSecondsAgo: 60 }).actions).toHaveLength(1)
    const deleted = decideAt(125, launch, { ...observed, instance: { is: "notFound" } })
    const cost = launch.status?.agent?.finish === undefined ? 0.02 : 0.0175
    expect(deleted.status).toMatchObject({ phase: "terminated", costUsd: cost })
    expect(deleted.status?.loss?.reason).toBe(loss)
  })

  test("is terminated if it exceeded its lifetime", () => {
    const launch = launchOf(job, 1, { status: running })
    expect(decideAt(5 + 900 + 5400 + 300, launch).actions).toEqual([])
    const decision = decideAt(5 + 900 + 5400 + 301, launch)
    expect(decision.actions).toEqual([{ do: "terminate", vmId: "vm-1" }])
    expect(decision.status?.loss?.reason).toBe("VMLost")
  })
})

test.each([
  ["two hours ahead", 3 * 3600, 600, []],
  ["an hour behind", -3600, 5 + 900 + 5400 + 301, [{ do: "terminate", vmId: "vm-1" }]],
])("the lifetime of a VM counts by its measured age: the clock is %s", (_, seconds, vmSeconds, actions) => {
  const decision = decideAt(seconds, launchOf(job, 1, { status: running }), { vmSeconds })
  expect(decision.actions).toEqual(actions)
  if (actions.length === 0) expect(decision.requeueAfter).toBe(900 + 5400 + 300 - vmSeconds + 1)
})

describe("the record of a Launch that is over", () => {
  const over = launchOf(job, 1, {
    status: vmStatus({
      phase: "terminated",
      vm: { state: "terminated", id: "vm-1", terminationTime: time(100) },
      costUsd: 1,
    }),
  })

  test("is kept while its Job needs it, then for the retention, then deleted", () => {
    const released = launchOf(job, 1, { ...over, metadata: { finalizers: [] } })
    expect(decideAt(99_999, released).actions).toEqual([])
    expect(decideAt(200, released, { job: "settled" })).toMatchObject({ actions: [], requeueAfter: 3500 })
    expect(decideAt(3700, released, { job: "settled" }).actions).toEqual([{ do: "delete" }])
    const labelled = launchOf(job, 1, { ...over, metadata: { finalizers: [], labels: { [LABELS.released]: "1" } } })
    expect(decideAt(3700, labelled, { job: "settled" })).toMatchObject({ actions: [], requeueAfter: 3600 })
  })

  test.each([{}, { deletionTimestamp: time(101) }])("keeps its finalizer until its cost is counted: %j", (metadata) => {
    const launch = launchOf(job, 1, { ...over, metadata })
    expect(decideAt(9999, launch, { job: "settled", isCounted: false }).actions).toEqual([])
    expect(decideAt(102, launch).actions).toEqual([{ do: "release", needed: true }])
    const ending = readJobState(jobOf({ status: { phase: "succeeded", launches: { count: 1 } } }), launch)
    expect(decideAt(102, launch, { job: ending }).actions).toEqual([])
    expect(decideAt(102, launch, { job: "settled" }).actions).toEqual([{ do: "release", needed: false }])
  })

  test("stays until its cost is counted, although someone has removed its finalizer", () => {
    const forced = launchOf(job, 1, { ...over, metadata: { finalizers: [] } })
    expect(decideAt(9999, forced, { job: "settled", isCounted: false }).actions).toEqual([])
  })

  test("keeps its finalizer until its Job counts it, so that its number is never used twice", () => {
    const deleted = launchOf(job, 1, { ...over, metadata: { deletionTimestamp: time(101) } })
    const unobserved = readJobState(job, deleted)
    expect(unobserved).toBe("unobserved")
    expect(decideAt(102, deleted, { job: unobserved }).actions).toEqual([])
    const counting = jobOf({ status: { phase: "queued", launches: { count: 1 } } })
    expect(readJobState(counting, deleted)).toBe("active")
    expect(decideAt(102, deleted, { job: "deleted" }).actions).toEqual([{ do: "release", needed: false }])
  })
})

describe("a VM for whose end there are several reasons", () => {
  const late = 40 * 24 * 3600
  const reasons: [why: string, status: LaunchStatus, launch: object, observed: Partial<LaunchObservation>][] = [
    ["the agent finished: Succeeded", { agent: agentOf({ finish: { reason: "Succeeded", time: time(9) } }) }, {}, {}],
    [
      "the VM cannot run containers: no Docker",
      { bootFailure: { reason: "EngineUnavailable", message: "no Docker", time: time(9) } },
      {},
      {},
    ],
    ["the job no longer needs this VM", {}, { spec: { ended: true } }, {}],
    ["lost before", { loss: { reason: "VMLost", message: "lost before", time: time(9) } }, {}, {}],
    ["the Launch is being deleted", {}, { metadata: { deletionTimestamp: time(9) } }, {}],
    ["the Job was deleted", {}, {}, { job: "deleted" }],
    ["a second key tried to register as its agent", { agent: agentOf({ conflictTime: time(9) }) }, {}, {}],
    ["no heartbeat from the agent since", {}, {}, { heartbeatTimedOut: true }],
    ["the VM exceeded its maximum lifetime of", {}, {}, {}],
  ]

  test.each(reasons.map(([why], index) => [why, index] as const))("reports first: %s", (why, index) => {
    const agent = {
      ...agentOf(),
      ...Object.assign({}, ...reasons.slice(index).map(([, status]) => status.agent ?? {})),
    }
    const rest = reasons.slice(index)
    const status = { ...Object.assign({}, ...rest.map(([, changes]) => changes)), agent } as LaunchStatus
    const changes = Object.assign({}, ...rest.map(([, , launch]) => launch)) as object
    const observed = Object.assign({}, ...rest.map(([, , , facts]) => facts)) as Partial<LaunchObservation>
    const launch = launchOf(job, 1, { ...changes, status: vmStatus({ ...status, phase: "running" }) })
    expect(decideAt(late, launch, { ...observed, terminateRequestedSecondsAgo: 15 }).status?.message).toMatch(
      new RegExp(`^${why}`),
    )
  })
})
