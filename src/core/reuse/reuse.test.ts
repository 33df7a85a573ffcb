import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, offerOf, time, vmStatus } from "../../../test/harness/builders.ts"
import {
  type AgentStatus,
  FINISH_REASONS,
  type FinishReason,
  type LaunchSpec,
  type LaunchStatus,
  type StoredLaunch,
} from "../apis/launch.ts"
import { LABELS } from "../apis/meta.ts"
import {
  availabilityOf,
  idlenessOf,
  idleSecondsLeft,
  isKept,
  mayHandOver,
  minimumBilledSecondsOf,
  reuseOf,
  vmLifetimeOf,
  vmNameOf,
  vmSince,
  whyNotTakeable,
} from "./reuse.ts"

const RUN = { image: "busybox", timeoutSeconds: 3600, reuse: { idleSeconds: 300 } }
const FINISH = { reason: "Succeeded", time: time(100) } as const
const VM = { state: "running", id: "vm-1", createTime: time(0) } as const
const FAILURE = { reason: "DiskFull", message: "full", time: time(50) } as const

interface Changes {
  agent?: Partial<AgentStatus>
  status?: Partial<LaunchStatus>
  spec?: Partial<LaunchSpec>
  metadata?: Partial<StoredLaunch["metadata"]>
}

/** Returns a Launch whose run has ended at 100 s, and whose VM waits since 110 s. */
function idle({ agent = {}, status = {}, spec = {}, metadata = {} }: Changes = {}): StoredLaunch {
  const told = agentOf({ finish: FINISH, lastHeartbeatTime: time(110), idleTime: time(110), ...agent })
  return launchOf(jobOf({ metadata: { uid: "first" } }), 1, {
    spec: { run: RUN, project: "team", connection: "own", account: "1", vmLifetimeSeconds: 91_800, ...spec },
    status: vmStatus({ phase: "idle", vm: VM, agent: told, ...status }),
    metadata,
  })
}

/** Returns a Launch of another job that takes over the VM. */
function taker(spec: Partial<LaunchSpec> = {}): StoredLaunch {
  const named = { takesOver: "first-1", root: "first-1", project: "team", connection: "own", account: "1" }
  return launchOf(jobOf({ metadata: { uid: "second" } }), 1, { spec: { run: RUN, ...named, ...spec } })
}

describe("the reuse of a job", () => {
  const inArray = { labels: { [LABELS.arrayUid]: "u" } }

  test.each([
    ["is its own", { idleSeconds: 60, key: "a" }, {}, {}, { idleSeconds: 60, key: "a" }],
    [
      "is its own, not the installation's default",
      { idleSeconds: 60 },
      {},
      { reuseIdleSeconds: 300 },
      { idleSeconds: 60 },
    ],
    ["is the installation's default", undefined, {}, { reuseIdleSeconds: 300 }, { idleSeconds: 300 }],
    ["is none without a default", undefined, {}, {}, undefined],
    ["is none for 0 s", { idleSeconds: 0 }, {}, {}, undefined],
    ["is none for 0 s, in spite of a default", { idleSeconds: 0, key: "a" }, {}, { reuseIdleSeconds: 300 }, undefined],
    ["is among the jobs of its array", { idleSeconds: 60 }, inArray, {}, { idleSeconds: 60, key: "array-u" }],
    ["is by its own key in an array", { idleSeconds: 60, key: "a" }, inArray, {}, { idleSeconds: 60, key: "a" }],
    [
      "is among the jobs of its array by default",
      undefined,
      inArray,
      { reuseIdleSeconds: 9 },
      { idleSeconds: 9, key: "array-u" },
    ],
  ])("%s", (_, reuse, metadata, byDefault, expected) => {
    expect(reuseOf({ metadata, spec: { image: "a", ...(reuse && { reuse }) } }, byDefault)).toEqual(expected)
  })
})

