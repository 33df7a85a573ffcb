import { describe, expect, test } from "vitest"
import { machineOf as build, MACHINE_LAUNCH as launch, time } from "../../../test/harness/builders.ts"
import { machineOf, offeredName, offerOf, runOn, whyUnavailable } from "./machine.ts"

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
    ["lost with its host", { launch: { ...launch, lostTime: time(45) }, host: { running: "j-1" } }, "over"],
    ["freed of the one before", { launch, host: { freed: "j-0" } }, "assigned"],
  ] as const)("%s: %s", (_, status, is) => {
    expect(runOn(build({ status })).is).toBe(is)
  })
})

test("a machine gets a job only if it is joined, heard of, fit, wanted and free", () => {
  expect(whyUnavailable(build({}))).toBeUndefined()
  expect(whyUnavailable({ ...build({}), status: {} })).toBe("notJoined")
  expect(whyUnavailable(build({ spec: { unschedulable: true } }))).toBe("unschedulable")
  expect(whyUnavailable(build({ metadata: { deletionTimestamp: time(1) } }))).toBe("deleted")
  expect(whyUnavailable(build({ status: { host: { unfit: "no engine" } } }))).toBe("unfit")
  expect(whyUnavailable(build({ status: { launch } }))).toBe("busy")
  expect(whyUnavailable(build({ status: { launch, host: { freed: "j-1" } } }))).toBeUndefined()
  const lost = { ...launch, lostTime: time(45) }
  expect(whyUnavailable(build({ status: { launch: lost, host: { running: "j-1" } } }))).toBe("cleaning")
  expect(whyUnavailable(build({ status: { launch: lost, host: { freed: "j-1" } } }))).toBeUndefined()
  const silent = { type: "Ready", status: "False", reason: "Silent", message: "", lastTransitionTime: time(0) } as const
  expect(whyUnavailable(build({ status: { conditions: [silent] } }))).toBe("silent")
  const unowned = { ...silent, reason: "NoProject" }
  expect(whyUnavailable(build({ spec: { shared: true }, status: { conditions: [unowned] } }))).toBe("noProject")
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
