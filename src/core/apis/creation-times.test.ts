import fc from "fast-check"
import { expect, it } from "vitest"
import { systemClock } from "./clock.ts"
import { CreationTimes, creationBound, creationKey, creationTimeOf, newestFirst } from "./creation-times.ts"
import type { StoredJob } from "./job.ts"
import { ANNOTATIONS } from "./meta.ts"

it("creation times increase by microseconds, also when the clock stands or jumps back", () => {
  const readings = [
    "2026-01-01T00:00:00.999Z",
    "2026-01-01T00:00:00.999Z",
    "2025-01-01T00:00:00.000Z",
    "2026-01-01T00:00:02.000Z",
  ]
  const times = new CreationTimes({ ...systemClock, now: () => new Date(readings.shift() ?? "") })
  expect([times.next(), times.next(), times.next(), times.next()]).toEqual([
    "2026-01-01T00:00:00.999000Z",
    "2026-01-01T00:00:00.999001Z",
    "2026-01-01T00:00:00.999002Z",
    "2026-01-01T00:00:02.000000Z",
  ])
})

it("objects sort by the façade's time, then creationTimestamp, then uid, newest first; an annotation that is bad, or far from creationTimestamp, counts for nothing", () => {
  const job = (uid: string, creationTimestamp: string, createdAt?: string) =>
    ({
      metadata: {
        uid,
        creationTimestamp,
        annotations: createdAt === undefined ? {} : { [ANNOTATIONS.createdAt]: createdAt },
      },
    }) as StoredJob
  const jobs = [
    job("a", "2026-01-01T00:00:01Z", "2026-01-01T00:00:01.000002Z"),
    job("b", "2026-01-01T00:00:01Z", "2026-01-01T00:00:01.000001Z"),
    job("c", "2026-01-01T00:00:01Z"),
    job("d", "2026-01-01T00:00:01Z", "9999 or so"),
    job("e", "2026-01-01T00:00:02Z"),
    job("f", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01.000002Z"),
    job("g", "2026-01-01T00:00:03Z", "2025-12-31T23:59:57.999999Z"),
    job("h", "2025-12-31T23:59:59Z", "2026-01-01T00:00:04.001000Z"),
    job("i", "2026-03-03T00:00:00Z", "2026-02-31T00:00:00.000001Z"),
  ]
  expect(jobs.sort(newestFirst).map(({ metadata }) => metadata.uid)).toEqual([
    "i",
    "g",
    "e",
    "a",
    "f",
    "b",
    "d",
    "c",
    "h",
  ])
  expect(jobs.map(creationTimeOf)).toEqual([
    "2026-03-03T00:00:00Z",
    "2026-01-01T00:00:03Z",
    "2026-01-01T00:00:02Z",
    "2026-01-01T00:00:01.000002Z",
    "2026-01-01T00:00:01.000002Z",
    "2026-01-01T00:00:01.000001Z",
    "2026-01-01T00:00:01Z",
    "2026-01-01T00:00:01Z",
    "2025-12-31T23:59:59Z",
  ])
})

const uid = "5ea07726-efd2-42ec-a095-6d7674666e31"

/** Returns RFC 3339 with the digits of a fraction, in a zone. */
function timeText(milliseconds: number, digits: string, zoneHours: number): string {
  const local = new Date(milliseconds + zoneHours * 3_600_000).toISOString().slice(0, 19)
  const zone = `${zoneHours < 0 ? "-" : "+"}${String(Math.abs(zoneHours)).padStart(2, "0")}:00`
  return `${local}${digits === "" ? "" : `.${digits}`}${zoneHours === 0 ? "Z" : zone}`
}

it("a bound is above the keys of exactly those objects that were created before its time", () => {
  const second = fc.integer({ min: 1_700_000_000, max: 1_700_000_003 })
  const digits = fc.array(fc.constantFrom("0", "4", "9"), { maxLength: 9 }).map((all) => all.join(""))
  fc.assert(
    fc.property(
      second,
      digits,
      second,
      digits,
      fc.integer({ min: -12, max: 14 }),
      (created, micros, at, bound, zone) => {
        const six = micros.slice(0, 6).padEnd(6, "0")
        const annotations = { [ANNOTATIONS.createdAt]: timeText(created * 1000, six, 0) }
        const creationTimestamp = timeText(created * 1000, "", 0)
        const key = creationKey({
          metadata: { name: "a", uid, resourceVersion: "1", generation: 1, creationTimestamp, annotations },
        })
        const nanoseconds = (seconds: number, fraction: string) =>
          BigInt(seconds) * 1_000_000_000n + BigInt(fraction.padEnd(9, "0"))
        const isEarlier = nanoseconds(created, six) < nanoseconds(at, bound)
        expect(key < creationBound(timeText(at * 1000, bound, zone))).toBe(isEarlier)
      },
    ),
  )
})
