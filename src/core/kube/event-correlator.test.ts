import { expect, test } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { timestamp } from "../apis/clock.ts"
import type { KubeEvent } from "./core.ts"
import { EventCorrelator } from "./event-correlator.ts"

let made = 0
function event(clock: ManualClock, message: string, reason = "Booted", name = "job"): KubeEvent {
  const now = timestamp(clock.now())
  return {
    metadata: { namespace: "ns", name: `event-${made++}` },
    involvedObject: { kind: "Job", namespace: "ns", name, uid: `uid-${name}` },
    type: "Normal",
    reason,
    message,
    source: { component: "test" },
    reportingComponent: "test",
    reportingInstance: "test-1",
    count: 1,
    firstTimestamp: now,
    lastTimestamp: now,
  }
}

test("the correlator counts repetitions on the first event, and starts a new one when that has expired", () => {
  const clock = new ManualClock()
  const correlator = new EventCorrelator(clock)
  const first = correlator.correlate(event(clock, "up"))
  clock.advance(60)
  const second = correlator.correlate(event(clock, "up"))
  expect(first).toMatchObject({ repeats: false, event: { count: 1 } })
  expect(second).toMatchObject({ repeats: true, event: { count: 2, metadata: first?.event.metadata } })
  expect(second?.event.firstTimestamp).toBe(first?.event.firstTimestamp)
  expect(second?.event.lastTimestamp).not.toBe(first?.event.lastTimestamp)
  clock.advance(4000)
  expect(correlator.correlate(event(clock, "up"))).toMatchObject({ repeats: false, event: { count: 1 } })
})

test("the correlator distinguishes objects, reasons and messages", () => {
  const clock = new ManualClock()
  const correlator = new EventCorrelator(clock)
  const all = [
    event(clock, "up"),
    event(clock, "down"),
    event(clock, "up", "Ended"),
    event(clock, "up", "Booted", "other"),
  ]
  expect(all.map((one) => correlator.correlate(one)?.repeats)).toEqual([false, false, false, false])
})

test("the correlator combines many similar events into one", () => {
  const clock = new ManualClock()
  const correlator = new EventCorrelator(clock)
  const written = Array.from({ length: 15 }, (_, n) => correlator.correlate(event(clock, `offer ${n} rejected`)))
  expect(written.filter((one) => one?.repeats === false)).toHaveLength(11)
  expect(written.at(-1)?.event).toMatchObject({
    count: 5,
    message: "(combined from similar events): offer 14 rejected",
  })
  expect(correlator.correlate(event(clock, "offer 3 rejected"))?.event).toMatchObject({
    count: 2,
    message: "offer 3 rejected",
  })
})

test("the correlator limits the events of one object, and not those of others", () => {
  const clock = new ManualClock()
  const correlator = new EventCorrelator(clock)
  const emitted = Array.from({ length: 100 }, () => correlator.correlate(event(clock, "again"))).filter(Boolean)
  expect(emitted).toHaveLength(25)
  expect(correlator.correlate(event(clock, "again", "Booted", "other"))).toBeDefined()
  clock.advance(299)
  expect(correlator.correlate(event(clock, "again"))).toBeUndefined()
  clock.advance(2)
  expect(correlator.correlate(event(clock, "again"))).toBeDefined()
})

test("the correlator combines the Warnings of an object with too many events, and drops none", () => {
  const clock = new ManualClock()
  const correlator = new EventCorrelator(clock)
  const warning = (message: string): KubeEvent => ({ ...event(clock, message), type: "Warning" })
  for (let n = 0; n < 25; n++) correlator.correlate(event(clock, "again"))
  const combined = ["no capacity", "no quota"].map((message) => correlator.correlate(warning(message)))
  expect(combined).toMatchObject([
    { repeats: false, event: { count: 1, message: "(combined from similar events): no capacity" } },
    { repeats: true, event: { count: 2, message: "(combined from similar events): no quota" } },
  ])
})
