import { expect, it } from "vitest"
import type { Clock } from "../../core/apis/clock.ts"
import { Pacer, TokenBucket } from "./pacing.ts"

/** A clock that stands still until it is advanced. */
function manualClock(): Clock & { advance(seconds: number): Promise<void> } {
  let now = 0
  let timers: { at: number; callback: () => void }[] = []
  return {
    now: () => new Date(now * 1000),
    monotonic: () => now,
    setTimer: (seconds, callback) => {
      const timer = { at: now + seconds, callback }
      timers.push(timer)
      return () => {
        timers = timers.filter((other) => other !== timer)
      }
    },
    advance: async (seconds) => {
      now += seconds
      const due = timers.filter(({ at }) => at <= now + 1e-9)
      timers = timers.filter((timer) => !due.includes(timer))
      for (const { callback } of due) callback()
      await Promise.resolve()
      await Promise.resolve()
    },
  }
}

it("a bucket of calls allows as many as it holds, then the rate per second, in the order of the calls", async () => {
  const clock = manualClock()
  const bucket = new TokenBucket({ capacity: 2, perSecond: 2 }, clock)
  const passed: number[] = []
  for (const number of [1, 2, 3, 4, 5]) void bucket.take().then(() => passed.push(number))
  await clock.advance(0)
  expect(passed).toEqual([1, 2])
  await clock.advance(0.5)
  expect(passed).toEqual([1, 2, 3])
  await clock.advance(1)
  expect(passed).toEqual([1, 2, 3, 4, 5])
})

it("a bucket of calls fills up while idle, up to its capacity", async () => {
  const clock = manualClock()
  const bucket = new TokenBucket({ capacity: 2, perSecond: 1 }, clock)
  await clock.advance(100)
  const passed: number[] = []
  for (const number of [1, 2, 3]) void bucket.take().then(() => passed.push(number))
  await clock.advance(0)
  expect(passed).toEqual([1, 2])
})

it("a bucket of calls waits for new tokens when the service reports throttling", async () => {
  const clock = manualClock()
  const bucket = new TokenBucket({ capacity: 10, perSecond: 1 }, clock)
  bucket.empty()
  let passed = false
  void bucket.take().then(() => {
    passed = true
  })
  await clock.advance(0.9)
  expect(passed).toBe(false)
  await clock.advance(0.1)
  expect(passed).toBe(true)
})

it("each action that changes something has a bucket of calls, and all reads share one", () => {
  const pacer = new Pacer(manualClock())
  expect(pacer.of("DescribeInstances")).toBe(pacer.of("DescribeVpcs"))
  const changing = ["RunInstances", "TerminateInstances", "CreateSecurityGroup"].map((action) => pacer.of(action))
  expect(new Set([...changing, pacer.of("DescribeVpcs")]).size).toBe(4)
})
