import { expect, test } from "vitest"
import type { Clock } from "../core/apis/clock.ts"
import { ElapsedTimes } from "./elapsed.ts"

const START = Date.parse("2026-05-01T12:00:00Z")
const HOURS = 3600

/** Clock whose calendar and durations a test sets, in seconds. */
class TwoClocks implements Clock {
  calendar = 0
  duration = 0
  now = (): Date => new Date(START + this.calendar * 1000)
  monotonic = (): number => this.duration
  setTimer = (): (() => void) => () => undefined

  pass(seconds: number): void {
    this.calendar += seconds
    this.duration += seconds
  }
}

const SINCE = "2026-05-01T12:00:00Z"

interface Step {
  /** Seconds that pass before this look. */
  pass?: number
  /** Seconds by which the calendar is set. */
  set?: number
  begun?: boolean
  reported?: number
  seconds: number | undefined
}

test.each<[string, Step[]]>([
  [
    "an event that this process saw, while the clock is set ahead and back",
    [
      { seconds: undefined },
      { begun: true, seconds: 0 },
      { begun: true, set: 2 * HOURS, pass: 10, seconds: 10 },
      { begun: true, set: -4 * HOURS, pass: 10, seconds: 20 },
    ],
  ],
  [
    "an event that this process saw with a clock that was wrong from the start",
    [
      { set: 2 * HOURS, seconds: undefined },
      { begun: true, pass: 1, seconds: 0 },
      { begun: true, pass: 60, seconds: 60 },
    ],
  ],
  [
    "an earlier event by the calendar, until the clock is set ahead",
    [
      { begun: true, pass: 100, seconds: 100 },
      { begun: true, set: 2 * HOURS, pass: 5, seconds: 105 },
    ],
  ],
  [
    "an earlier event by another clock's report, if this clock is ahead",
    [
      { begun: true, set: 2 * HOURS, pass: 100, reported: 90, seconds: 90 },
      { begun: true, pass: 10, reported: 90, seconds: 100 },
    ],
  ],
  [
    "an earlier event first seen with a clock that was ahead, and is right again",
    [
      { begun: true, set: 2 * HOURS, pass: 100, seconds: 2 * HOURS + 100 },
      { begun: true, set: -2 * HOURS, pass: 10, seconds: 110 },
    ],
  ],
  [
    "an earlier event that seems to be in the future",
    [
      { begun: true, set: -HOURS, seconds: 0 },
      { begun: true, pass: 30, seconds: 30 },
    ],
  ],
])("elapsed time measures %s", (_, steps) => {
  const clock = new TwoClocks()
  const times = new ElapsedTimes(clock)
  for (const { pass = 0, set = 0, begun = false, reported, seconds } of steps) {
    clock.pass(pass)
    clock.calendar += set
    expect(times.seconds("a", { id: "1", since: begun ? SINCE : undefined, reported })).toBe(seconds)
  }
})

test("elapsed time measures a new object of the same key from its own event", () => {
  const clock = new TwoClocks()
  const times = new ElapsedTimes(clock)
  clock.pass(50)
  expect(times.seconds("a", { id: "1", since: SINCE })).toBe(50)
  expect(times.seconds("a", { id: "2", since: undefined })).toBeUndefined()
  expect(times.seconds("a", { id: "2", since: SINCE })).toBe(0)
})
