import { describe, expect, it } from "vitest"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Host, MachineLaunch, MachineSpec } from "../../core/apis/machine.ts"
import { runOn } from "../../core/machines/machine.ts"
import type { BeatRequest } from "../../core/protocol/machines.ts"
import { awaitedLaunch, beatStep, type JoinedMachine, joinStep, leaseToAnswer } from "./host-steps.ts"

const T0 = "2026-01-01T00:00:00Z"
const FACTS = { cpu: 8, memoryGib: 32, diskGib: 100, architecture: "amd64" } as const

/** Returns the time some seconds after T0. */
function at(seconds: number): Date {
  return new Date(Date.parse(T0) + seconds * 1000)
}

const HOST: Host = {
  ...{ joinNumber: 1, joinTime: T0, signingKey: "s", encryptionKey: "e", version: "1", facts: FACTS },
  ...{ sequence: 10, lastHeartbeatTime: T0, leaseSeconds: 900 },
}
const LAUNCH: MachineLaunch = {
  ...{ name: "new", installation: "i", namespace: "lab", region: "own", specDigest: "d", createTime: T0 },
}

function machine(
  host: Partial<Host> = {},
  launch?: Partial<MachineLaunch>,
  { spec, deletionTimestamp }: { spec?: MachineSpec; deletionTimestamp?: string } = {},
): JoinedMachine {
  return {
    apiVersion: "berth.dev/v1alpha1",
    kind: "Machine",
    metadata: {
      ...{ name: "gpu-1", namespace: "lab", uid: "u", resourceVersion: "1", generation: 1, creationTimestamp: T0 },
      ...(deletionTimestamp !== undefined && { deletionTimestamp }),
    },
    spec: { joinNumber: 1, ...spec },
    status: { host: { ...HOST, ...host }, ...(launch && { launch: { ...LAUNCH, ...launch } }) },
  }
}

/** Returns the Launch that has the machine. */
function launched(more: { ended?: boolean; agent?: object; instanceType?: string; cloud?: string } = {}): StoredLaunch {
  const { ended = false, agent, instanceType = "gpu-1", cloud = "own" } = more
  return {
    metadata: { name: "new" },
    spec: { job: { namespace: "lab" }, offer: { cloud, instanceType }, ended },
    status: { ...(agent && { agent }) },
  } as unknown as StoredLaunch
}

function step(on: JoinedMachine, beat: Partial<BeatRequest>, launch?: StoredLaunch, seconds = 5) {
  return beatStep(on, { sequence: 11, ...beat }, launch, at(seconds))
}