describe("the VM of a Launch after its job", () => {
  test("waits from the time that the gateway recorded, and is cleaned before", () => {
    expect(idlenessOf(idle())).toEqual({ is: "idle", since: time(110), seconds: 300 })
    const { idleTime: _, ...cleaning } = agentOf({ finish: FINISH, lastHeartbeatTime: time(105) })
    const busy = idle({ status: { agent: cleaning } })
    expect(idlenessOf(busy)).toEqual({ is: "cleaning", since: time(105), seconds: 120 })
    const { lastHeartbeatTime: __, ...mute } = cleaning
    expect(idlenessOf(idle({ status: { agent: mute } }))).toMatchObject({ since: time(100) })
  })

  test.each<[string, Changes]>([
    ["without reuse", { spec: { run: { image: "busybox", timeoutSeconds: 3600 } } }],
    ["before its finish is stored", { status: { agent: agentOf({ startTime: time(30) }) } }],
    ["once it is terminated", { status: { phase: "terminated" } }],
    ["once another Launch has it", { status: { phase: "handedOver", handedTo: "second-1" } }],
  ])("waits for none, and no one asks why: %s", (_, changes) => {
    expect(idlenessOf(idle(changes))).toEqual({ is: "none" })
    expect(isKept(idle(changes))).toBe(false)
  })

  test.each<[string, Changes, string]>([
    ["ended", { spec: { ended: true } }, "Berth ends this VM"],
    ["deleted", { metadata: { deletionTimestamp: time(120) } }, "Berth ends this VM"],
    ["being terminated", { status: { phase: "terminating" } }, "Berth ends this VM"],
    ["announced as preempted", { agent: { preemptionNotice: time(120) } }, "the cloud takes this VM back"],
    ["lost", { status: { loss: { reason: "Silent", message: "", time: time(120) } } }, "this VM is not trusted"],
    ["of a failed boot", { status: { bootFailure: FAILURE } }, "this VM is not trusted"],
    ["of a failed boot by its console", { status: { consoleFailure: FAILURE } }, "this VM is not trusted"],
    ["claimed by a second key", { agent: { conflictTime: time(120) } }, "this VM is not trusted"],
    ["unfit", { agent: { unfit: "its disk is 62 % full" } }, "its disk is 62 % full"],
    ["about to leave", { agent: { leaveTime: time(410) } }, "no job took it over within 300 s"],
  ])("is given to no other job if it is %s", (_, changes, why) => {
    expect(idlenessOf(idle(changes))).toEqual({ is: "none", why })
    expect(mayHandOver(idle(changes))).toBe(false)
    expect(whyNotTakeable(taker(), idle(changes), at(120))).toBe(why)
  })

  const reusable: FinishReason[] = ["Succeeded", "ContainerFailed", "DeadlineExceeded"]
  test.each(FINISH_REASONS)("is reused after an end that says nothing against the VM: %s", (reason) => {
    const ended = idle({ agent: { finish: { reason, time: time(100) } } })
    const isReused = reusable.includes(reason)
    const none = { is: "none", why: `a VM is not reused after ${reason}` }
    expect(idlenessOf(ended)).toEqual(isReused ? { is: "idle", since: time(110), seconds: 300 } : none)
    expect(isKept(ended)).toBe(isReused)
    expect(mayHandOver(ended)).toBe(isReused)
  })

  test("may be handed over by a later version, as long as nothing rules that out for ever", () => {
    const running = idle({ status: { phase: "running", agent: agentOf({ startTime: time(30) }) } })
    expect(mayHandOver(running)).toBe(true)
    expect(mayHandOver(idle())).toBe(true)
    expect(mayHandOver(idle({ spec: { run: { image: "busybox", timeoutSeconds: 3600 } } }))).toBe(false)
  })

  test("has 30 s to end itself after its time", () => {
    const waiting = { since: time(110), seconds: 300 }
    expect(idleSecondsLeft(waiting, at(110))).toBe(330)
    expect(idleSecondsLeft(waiting, at(440))).toBe(0)
  })
})

