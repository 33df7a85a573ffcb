import { describe, expect, test } from "vitest"
import { at, MACHINE_LAUNCH as launch, machineOf, time } from "../../../test/harness/builders.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { MACHINE_FINALIZER, type StoredMachine } from "../../core/apis/machine.ts"
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
    expect(decide(unseen, { ...OBSERVED, areLaunchesOver: false }, at(100))).toEqual({ actions: [], requeueAfter: 2 })
  })
})
