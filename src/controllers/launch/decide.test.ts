import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, time, vmStatus } from "../../../test/controllers/builders.ts"
import type { LaunchStatus, StoredLaunch } from "../../apis/launch.ts"
import { OutcomeUnknownError, RegionError, TransientError } from "../../cloud/errors.ts"
import type { Vm } from "../../cloud/provider.ts"
import { KubeError } from "../../kube/errors.ts"
import { NotLeaderError } from "../fence.ts"
import { decide, givenUp, type LaunchDecision, type LaunchObservation } from "./decide.ts"
import { standingOf } from "./gather.ts"
import { LAUNCH_DEFAULTS } from "./settings.ts"
import { silenceOf } from "./unanswered.ts"

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
    ["made when its Job had ended", {}, { job: "recorded" as const }],
  ])("%s: an outstanding call is replayed first; where there surely was none, it is over", (_, changes, observed) => {
    const launch = launchOf(job, 1, changes)
    expect(decideAt(2, launch, { ...observed, outstanding: true })).toEqual({ actions: [{ do: "launch" }], events: [] })
    expect(decideAt(2, launch, observed)).toMatchObject({ status: { phase: "terminated", costUsd: 0 }, actions: [] })
  })

  test("a cloud that nobody may ask any more is given up only after the lifetime", () => {
    const since = (kind: "Credentials" | "Unavailable", seconds: number) =>
      launchOf(job, 1, { status: { unanswered: { class: kind, message: "no", since: time(seconds) } } })
    const given = (launch: StoredLaunch, seconds: number) =>
      givenUp(launch, at(seconds + 900 + 5400 + 300), LAUNCH_DEFAULTS)
    expect(given(since("Credentials", 1000), 999)).toBeUndefined()
    const status = given(since("Credentials", 1000), 1000)
    expect(status).toMatchObject({ phase: "terminated", loss: { reason: "VMLost" } })
    expect(status?.message).toContain("what it cost is not known")
    expect(status?.costUsd).toBeUndefined()
    // A call that may have been heard makes a VM whenever it was.
    expect(given(since("Unavailable", 0), 99_999)).toBeUndefined()
    expect(given(launchOf(job), 99_999)).toBeUndefined()
  })
})

describe("a cloud that gives no answer", () => {
  const attempts = { class: "Unavailable" as const, message: "out of order", since: at(10) }
  const unanswered = { class: "Unavailable" as const, message: "out of order", since: time(10) }
  const silent = launchOf(job, 1, { status: { phase: "requested", message: "", unanswered } })

  test("is asked on; why is told once it has lasted, with when it began", () => {
    expect(decideAt(24, launchOf(job), { attempts })).toEqual({ actions: [{ do: "launch" }], events: [] })
    const decision = decideAt(25, launchOf(job), { attempts })
    expect(decision.actions).toEqual([{ do: "launch" }])
    expect(decision.status).toEqual({ phase: "requested", message: "no VM yet: out of order", unanswered })
    expect(decideAt(900, silent, { attempts }).status).toBeUndefined()
  })

  test("words that change are told once in a while, a change of class at once and as a new beginning", () => {
    const other = { ...attempts, message: "out of order (request 2)", told: at(30) }
    expect(decideAt(89, silent, { attempts: other }).status).toBeUndefined()
    expect(decideAt(90, silent, { attempts: other }).status?.unanswered).toEqual({
      ...unanswered,
      message: other.message,
    })
    const refused = { class: "Credentials" as const, message: "no", since: at(40), told: at(50) }
    expect(decideAt(60, silent, { attempts: refused }).status?.unanswered).toEqual({
      ...refused,
      since: time(40),
      told: undefined,
    })
    // A leader that has just begun goes on counting where the one before it was.
    expect(decideAt(500, silent, { attempts: { ...attempts, message: "still", since: at(400) } }).status).toMatchObject(
      {
        unanswered: { message: "still", since: time(10) },
      },
    )
  })

  test("in all the time that a boot may take has refused by that; one that was ended sooner has shown nothing", () => {
    const ended = launchOf(job, 1, { ...silent, spec: { ...silent.spec, ended: true } })
    const decision = decideAt(910, ended, { attempts })
    expect(decision.status).toMatchObject({
      phase: "refused",
      refusal: { class: "Unavailable", message: "out of order", time: time(910) },
      costUsd: 0,
    })
    expect(decision.actions).toEqual([])
    expect(decision.events.map(({ reason }) => reason)).toEqual(["Refused"])
    expect(decideAt(909, ended, { attempts }).status).toMatchObject({ phase: "terminated", costUsd: 0 })
    expect(decideAt(910, ended, { attempts, outstanding: true }).actions).toEqual([{ do: "launch" }])
  })

  test("a Launch whose turn has not come for longer than any VM lives still gets its VM", () => {
    expect(decideAt(99_999, launchOf(job))).toEqual({ actions: [{ do: "launch" }], events: [] })
  })

  test.each<[unknown, ReturnType<typeof silenceOf>]>([
    [new TransientError("Throttled", "slow down"), { class: "Unavailable", message: "slow down" }],
    [new OutcomeUnknownError("Timeout", "no answer"), { class: "Unavailable", message: "no answer" }],
    [new RegionError("AuthFailure", "not here"), { class: "Credentials", message: "not here" }],
    [
      new TypeError("x is undefined"),
      { class: "Unavailable", message: "a fault of Berth's own (TypeError), which the operator's log tells more of" },
    ],
    [new NotLeaderError("another leads"), undefined],
    [new KubeError({ code: 503, reason: "ServiceUnavailable", message: "later" }), undefined],
  ])("%s is told as %o", (error, told) => {
    expect(silenceOf(error)).toEqual(told)
  })
})

