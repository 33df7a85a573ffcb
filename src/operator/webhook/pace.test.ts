import { describe, expect, it } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { Pace, toSlice } from "./pace.ts"

describe("the slice of a limit", () => {
  it.each([
    [1200, { messages: 120, seconds: 6 }],
    [600, { messages: 60, seconds: 6 }],
    [15, { messages: 2, seconds: 8 }],
    [5, { messages: 1, seconds: 12 }],
    [1, { messages: 1, seconds: 60 }],
  ])("has the pace of its limit: %i a minute", (limit, slice) => {
    expect(toSlice(limit)).toEqual(slice)
    expect((slice.messages / slice.seconds) * 60).toBeCloseTo(limit, 9)
  })
})

/** Lets each webhook ask for `each` turns. Returns the webhooks in the order of their turns. */
function race(pace: Pace, webhooks: readonly string[], each: number): { order: string[]; ended: Promise<unknown> } {
  const order: string[] = []
  const turns = webhooks.flatMap((webhook) =>
    Array.from({ length: each }, async () => {
      if (await pace.turn(webhook)) order.push(webhook)
    }),
  )
  return { order, ended: Promise.all(turns) }
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe("a pace", () => {
  it("gives a slice at once, and the next one when its time is over", async () => {
    const clock = new ManualClock()
    const pace = new Pace(600, clock)
    const { order } = race(pace, ["a"], 150)
    await settled()
    expect([order.length, pace.isWaiting("a")]).toEqual([60, true])
    clock.advance(5.9)
    await settled()
    expect(order).toHaveLength(60)
    clock.advance(0.1)
    await settled()
    expect(order).toHaveLength(120)
    clock.advance(6)
    await settled()
    expect([order.length, pace.isWaiting("a"), clock.timers]).toEqual([150, false, 0])
  })

  it("gives each waiting webhook one turn before a second to any", async () => {
    const clock = new ManualClock()
    const pace = new Pace(10, clock)
    const flood = race(pace, ["flood"], 50)
    const few = race(pace, ["b", "c"], 2)
    const all = [flood.order, few.order]
    for (let i = 0; i < 6; i++) clock.advance(6)
    await settled()
    expect(all).toEqual([
      ["flood", "flood", "flood"],
      ["b", "c", "b", "c"],
    ])
  })

  it("gives no turn to a webhook that has left, and needs no timer without one that waits", async () => {
    const clock = new ManualClock()
    const pace = new Pace(10, clock)
    const { order, ended } = race(pace, ["a"], 5)
    pace.leave("a")
    await ended
    expect([order, pace.isWaiting("a"), clock.timers]).toEqual([["a"], false, 0])
  })

  it("forgets no turn that a webhook had before it left", async () => {
    const clock = new ManualClock()
    const pace = new Pace(10, clock)
    await pace.turn("a")
    pace.leave("a")
    const { order } = race(pace, ["a"], 1)
    await settled()
    expect(order).toEqual([])
  })
})
