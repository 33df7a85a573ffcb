import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { at, MACHINE_LAUNCH as launch, machineOf, time } from "../../../test/harness/builders.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { MACHINE_FINALIZER, MachineReason, type StoredMachine } from "../../core/apis/machine.ts"
import { whyUnavailable } from "../../core/machines/machine.ts"
import { type MachineState, machineState } from "../../core/records/machine.ts"
import { decide } from "./decide.ts"

const OBSERVED = { hasProject: true, areLaunchesOver: true, silentSeconds: 0 }
const held = { finalizers: [MACHINE_FINALIZER] }

function ready(machine: StoredMachine, silentSeconds = 0) {
  const { status } = decide(machine, { ...OBSERVED, silentSeconds }, at(100))
  const of = (type: string) => findCondition(status?.conditions, type)?.status
  return [findCondition(status?.conditions, "Ready")?.reason, of("Ready"), of("Reconciling"), of("Stalled")]
}

describe("decide", () => {
  test.each([
    ["no host", { ...machineOf(), status: {} }, 100, ["NotJoined", "False", "True", "False"]],
    ["a host", machineOf(), 149, ["Joined", "True", "False", "False"]],
    ["a silent host", machineOf(), 150, ["Silent", "False", "True", "False"]],
    ["a lost host", machineOf(), 960, ["LeaseExpired", "False", "True", "False"]],
    ["an unfit host", machineOf({ status: { host: { unfit: "x" } } }), 100, ["Unfit", "False", "False", "True"]],
    [
      "a drained machine",
      machineOf({ spec: { unschedulable: true } }),
      100,
      ["Unschedulable", "True", "False", "False"],
    ],
  ] as const)("says that %s is there", (_, machine, seconds, expected) => {
    expect(ready(machine, seconds)).toEqual(expected)
  })

  test("looks again when time alone changes what is known", () => {
    const again = (silentSeconds: number) => decide(machineOf(), { ...OBSERVED, silentSeconds }, at(100)).requeueAfter
    expect([again(0), again(149), again(150), again(960)]).toEqual([150, 1, 810, undefined])
  })

  test("adds its finalizer, and writes nothing that is written already", () => {
    const first = decide(machineOf(), OBSERVED, at(100))
    expect(first.actions).toEqual([{ do: "addFinalizer" }])
    const machine = machineOf({ metadata: held })
    const settled = { ...machine, status: { ...machine.status, ...first.status } }
    expect(decide(settled, OBSERVED, at(101))).toMatchObject({ actions: [] })
    expect(decide(settled, OBSERVED, at(101)).status).toBeUndefined()
  })

  test("gives up a run once the lease of its silent host is over, and not before", () => {
    const running = machineOf({ metadata: held, status: { launch, host: { running: "j-1" } } })
    expect(decide(running, { ...OBSERVED, silentSeconds: 959 }, at(100)).actions).toEqual([])
    expect(decide(running, { ...OBSERVED, silentSeconds: 960 }, at(100)).actions).toEqual([{ do: "lose" }])
  })

  test("counts the lease that was granted, not a shorter one that the spec has now", () => {
    const shorter = machineOf({
      metadata: held,
      spec: { leaseSeconds: 120 },
      status: { launch, host: { running: "j-1" } },
    })
    expect(decide(shorter, { ...OBSERVED, silentSeconds: 900 }, at(100)).actions).toEqual([])
  })

  test("holds a deleted machine until nothing of a job can run on it", () => {
    const deleted = { ...held, deletionTimestamp: time(95) }
    const actions = (status: NonNullable<Parameters<typeof machineOf>[0]>["status"], silentSeconds = 0) =>
      decide(machineOf({ metadata: deleted, ...(status && { status }) }), { ...OBSERVED, silentSeconds }, at(100))
        .actions
    expect(actions({})).toEqual([{ do: "dropFinalizer" }])
    expect(actions({ launch, host: { running: "j-1" } })).toEqual([{ do: "end" }])
    expect(actions({ launch: { ...launch, endTime: time(99) }, host: { running: "j-1" } })).toEqual([])
    expect(actions({ launch, host: { freed: "j-1" } })).toEqual([{ do: "dropFinalizer" }])
    expect(actions({ launch, host: { running: "j-1" } }, 960)).toEqual([{ do: "lose" }])
    expect(actions({ launch: { ...launch, lostTime: time(99) }, host: { running: "j-1" } }, 960)).toEqual([
      { do: "dropFinalizer" },
    ])
    const unseen = machineOf({ metadata: deleted, status: { launch, host: { freed: "j-1" } } })
    const { status, ...next } = decide(unseen, { ...OBSERVED, areLaunchesOver: false }, at(100))
    expect(next).toMatchObject({ actions: [], requeueAfter: 2, events: [{ type: "Normal", reason: "Removing" }] })
    expect(findCondition(status?.conditions, "Ready")).toMatchObject({ status: "False", reason: "Removing" })
  })
})