describe("what a VM has cost whose end nobody saw", () => {
  const absent = { sighting: { seen: "absent" } as const }
  const morning = 12 * 3600
  const finish = { reason: "Succeeded", time: time(600) } as const
  const bill = (status: LaunchStatus, observed: Partial<LaunchObservation> = absent) =>
    decideAt(morning, launchOf(job, 1, { status }), observed).status

  test("is reckoned until a minute after the last word of an agent that had finished", () => {
    const agent = agentOf({ startTime: time(30), finish, lastHeartbeatTime: time(700) })
    expect(bill(vmStatus({ agent }))).toMatchObject({ vm: { terminationTime: time(760) }, costUsd: 0.125833 })
    // Its clock may be wrong, or nobody have taken what it told.
    const early = agentOf({ ...agent, finish: { ...finish, time: time(-9999) } })
    expect(bill(vmStatus({ agent: early }))).toMatchObject({ vm: { terminationTime: time(760) } })
    const late = agentOf({ ...agent, finish: { ...finish, time: time(99_999) } })
    expect(bill(vmStatus({ agent: late }))).toMatchObject({ vm: { terminationTime: time(morning) } })
  })

  test("is reckoned until the end of its lifetime at most", () => {
    const end = 5 + 900 + 5400 + 300
    expect(bill(running)).toMatchObject({ vm: { terminationTime: time(end) }, costUsd: 1.1 })
  })

  test("is what the cloud says, or as long as it was seen", () => {
    const agent = agentOf({ finish, lastHeartbeatTime: time(600) })
    const lastSeen = at(morning - 100)
    expect(bill(vmStatus({ agent }), { sighting: { seen: "absent", lastSeen } })).toMatchObject({
      vm: { terminationTime: time(morning - 85) },
    })
    const told = vm({ state: "terminated", terminationTime: time(900) })
    expect(bill(vmStatus({ agent }), { sighting: { seen: "present", vm: told } })).toMatchObject({
      vm: { terminationTime: time(900) },
    })
  })

  test("where nobody may ask the cloud any more is as much as it can be, and that is said", () => {
    const given = (status: LaunchStatus) => givenUp(launchOf(job, 1, { status }), at(morning), LAUNCH_DEFAULTS)
    const end = time(5 + 900 + 5400 + 300)
    expect(given(running)).toMatchObject({
      phase: "terminated",
      vm: { state: "terminated", id: "vm-1", terminationTime: end },
      costUsd: 1.1,
      message: `the cloud could not be asked; the VM has ended itself, and counts as billed until ${end}`,
    })
    const finished = vmStatus({ agent: agentOf({ finish, lastHeartbeatTime: time(600) }) })
    expect(given(finished)).toMatchObject({ vm: { terminationTime: time(660) } })
  })
})

describe("a VM that is wanted", () => {
  test("the agent's phases are written when they last", () => {
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(20) }) }) })
    expect(decideAt(21, launch).status).toBeUndefined()
    expect(decideAt(21, launch).requeueAfter).toBe(14)
    expect(decideAt(35, launch).status).toMatchObject({ phase: "registered", vm: { state: "running" } })
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

  test("that a list doesn't show is not gone as long as its agent is heard: lists may be wrong", () => {
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ lastHeartbeatTime: time(150) }) }) })
    const absent = { sighting: { seen: "absent" } as const }
    expect(decideAt(185, launch, absent)).toEqual({ actions: [], events: [], requeueAfter: 55 })
    expect(decideAt(240, launch, absent).status).toMatchObject({ phase: "terminated", loss: { reason: "VMLost" } })
    // Nobody's clock holds it up for longer.
    expect(decideAt(-9999, launch, absent).requeueAfter).toBe(90)
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
    [
      "it can run no container",
      launchOf(job, 1, {
        status: vmStatus({ bootFailure: { reason: "EngineUnavailable", message: "none", time: time(50) } }),
      }),
      {},
      undefined,
    ],
    ["its Job is gone", launchOf(job, 1, { status: running }), { job: "gone" }, undefined],
    ["its Job had ended", launchOf(job, 1, { status: running }), { job: "recorded" }, undefined],
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
    const asked = decideAt(75, launch, { ...observed, terminateAskedSecondsAgo: 15 })
    expect(asked.status).toMatchObject({ phase: "terminating", vm: { state: "terminating" } })
    expect(asked.actions).toEqual([])
    expect(decideAt(120, launch, { ...observed, terminateAskedSecondsAgo: 60 }).actions).toHaveLength(1)
    const gone = decideAt(125, launch, { ...observed, sighting: { seen: "absent" } })
    const cost = launch.status?.agent?.finish === undefined ? 0.02 : 0.0175
    expect(gone.status).toMatchObject({ phase: "terminated", costUsd: cost })
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

  test("stays though it is deleted until its job counts it: its number is never given twice", () => {
    const deleted = launchOf(job, 1, { ...over, metadata: { deletionTimestamp: time(101) } })
    const unaware = standingOf(job, deleted)
    expect(unaware).toBe("unaware")
    expect(decideAt(102, deleted, { job: unaware }).actions).toEqual([])
    const counting = jobOf({ status: { phase: "queued", launches: { count: 1 } } })
    expect(standingOf(counting, deleted)).toBe("alive")
    expect(decideAt(102, deleted, { job: "gone" }).actions).toEqual([{ do: "dropFinalizer" }])
  })
})
