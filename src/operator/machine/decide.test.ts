import { describe, expect, test } from "vitest"
import { at, machineOf, time } from "../../../test/harness/builders.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { MACHINE_FINALIZER, type StoredMachine } from "../../core/apis/machine.ts"
import { decide } from "./decide.ts"

const OBSERVED = { hasProject: true }
const launch = {
  name: "j-1",
  installation: "i",
  namespace: "team",
  region: "own",
  specDigest: "d",
  createTime: time(10),
}
const held = { finalizers: [MACHINE_FINALIZER] }

function ready(machine: StoredMachine, seconds = 100, observed = OBSERVED) {
  const { status } = decide(machine, observed, at(seconds))
  const of = (type: string) => findCondition(status?.conditions, type)?.status
  return [findCondition(status?.conditions, "Ready")?.reason, of("Ready"), of("Reconciling"), of("Stalled")]
}

describe("decide", () => {
  test.each([
    ["no host", { ...machineOf(), status: {} }, 100, ["NotJoined", "False", "True", "False"]],
    ["a host", machineOf(), 100, ["Joined", "True", "False", "False"]],
    ["a silent host", machineOf(), 241, ["Silent", "False", "True", "False"]],
    ["a lost host", machineOf(), 1050, ["LeaseExpired", "False", "True", "False"]],
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
    expect(decide(machineOf(), OBSERVED, at(100)).requeueAfter).toBe(141)
    expect(decide(machineOf(), OBSERVED, at(250)).requeueAfter).toBe(801)
    expect(decide(machineOf(), OBSERVED, at(2000)).requeueAfter).toBeUndefined()
  })

  test("adds its finalizer, and writes nothing that is written already", () => {
    const first = decide(machineOf(), OBSERVED, at(100))
    expect(first.actions).toEqual([{ do: "addFinalizer" }])
    const machine = machineOf({ metadata: held })
    const settled = { ...machine, status: { ...machine.status, ...first.status } }
    expect(decide(settled, OBSERVED, at(101))).toMatchObject({ actions: [] })
    expect(decide(settled, OBSERVED, at(101)).status).toBeUndefined()
  })

  test("holds a deleted machine until nothing of a job can run on it", () => {
    const deleted = { ...held, deletionTimestamp: time(95) }
    const actions = (status: NonNullable<Parameters<typeof machineOf>[0]>["status"], seconds = 100) =>
      decide(machineOf({ metadata: deleted, ...(status && { status }) }), OBSERVED, at(seconds)).actions
    expect(actions({})).toEqual([{ do: "dropFinalizer" }])
    expect(actions({ launch, host: { running: "j-1" } })).toEqual([{ do: "end" }])
    expect(actions({ launch: { ...launch, endTime: time(99) }, host: { running: "j-1" } })).toEqual([])
    expect(actions({ launch, host: { freed: "j-1" } })).toEqual([{ do: "dropFinalizer" }])
    expect(actions({ launch, host: { running: "j-1" } }, 1050)).toEqual([{ do: "dropFinalizer" }])
  })
})