describe("a heartbeat", () => {
  const old = { freed: "old", freedTime: T0 }
  it.each<[string, ReturnType<typeof step>, object]>([
    ["of a host without a job waits", step(machine(), {}), { is: "wait" }],
    [
      "of a host that has freed the last one waits",
      step(machine({ freed: "new" }, {}), { freed: "new" }),
      { is: "wait" },
    ],
    [
      "is written with the job that the machine gets",
      step(machine(old, {}), { freed: "old" }, launched()),
      written({ running: "new", freed: "old", lastHeartbeatTime: T0 }),
    ],
    [
      "gets the job that is written",
      step(machine({ ...old, running: "new" }, {}), { freed: "old" }, launched()),
      { is: "order" },
    ],
    [
      "gets one of another project that it is shared with",
      step(
        machine({ running: "new" }, {}),
        {},
        {
          ...launched({ instanceType: "lab/gpu-1" }),
          spec: { ...launched({ instanceType: "lab/gpu-1" }).spec, job: { namespace: "other", name: "j", uid: "u" } },
        },
      ),
      { is: "order" },
    ],
    ["waits for word of a job that it has got", step(machine({}, {}), {}, launched({ agent: {} })), { is: "wait" }],
    [
      "waits for word of a job that it has got, also after its end",
      step(machine({}, {}), {}, launched({ agent: {}, ended: true })),
      { is: "wait" },
    ],
    ["gets no job whose end was asked for", step(machine({}, { endTime: T0 }), {}, launched()), { is: "wait" }],
    [
      "gets a job no more whose end was asked for",
      step(machine({ running: "new" }, { endTime: T0 }), {}, launched()),
      { is: "wait" },
    ],
    ["of an unfit host gets no job", step(machine({ unfit: "full" }, {}), { unfit: "full" }), { is: "answer" }],
    ["frees the machine of a job that has ended", step(machine({}, {}), {}, launched({ ended: true })), freed()],
    ["frees the machine of a job that is deleted", step(machine({}, {}), {}), freed()],
    [
      "frees the machine of a job that it was given, and that has ended before its agent registered",
      step(machine({ running: "new" }, {}), {}, launched({ ended: true })),
      freed(),
    ],
    ["gets no job of another machine", step(machine({}, {}), {}, launched({ instanceType: "gpu-2" })), freed()],
    ["gets no job of a cloud", step(machine({}, {}), {}, launched({ cloud: "aws" })), freed()],
    ["is answered at once with a job", step(machine({ running: "new" }, {}), { running: "new" }), { is: "answer" }],
    [
      "ends a job whose end was asked for",
      step(machine({ running: "new" }, { endTime: T0 }), { running: "new" }),
      { is: "answer", stop: "new" },
    ],
    [
      "ends a job that no longer has the machine",
      step(machine({ running: "old" }, {}), { running: "old" }),
      { is: "answer", stop: "old" },
    ],
    ["with news is written", step(machine({}, {}), { running: "new" }), written({ running: "new", sequence: 11 })],
    [
      "with a freed machine is written",
      step(machine({ running: "new" }, {}), { freed: "new" }),
      written({ freed: "new", freedTime: "2026-01-01T00:00:05Z" }),
    ],
    ["with a reason is written", step(machine({}, {}), { running: "new", unfit: "full" }), written({ unfit: "full" })],
    [
      "with other facts is written",
      step(machine(), { facts: { ...FACTS, cpu: 4 } }),
      written({ facts: { ...FACTS, cpu: 4 } }),
    ],
    [
      "is written after 45 s",
      step(machine(), {}, undefined, 45),
      written({ lastHeartbeatTime: "2026-01-01T00:00:45Z" }),
    ],
    ["is not written before", step(machine(), {}, undefined, 44), { is: "wait" }],
    [
      "that is late changes nothing",
      step(machine({ running: "new" }, {}), { sequence: 10, freed: "new" }),
      { is: "answer" },
    ],
    ["that is late does not extend the lease", step(machine(), { sequence: 10 }, undefined, 300), { is: "wait" }],
  ])("%s", (_what, found, wanted) => {
    expect(found).toMatchObject(wanted)
    if ((wanted as { is: string }).is === "answer") expect(found).toEqual(wanted)
  })

  function written(host: object) {
    return { is: "write", host }
  }

  function freed() {
    return {
      is: "write",
      host: { freed: "new", freedTime: "2026-01-01T00:00:05Z", sequence: 10, lastHeartbeatTime: T0 },
    }
  }

  it("does not say of one job that it runs and is freed", () => {
    expect(hostOf(step(machine(), { running: "new", freed: "new" }))?.freed).toBeUndefined()
    expect(hostOf(step(machine({ running: "new" }, {}), { freed: "new" }))?.running).toBeUndefined()
  })

  function hostOf(found: ReturnType<typeof step>) {
    return found.is === "write" ? found.host : undefined
  }

  it("keeps the job that the gateway has given, until the host says that it is freed", () => {
    expect(hostOf(step(machine({ running: "new" }, {}), { unfit: "full" }))?.running).toBe("new")
    expect(hostOf(step(machine({ running: "old" }, {}), {}))?.running).toBeUndefined()
    expect(hostOf(step(machine({ running: "new" }, {}), {}, launched({ ended: true })))?.running).toBeUndefined()
  })

  it("needs the live Launch only if it waits for one", () => {
    expect(awaitedLaunch(machine({}, {}), { sequence: 11 })).toBe("new")
    expect(awaitedLaunch(machine(), { sequence: 11 })).toBeUndefined()
    expect(awaitedLaunch(machine({ freed: "new" }, {}), { sequence: 11 })).toBeUndefined()
    expect(awaitedLaunch(machine({}, {}), { sequence: 11, running: "new" })).toBeUndefined()
  })
})

