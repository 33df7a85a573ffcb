import { expect, it } from "vitest"
import { systemClock } from "./clock.ts"
import { CreationTimes, creationTimeOf, newestFirst } from "./creation-times.ts"
import type { StoredJob } from "./job.ts"
import { ANNOTATIONS } from "./meta.ts"

it("returns increasing times with microseconds, also when the clock stands or jumps back", () => {
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

it("sorts by the façade's time, then creationTimestamp, then uid, newest first; an annotation that is bad, or far from creationTimestamp, counts for nothing", () => {
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
