import { describe, expect, it } from "vitest"
import { type Clock, systemClock } from "../apis/clock.ts"
import { alarm, Bell, backoff, pause } from "./pause.ts"

/** A clock that stands still until it is moved; timers beyond setTimeout's longest fire at once, as real ones do. */
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

describe("alarm", () => {
  it("rings once, on time, also beyond the longest timer that there is", () => {
    const clock = manualClock()
    const month = 31 * 24 * 3600
    let rung = 0
    alarm(clock, month, () => rung++)
    clock.advance(month - 1)
    expect(rung).toBe(0)
    clock.advance(2)
    expect(rung).toBe(1)
    clock.advance(10 * month)
    expect(rung).toBe(1)
  })

  it("stays silent once it is cancelled, however late", () => {
    const clock = manualClock()
    let rung = 0
    const cancel = alarm(clock, 1_000_000, () => rung++)
    clock.advance(999_999)
    cancel()
    clock.advance(1_000_000)
    expect(rung).toBe(0)
  })

  it("rings at once for a time that has passed", () => {
    const clock = manualClock()
    let rung = 0
    alarm(clock, -5, () => rung++)
    clock.advance(0)
    expect(rung).toBe(1)
  })
})

describe("Bell", () => {
  it("ends a wait early, also when it was rung before", async () => {
    const bell = new Bell()
    const never = new AbortController().signal
    const waiting = bell.wait(systemClock, 3600, never)
    bell.ring()
    await waiting
    bell.ring()
    await bell.wait(systemClock, 3600, never)
    const ended = new AbortController()
    const third = bell.wait(systemClock, 3600, ended.signal)
    ended.abort()
    await third
    await pause(systemClock, 3600, AbortSignal.abort())
    expect(ended.signal.aborted).toBe(true)
  })
})

describe("backoff", () => {
  it("grows up to its bound, never to nothing", () => {
    for (let tries = 0; tries < 100; tries++) {
      const full = Math.min(30, 2 ** tries)
      const seconds = backoff(tries, 1, 30)
      expect(seconds).toBeGreaterThanOrEqual(full / 2)
      expect(seconds).toBeLessThanOrEqual(full)
    }
  })
})
