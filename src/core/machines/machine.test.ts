import { describe, expect, test } from "vitest"
import { at, machineOf as build, time } from "../../../test/harness/builders.ts"
import { leaseEnd, machineOf, offeredName, offerOf, runOn, whyUnavailable } from "./machine.ts"

const launch = {
  name: "j-1",
  installation: "i",
  namespace: "team",
  region: "own",
  specDigest: "d",
  createTime: time(10),
}

describe("runOn", () => {
  test.each([
    ["no Launch", {}, "none"],
    ["given to no host yet", { launch }, "assigned"],
    ["given", { launch, host: { running: "j-1" } }, "running"],
    ["asked to end", { launch: { ...launch, endTime: time(30) }, host: { running: "j-1" } }, "ending"],
    ["asked to end before it was given", { launch: { ...launch, endTime: time(30) } }, "over"],
    [
      "given to another Launch, asked to end",
      { launch: { ...launch, endTime: time(30) }, host: { running: "j-0" } },
      "over",
    ],
    ["freed", { launch, host: { freed: "j-1", freedTime: time(40) } }, "over"],
    ["freed of the one before", { launch, host: { freed: "j-0" } }, "assigned"],
  ] as const)("%s: %s", (_, status, is) => {
    expect(runOn(build({ status }), at(50)).is).toBe(is)
  })

  test("is over a minute after the lease, and not before", () => {
    const machine = build({
      status: { launch, host: { running: "j-1", lastHeartbeatTime: time(0), leaseSeconds: 900 } },
    })
    expect(runOn(machine, at(959)).is).toBe("running")
    expect(runOn(machine, at(960))).toMatchObject({ is: "over", isLost: true, endTime: time(960) })
  })

  test("counts the lease that was granted, not a shorter one that the spec has now", () => {
    const machine = build({
      spec: { leaseSeconds: 120 },
      status: { launch, host: { running: "j-1", lastHeartbeatTime: time(0), leaseSeconds: 900 } },
    })
    expect(leaseEnd(machine.status?.host as never)).toEqual(at(960))
  })
})

test("a machine gets a job only if it is joined, heard of, fit, wanted and free", () => {
  const now = at(100)
  expect(whyUnavailable(build({}), now)).toBeUndefined()
  expect(whyUnavailable({ ...build({}), status: {} }, now)).toBe("notJoined")
  expect(whyUnavailable(build({ spec: { unschedulable: true } }), now)).toBe("unschedulable")
  expect(whyUnavailable(build({ metadata: { deletionTimestamp: time(1) } }), now)).toBe("deleted")
  expect(whyUnavailable(build({ status: { host: { unfit: "no engine" } } }), now)).toBe("unfit")
  expect(whyUnavailable(build({ status: { launch } }), now)).toBe("busy")
  expect(whyUnavailable(build({ status: { launch, host: { freed: "j-1" } } }), now)).toBeUndefined()
  expect(whyUnavailable(build({ status: { host: { lastHeartbeatTime: time(0) } } }), at(151))).toBe("silent")
})

test("a machine has the same name in its offer and in what its offer stands for", () => {
  const machine = build({})
  for (const namespace of ["team", "other"])
    expect(machineOf(offeredName(machine, namespace), namespace)).toEqual({ namespace: "team", name: "gpu-1" })
  expect(offerOf(machine, "team")).toMatchObject({
    cloud: "own",
    region: "own",
    instanceType: "gpu-1",
    hourlyPriceUsd: 0,
  })
  expect(offerOf(machine, "other")).toMatchObject({ instanceType: "team/gpu-1" })
})