describe("a lease", () => {
  it("counts from the written heartbeat", () => {
    expect(leaseToAnswer(machine(), at(0))).toBe(900)
    expect(leaseToAnswer(machine(), at(44.5))).toBe(855)
    expect(leaseToAnswer(machine(), at(1000))).toBe(0)
    expect(leaseToAnswer(machine(), at(-5))).toBe(900)
  })

  it("grants a longer one with the next written heartbeat", () => {
    const longer = machine({}, {}, { spec: { leaseSeconds: 3600 } })
    expect(leaseToAnswer(longer, at(10))).toBe(890)
    expect(step(longer, { running: "new" })).toMatchObject({ host: { leaseSeconds: 3600 } })
  })

  it("answers a shorter one at once, which counts only after the end of the one that the host may know", () => {
    const shorter = machine({ running: "new" }, {}, { spec: { leaseSeconds: 120 } })
    expect(leaseToAnswer(shorter, at(10))).toBe(110)
    const ends = [60, 500, 850].map((seconds) => {
      const next = step(shorter, { running: "new" }, undefined, seconds)
      return next.is === "write" ? Date.parse(next.host.lastHeartbeatTime) + next.host.leaseSeconds * 1000 : 0
    })
    expect(ends).toEqual([at(900).getTime(), at(900).getTime(), at(850 + 120).getTime()])
  })

  it("never ends earlier by a replica whose clock is behind", () => {
    expect(step(machine(), { running: "new" }, undefined, -40)).toMatchObject({
      host: { lastHeartbeatTime: T0, leaseSeconds: 900 },
    })
  })
})

describe("a host that joins", () => {
  const request = { protocol: 1, version: "2", signingKey: "s2", encryptionKey: "e2", facts: FACTS }
  const claims = { namespace: "lab", name: "gpu-1", uid: "u", number: 2, expires: at(3600).getTime() / 1000 }
  const again = { spec: { joinNumber: 2 } }

  it.each<[string, ReturnType<typeof joinStep>, object]>([
    [
      "joins with the last token",
      joinStep(machine({}, undefined, again), claims, request, { now: at(5) }),
      { is: "write" },
    ],
    ["learns of a removed machine", joinStep(undefined, claims, request, { now: at(5) }), refused("unknown-machine")],
    [
      "learns of one of the same name",
      joinStep(machine(), { ...claims, uid: "v" }, request, { now: at(5) }),
      refused("unknown-machine"),
    ],
    [
      "learns of one that is being removed",
      joinStep(machine({}, undefined, { ...again, deletionTimestamp: T0 }), claims, request, { now: at(5) }),
      refused("unknown-machine"),
    ],
    [
      "needs another token after an hour",
      joinStep(machine({}, undefined, again), claims, request, { now: at(3600) }),
      refused("join-token-expired"),
    ],
    [
      "needs the last token",
      joinStep(machine({}, undefined, { spec: { joinNumber: 3 } }), claims, request, { now: at(5) }),
      refused("join-token-used"),
    ],
    [
      "needs an unused token",
      joinStep(machine({ joinNumber: 2 }, undefined, again), claims, request, { now: at(5) }),
      refused("join-token-used"),
    ],
    [
      "joins no installation that forbids machines",
      joinStep(machine({}, undefined, again), claims, request, { now: at(5), whyForbidden: "the limit is 0" }),
      { ...refused("machines-forbidden"), detail: "No other host joins: the limit is 0." },
    ],
    [
      "repeats its request, even late",
      joinStep(machine({ joinNumber: 2, signingKey: "s2", encryptionKey: "e2" }, {}, again), claims, request, {
        now: at(9999),
      }),
      { is: "joined" },
    ],
    [
      "waits for the end of the former host's lease",
      joinStep(machine({ running: "new" }, {}, again), claims, request, { now: at(959) }),
      { is: "held", until: at(960) },
    ],
  ])("%s", (_what, found, wanted) => expect(found).toMatchObject(wanted))

  function refused(type: string) {
    return { is: "refused", type }
  }

  it("gets the job that the former one has not got", () => {
    const found = joinStep(machine({}, {}, again), claims, request, { now: at(5) })
    expect(found).toMatchObject({ is: "write" })
    expect(found.is === "write" && found.host.freed).toBeUndefined()
  })

  it("does not bring back the run of a host whose lease is over", () => {
    const lost = machine({ running: "new" }, { lostTime: "2026-01-01T00:16:00Z" }, again)
    const found = joinStep(lost, claims, request, { now: at(960) })
    if (found.is !== "write") throw new Error(found.is)
    expect(found.host).toMatchObject({ freed: "new", freedTime: "2026-01-01T00:16:00Z", sequence: 0 })
    expect(found.host.running).toBeUndefined()
    expect(runOn({ ...lost, status: { ...lost.status, host: found.host } }).is).toBe("over")
  })
})
