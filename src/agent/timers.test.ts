import { describe, expect, it } from "vitest"
import { type Clock, systemClock } from "../core/apis/clock.ts"
import { AsyncSignal, timer, waitUnlessAborted } from "./timers.ts"

/** Clock that moves only by `advance`. Timers beyond setTimeout's maximum fire at once, as real ones do. */
function manualClock(): Clock & { advance: (seconds: number) => void } {
  let time = 1000
  let timers: { at: number; callback: () => void }[] = []
  return {
    now: () => new Date(time * 1000),
    monotonic: () => time,
    setTimer(seconds, callback) {
      const timer = { at: time + Math.min(seconds, 2_147_483), callback }
      timers.push(timer)
      return () => {
        timers = timers.filter((other) => other !== timer)
      }
    },
    advance(seconds) {
      const end = time + seconds
      for (;;) {
        timers.sort((a, b) => a.at - b.at)
        const next = timers[0]
        if (next === undefined || next.at > end) break
        timers.shift()
        time = next.at
        next.callback()
      }
      time = end
    },
  }
}

describe("timer", () => {
  it("calls back once, on time, also beyond the longest timer of the platform", () => {
    const clock = manualClock()
    const month = 31 * 24 * 3600
    let calls = 0
    timer(clock, month, () => calls++)
    clock.advance(month - 1)
    expect(calls).toBe(0)
    clock.advance(2)
    expect(calls).toBe(1)
    clock.advance(10 * month)
    expect(calls).toBe(1)
  })

  it("does not call back after it is cancelled", () => {
    const clock = manualClock()
    let calls = 0
    const cancel = timer(clock, 1_000_000, () => calls++)
    clock.advance(999_999)
    cancel()
    clock.advance(1_000_000)
    expect(calls).toBe(0)
  })

  it("calls back at once for a time in the past", () => {
    const clock = manualClock()
    let calls = 0
    timer(clock, -5, () => calls++)
    clock.advance(0)
    expect(calls).toBe(1)
  })
})

describe("AsyncSignal", () => {
  it("ends a wait early, also if notified before", async () => {
    const signal = new AsyncSignal()
    const never = new AbortController().signal
    const waiting = signal.wait(systemClock, 3600, never)
    signal.notify()
    await waiting
    signal.notify()
    await signal.wait(systemClock, 3600, never)
    const ended = new AbortController()
    const third = signal.wait(systemClock, 3600, ended.signal)
    ended.abort()
    await third
    await waitUnlessAborted(systemClock, 3600, AbortSignal.abort())
    expect(ended.signal.aborted).toBe(true)
  })
})
