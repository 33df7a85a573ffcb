import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { UsagePoint } from "../../core/apis/usage.ts"
import {
  decodeSeries,
  encodeSeries,
  type LaunchPoint,
  MOST_POINTS,
  numbersOf,
  pointOf,
  pointOfNumbers,
  summaryOf,
  withPoints,
} from "./series.ts"

const START = 1_767_225_600_000

/** Point of a minute. */
function point(minute: number, fields: Partial<UsagePoint> = {}): UsagePoint {
  return { time: START + minute * 60_000, seconds: 60, cpu: 1.5, memoryMib: 512, ...fields }
}

const many = (count: number, from = 0, fields: Partial<UsagePoint> = {}) =>
  Array.from({ length: count }, (_, index) => point(from + index, fields))

const sum = (points: readonly UsagePoint[], of: (point: UsagePoint) => number) =>
  points.reduce((total, each) => total + of(each), 0)

describe("a series of usage", () => {
  it("has each point once, however often it comes, and points of several VMs in order", () => {
    const first = withPoints([], 1, many(30))
    const again = withPoints(first, 1, many(40))
    expect(again).toEqual(withPoints([], 1, many(40)))
    const second = withPoints(again, 2, many(2, 50))
    expect(withPoints(second, 1, many(45)).map(({ launch }) => launch)).toEqual([...Array(45).fill(1), 2, 2])
  })

  it("takes at most 512 KiB with the longest numbers, and keeps time, means, peaks and sums of what it merges", () => {
    const longest = pointOf(Object.fromEntries(["seconds", "cpu"].map((field) => [field, 0.001])) as object)
    expect(longest).toBeUndefined()
    const most = Number.MAX_VALUE
    const fields = { cpu: 99_999.123, memoryMib: most, diskGib: most, receivedMib: 0.123, sentMib: 1.001, gpu: 99.123 }
    let series: LaunchPoint[] = []
    const days = 30
    for (let day = 0; day < days; day++) {
      const received = many(1440, day * 1440, { ...fields, vramMib: 9_999_999.123 })
      series = withPoints(
        series,
        123_456_789,
        received.flatMap((each) => pointOf(each) ?? []),
      )
    }
    expect(encodeSeries(series).byteLength).toBeLessThanOrEqual(512 * 1024)
    expect(series.length).toBeGreaterThan(MOST_POINTS / 4)
    expect(sum(series, ({ seconds }) => seconds)).toBe(days * 86_400)
    expect(sum(series, ({ receivedMib = 0 }) => receivedMib)).toBeCloseTo(days * 1440 * 0.123, 3)
    expect(series[0]).toMatchObject({ time: START, cpu: 99_999.123, memoryMib: 1e8, gpu: 99.123 })
    // The last points are as they came.
    expect(series.slice(-1000).every(({ seconds }) => seconds === 60)).toBe(true)
  })

  it("drops the oldest points of so many VMs that no two can be merged", () => {
    let series: LaunchPoint[] = []
    for (let launch = 1; launch <= MOST_POINTS + 10; launch++)
      series =
        launch < MOST_POINTS - 5
          ? [...series, { ...point(launch), launch }]
          : withPoints(series, launch, [point(launch)])
    expect(series.length).toBe(MOST_POINTS)
    expect(series[0]?.launch).toBe(11)
    expect(series.at(-1)?.launch).toBe(MOST_POINTS + 10)
  })

  it("is the same after it was stored, and reads what it can of bytes that were changed", () => {
    const series = withPoints([], 3, [point(0), point(1, { gpu: 40.5, vramMib: 1024, diskGib: 3.25 })])
    expect(decodeSeries(encodeSeries(series))).toEqual(series)
    const broken = { rows: [[1, 2], "no", [1, START, 60, -1, 5], [2, START, 60, 1, 5, null, null, null, null, null]] }
    expect(decodeSeries(Buffer.from(JSON.stringify(broken)))).toEqual([
      { launch: 2, time: START, seconds: 60, cpu: 1, memoryMib: 5 },
    ])
    for (const bytes of ["", "nul", "null", "[1]", '{"rows":5}']) expect(decodeSeries(Buffer.from(bytes))).toEqual([])
  })

  it("has any point that it takes within its limits, as numbers and back", () => {
    const other = fc.oneof(fc.double(), fc.constant(Number.NaN), fc.string(), fc.constant(null), fc.bigInt())
    const field = fc.oneof({ weight: 9, arbitrary: fc.double({ min: 0, noNaN: true }) }, other)
    const anything = fc.record({
      time: field,
      seconds: field,
      cpu: field,
      memoryMib: field,
      gpu: field,
      vramMib: field,
    })
    fc.assert(
      fc.property(anything, (given) => {
        const taken = pointOf(given)
        if (taken === undefined) return fc.pre(false)
        expect(Object.values(taken).every((value) => Number.isFinite(value) && value >= 0 && value <= 2 ** 42)).toBe(
          true,
        )
        expect(pointOfNumbers(numbersOf(taken))).toEqual(taken)
      }),
    )
  })

  it("is summed up as a finish has it", () => {
    expect(summaryOf([])).toBeUndefined()
    const points = [
      point(0, { cpu: 1, memoryMib: 900, receivedMib: 512, diskGib: 4 }),
      point(1, { cpu: 3, memoryMib: 700, receivedMib: 512, gpu: 40, vramMib: 2000 }),
      point(2, { seconds: 120, cpu: 2, gpu: 70, vramMib: 1000 }),
    ]
    expect(summaryOf(points)).toEqual({
      ...{ seconds: 240, cpuMean: 2, cpuPeak: 3, memoryPeakMib: 900, diskPeakGib: 4, receivedGib: 1 },
      ...{ gpuMean: 60, vramPeakMib: 2000 },
    })
  })
})