/** States in REST that a machine may have with each reason of its condition. */
const STATES: Readonly<Record<MachineReason, readonly MachineState[]>> = {
  NotJoined: ["pending"],
  ProjectLimit: ["pending"],
  NoProject: ["pending"],
  Silent: ["silent"],
  LeaseExpired: ["silent"],
  Unfit: ["unfit"],
  CleaningUp: ["unfit"],
  Unschedulable: ["drained", "draining"],
  Joined: ["ready", "busy"],
  Removing: ["removing"],
}

const OVER_LIMIT = { limit: "machines", message: "too many" } as const

/** Any machine in the version that its controller has read, and what that observes. */
const MACHINES = fc.record({
  unschedulable: fc.boolean(),
  isDeleted: fc.boolean(),
  host: fc.option(
    fc.record(
      { running: fc.constantFrom("j-0", "j-1"), freed: fc.constantFrom("j-0", "j-1"), unfit: fc.constant("full") },
      { requiredKeys: [] },
    ),
    { nil: undefined },
  ),
  run: fc.option(fc.record({ endTime: fc.constant(time(50)), lostTime: fc.constant(time(60)) }, { requiredKeys: [] }), {
    nil: undefined,
  }),
  /** Reason of the condition before. */
  before: fc.option(fc.constantFrom(...Object.values(MachineReason)), { nil: undefined }),
  observed: fc.record({
    hasProject: fc.boolean(),
    areLaunchesOver: fc.boolean(),
    silentSeconds: fc.constantFrom(0, 149, 150, 959, 960),
    overLimit: fc.constantFrom(undefined, OVER_LIMIT),
  }),
})

test("a machine's state, its condition and its place in the market agree, whatever has happened to it", () => {
  fc.assert(
    fc.property(MACHINES, ({ unschedulable, isDeleted, host, run, before, observed: { overLimit, ...seen } }) => {
      const { status: joined, ...rest } = machineOf({
        metadata: { ...held, ...(isDeleted && { deletionTimestamp: time(95) }) },
        spec: { unschedulable },
        ...(host && { status: { host } }),
      })
      const conditions = before && [
        { type: "Ready", status: "False" as const, reason: before, message: "", lastTransitionTime: time(1) },
      ]
      const machine: StoredMachine = {
        ...rest,
        status: {
          ...(host && joined?.host && { host: joined.host }),
          ...(run && { launch: { ...launch, ...run } }),
          ...(conditions && { conditions }),
        },
      }
      const decision = decide(machine, { ...seen, ...(overLimit && { overLimit }) }, at(100))
      // The decision is not the last one of the object.
      fc.pre(!decision.actions.some(({ do: it }) => it === "dropFinalizer" || it === "lose"))
      const decided = { ...machine, status: decision.status ?? machine.status ?? {} }
      const ready = findCondition(decided.status.conditions, "Ready")
      const state = machineState(decided)
      expect(STATES[ready?.reason as MachineReason]).toContain(state)
      expect(ready?.status).toBe(["ready", "busy", "drained", "draining"].includes(state) ? "True" : "False")
      expect(whyUnavailable(decided) === undefined).toBe(state === "ready")
    }),
    { numRuns: 2000 },
  )
})
