import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { JobRecord } from "../client/client.ts"
import { historyOf } from "./history.ts"

const INTERVALS = 96

interface Times {
  start: number | null
  end: number | null
  usd: number
}

const textOf = (time: number | null): string | null => (time === null ? null : new Date(time).toISOString())

function jobOf({ start, end, usd }: Times, index: number): JobRecord {
  const job = { id: `job-${index}`, started_at: textOf(start), ended_at: textOf(end), hourly_price_usd: usd }
  return { ...job, cost_breakdown: null } as JobRecord
}

/** Counts the jobs at one moment, one after the other. */
function at(jobs: readonly Times[], time: number): { running: number; usd: number } {
  const there = jobs.filter(({ start, end }) => start !== null && start <= time && (end ?? Infinity) > time)
  const moments = jobs.filter(({ start, end }) => start === time && end !== null && end <= time)
  const all = [...there, ...moments]
  return { running: all.length, usd: all.reduce((sum, { usd }) => sum + usd, 0) }
}

/** Counts at every millisecond of each interval. */
function counted(jobs: readonly Times[], from: number, width: number) {
  return Array.from({ length: INTERVALS }, (_, interval) => {
    const start = from + interval * width
    const length = interval === INTERVALS - 1 ? width + 1 : width
    const all = Array.from({ length }, (_, more) => at(jobs, start + more))
    return {
      running: Math.max(...all.map(({ running }) => running)),
      usd: Math.max(...all.map(({ usd }) => usd)),
    }
  })
}

// Halves and quarters add up without a rounding error.
const usd = fc.integer({ min: 0, max: 40 }).map((quarters) => quarters / 4)
const time = fc.integer({ min: 0, max: 700 })
const times = fc.oneof(
  fc.record({ start: time, end: fc.option(time), usd }),
  fc
    .record({ start: time, length: fc.nat(4), usd })
    .map(({ start, length, usd }) => ({ start, end: start + length, usd })),
  fc.record({ start: fc.constant(null), end: fc.option(time), usd }),
)

describe("the history of jobs", () => {
  it("has the most jobs and the highest price at the same time in each interval, as a count at every moment finds them", () => {
    const width = fc.integer({ min: 1, max: 5 })
    fc.assert(
      fc.property(fc.array(times, { maxLength: 25 }), fc.integer({ min: 0, max: 300 }), width, (jobs, from, wide) => {
        const { running, usdPerHour } = historyOf(jobs.map(jobOf), from, from + INTERVALS * wide)
        const expected = counted(jobs, from, wide)
        expect(running).toEqual(expected.map((one) => one.running))
        expect(usdPerHour).toEqual(expected.map((one) => one.usd))
      }),
      { numRuns: 300 },
    )
  })

  it("sees jobs that are shorter than an interval", () => {
    const day = 86_400_000
    const short = Array.from({ length: 57 }, (_, index) => ({
      start: index * 1_500_000,
      end: index * 1_500_000 + 900,
      usd: 1,
    }))
    const { running } = historyOf(short.map(jobOf), 0, day)
    expect(Math.max(...running)).toBe(1)
    expect(running.filter((most) => most === 1)).toHaveLength(57)
    const together = short.map(({ usd }) => ({ start: 5000, end: 5000, usd }))
    expect(historyOf(together.map(jobOf), 0, day).running[0]).toBe(57)
  })

  it("counts a job once that two lists have, with the price of the whole machine", () => {
    const job = {
      ...jobOf({ start: 0, end: null, usd: 1 }, 1),
      cost_breakdown: { total_usd_per_hour: 1.25 },
    } as JobRecord
    const { running, usdPerHour } = historyOf([job, { ...job }], 0, 960)
    expect([new Set(running), new Set(usdPerHour)]).toEqual([new Set([1]), new Set([1.25])])
  })
})