describe("an idle VM", () => {
  test("can be taken over until its time is over", () => {
    expect(whyNotTakeable(taker(), idle(), at(120))).toBeUndefined()
    expect(whyNotTakeable(taker(), idle(), at(409))).toBeUndefined()
    expect(whyNotTakeable(taker(), idle(), at(410))).toBe("its time is over")
  })

  const other = "it is of another project, connection or key"
  const keyed = (key: string) => ({ ...RUN, reuse: { idleSeconds: 60, key } })
  test.each<[string, Partial<LaunchSpec>, Changes, string | undefined]>([
    ["another idle time", { run: { ...RUN, reuse: { idleSeconds: 5 } } }, {}, undefined],
    [
      "the same key",
      { run: keyed("a") },
      { spec: { run: { ...RUN, reuse: { idleSeconds: 300, key: "a" } } } },
      undefined,
    ],
    ["another key", { run: keyed("b") }, { spec: { run: { ...RUN, reuse: { idleSeconds: 300, key: "a" } } } }, other],
    ["a key against none", { run: keyed("a") }, {}, other],
    ["a job without reuse", { run: { image: "busybox", timeoutSeconds: 3600 } }, {}, other],
    ["another project", { job: { namespace: "other", name: "train", uid: "second" } }, {}, other],
    ["another connection", { connection: "shared" }, {}, other],
    ["another account", { account: "2" }, {}, other],
    ["another VM", { root: "third-1" }, {}, other],
    ["the VM of a root", { root: "zero-1" }, { spec: { takesOver: "zero-1", root: "zero-1" } }, undefined],
    [
      "a VM without an id",
      {},
      { status: { vm: { state: "running", createTime: time(0) } } },
      "the cloud has not named it yet",
    ],
    ["handed over", {}, { status: { handedTo: "third-1" } }, "another job took it first"],
    ["not clean", {}, { status: { agent: agentOf({ finish: FINISH }) } }, "it is not clean yet"],
    ["over", {}, { status: { phase: "terminated" } }, "it has ended"],
  ])("is shared only within a project, connection and key: %s", (_, spec, changes, why) => {
    expect(whyNotTakeable(taker(spec), idle(changes), at(120))).toBe(why)
  })

  test.each([
    [91_800, 0, undefined],
    [5520, 0, undefined],
    [5519, 0, "it powers itself off in 5399 s"],
    [100, 0, "it powers itself off in 0 s"],
    // The VM is older than its Launch, which has taken it over itself.
    [5520, -60, "it powers itself off in 5340 s"],
  ])("must live as long as the job may: %i s from %i s", (vmLifetimeSeconds, boot, why) => {
    const vm = { ...VM, ...(boot < 0 && { bootTime: time(boot) }) }
    expect(whyNotTakeable(taker(), idle({ spec: { vmLifetimeSeconds }, status: { vm } }), at(120))).toBe(why)
  })
})

describe("a VM that is being cleaned", () => {
  const { idleTime: _, ...agent } = agentOf({ finish: FINISH, lastHeartbeatTime: time(105), idleTime: time(110) })
  test.each([
    [106, { is: "soon" }],
    [124, { is: "soon" }],
    [125, { is: "never", why: "it is not clean yet" }],
  ])("is waited for only as long as a new one takes: at %i s", (seconds, availability) => {
    const busy = idle({ status: { agent } })
    expect(availabilityOf(taker(), busy, at(seconds))).toEqual(availability)
    expect(whyNotTakeable(taker(), busy, at(seconds))).toBe("it is not clean yet")
    const other = { is: "never", why: "it is of another project, connection or key" }
    expect(availabilityOf(taker({ account: "2" }), busy, at(seconds))).toEqual(other)
  })
})

describe("a VM that was taken over", () => {
  test("has the name, the age and the lifetime of its first Launch", () => {
    const first = launchOf(jobOf({ metadata: { uid: "first" } }))
    expect(vmNameOf(first)).toBe("first-1")
    expect(vmNameOf(taker())).toBe("first-1")
    expect(vmSince(first)).toBe(time(0))
    expect(vmSince({ ...first, status: vmStatus() })).toBe(time(5))
    expect(vmSince({ ...first, status: vmStatus({ vm: { ...VM, createTime: time(90), bootTime: time(5) } }) })).toBe(
      time(5),
    )
    expect(vmLifetimeOf(first.spec)).toBe(5400)
    expect(vmLifetimeOf({ ...first.spec, vmLifetimeSeconds: 91_800 })).toBe(91_800)
  })

  test.each([
    [undefined, 60],
    [0, 60],
    [25, 35],
    [60, 0],
    [600, 0],
    // The clock was set back between the two Launches.
    [-5, 65],
  ])("pays only what is left of the cloud's minimum: after %s s", (seconds, left) => {
    const vm = { ...VM, ...(seconds !== undefined && { bootTime: time(100), createTime: time(100 + seconds) }) }
    const launch = launchOf(jobOf(), 1, { spec: { offer: offerOf({ minimumBilledSeconds: 60 }) }, status: { vm } })
    expect(minimumBilledSecondsOf(launch)).toBe(left)
  })
})
