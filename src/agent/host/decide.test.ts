import { describe, expect, it } from "vitest"
import { beatOf, isNewJoin, reactionTo, secondsUntilNext, workOf } from "./decide.ts"
import type { HostState, Order } from "./disk.ts"
import { gpuOf } from "./facts.ts"
import { secondsLeft } from "./lease.ts"

const config = { launch: "l-1", gatewayUrl: "https://berth.test", bootstrapToken: "t", lifetimeSeconds: 60 }
const order: Order = { config, since: "2026-01-01T00:00:00Z" }
const waiting: HostState = { sequence: 7, freed: "l-0" }
const running: HostState = { sequence: 7, freed: "l-0", order }
const version = "1"

describe("the work that a disk leaves", () => {
  it.each([
    ["nothing without an order", waiting, 900, "nothing"],
    ["a run within its lease", running, 31, "run"],
    ["only the clean-up at the end of the lease", running, 30, "clean"],
    ["only the clean-up after the run", { ...running, order: { ...order, hasEnded: true as const } }, 900, "clean"],
  ])("is %s", (_what, state, left, work) => {
    expect(workOf(state, left)).toBe(work)
  })

  it("has no lease after a reboot", () => {
    const clock = { boot: "b", seconds: () => 100 }
    expect(secondsLeft({ boot: "a", end: 1000 }, clock)).toBe(0)
    expect(secondsLeft({ boot: "b", end: 1000 }, clock)).toBe(900)
    expect(secondsLeft(undefined, clock)).toBe(0)
  })
})

describe("a heartbeat", () => {
  it("says what is freed until the next run begins", () => {
    expect(beatOf(waiting, { version })).toEqual({ sequence: 8, freed: "l-0" })
    expect(beatOf(running, { version, unfit: "why" })).toEqual({ sequence: 8, running: "l-1", unfit: "why" })
  })

  it("is followed by the next one at once only if the gateway holds it", () => {
    expect(secondsUntilNext({ sequence: 1 })).toBe(1)
    expect(secondsUntilNext({ sequence: 1, unfit: "why" })).toBe(10)
    expect(secondsUntilNext({ sequence: 1, running: "l-1" })).toBe(30)
  })
})

describe("an answer", () => {
  const answer = { leaseSeconds: 900, next: "sealed" }

  it("gives a waiting host its job", () => {
    expect(reactionTo(answer, { sequence: 1 }, 31)).toEqual({ ends: false, takes: "sealed" })
  })

  it.each([
    ["has no time for it", { sequence: 1 }, 30],
    ["is unfit", { sequence: 1, unfit: "why" }, 900],
    ["has another one", { sequence: 1, running: "l-1" }, 900],
  ])("gives no job to a host that %s", (_why, beat, left) => {
    expect(reactionTo(answer, beat, left)).toEqual({ ends: false })
  })

  it("ends only the run that it names", () => {
    const beat = { sequence: 1, running: "l-1" }
    expect(reactionTo({ leaseSeconds: 900, stop: "l-1" }, beat, 900).ends).toBe(true)
    expect(reactionTo({ leaseSeconds: 900, stop: "l-2" }, beat, 900).ends).toBe(false)
    expect(reactionTo({ leaseSeconds: 900, stop: "l-1" }, { sequence: 1 }, 900).ends).toBe(false)
  })
})

it("a host joins with a token of another machine, or a later one", () => {
  const claims = { namespace: "one", name: "gpu-1", uid: "u", number: 2, expires: 0 }
  const identity = { namespace: "one", name: "gpu-1", uid: "u", number: 2, keys: { signing: {}, encryption: {} } }
  expect(isNewJoin(undefined, claims)).toBe(true)
  expect(isNewJoin(identity, claims)).toBe(false)
  expect(isNewJoin(identity, { ...claims, number: 1 })).toBe(false)
  expect(isNewJoin(identity, { ...claims, number: 3 })).toBe(true)
  expect(isNewJoin(identity, { ...claims, uid: "v", number: 1 })).toBe(true)
})

describe("the cards of a machine", () => {
  it.each([
    ["NVIDIA H100 80GB HBM3, 81559\r\nNVIDIA H100 80GB HBM3, 81559\r\n", "NVIDIA H100 80GB HBM3", 2, 80],
    ["Tesla T4, 15360\n", "Tesla T4", 1, 15],
  ])("%j are known", (printed, model, count, vramGib) => {
    expect(gpuOf(printed)).toEqual({ model, count, vramGib })
  })

  it.each(["", "No devices were found\n", "Tesla T4, 15360\nNVIDIA L4, 23034\n", "Tesla T4, [N/A]\n"])(
    "%j are none that a job can ask for",
    (printed) => {
      expect(gpuOf(printed)).toBeUndefined()
    },
  )
})
