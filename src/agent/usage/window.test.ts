import { describe, expect, it } from "vitest"
import { USAGE_POINTS, type UsagePoint } from "../../core/apis/usage.ts"
import type { Sample } from "./sample.ts"
import { UsageWindow } from "./window.ts"

const BEGIN = 1_800_000_000_000
const IDLE: Sample = { seconds: 5, cpu: 0, cpus: 4, memoryMib: 100 }

/** Adds a sample of 5 seconds for each of these, without a gap. Returns the window. */
function filled(samples: readonly Partial<Sample>[], window = new UsageWindow(), clock = { seconds: 0 }): UsageWindow {
  for (const sample of samples) {
    const whole = { ...IDLE, ...sample }
    clock.seconds += whole.seconds
    window.add(whole, { time: BEGIN + clock.seconds * 1000, monotonic: clock.seconds })
  }
  return window
}

/** Returns as many samples as a number of minutes has. */
function minutes(count: number, sample: (index: number) => Partial<Sample>): Partial<Sample>[] {
  return Array.from({ length: count * 12 }, (_, index) => sample(index))
}

const points = (window: UsageWindow): readonly UsagePoint[] => window.state.points

describe("the window of usage", () => {
  it("has one point for each minute: means of rates, the largest memory and disk, and all bytes", () => {
    const one = { cpu: 1, memoryMib: 200, diskGib: 5, receivedMib: 1, sentMib: 2 }
    const samples = minutes(1, (index) => (index === 3 ? { ...one, cpu: 4, memoryMib: 900, diskGib: 7 } : one))
    const gpu = { mean: 40, highest: 90, vramMib: 5000 }
    const window = filled([...samples, ...minutes(1, () => ({ ...one, gpu }))])
    expect(points(window)).toEqual([
      {
        ...{ time: BEGIN, seconds: 60, cpu: 1.25, memoryMib: 900, diskGib: 7, receivedMib: 12, sentMib: 24 },
      },
      {
        ...{ time: BEGIN + 60_000, seconds: 60, cpu: 1, memoryMib: 200, diskGib: 5, receivedMib: 12, sentMib: 24 },
        ...{ gpu: 40, vramMib: 5000 },
      },
    ])
    expect(window.usage()).toEqual({
      ...{ seconds: 120, cpuMean: 1.125, cpuPeak: 1.25, memoryPeakMib: 900, diskPeakGib: 7 },
      ...{ receivedGib: 0.0234, sentGib: 0.0469, gpuMean: 40, vramPeakMib: 5000 },
    })
  })

  it("has nothing for what was never known", () => {
    expect(new UsageWindow().usage()).toBeUndefined()
    const window = filled(minutes(1, () => ({})))
    expect(window.usage()).toEqual({ seconds: 60, cpuMean: 0, cpuPeak: 0, memoryPeakMib: 100 })
    expect(points(window)).toEqual([{ time: BEGIN, seconds: 60, cpu: 0, memoryMib: 100 }])
  })

  it("doesn't take a short last piece for a minute with much use", () => {
    const window = filled([...minutes(2, () => ({ cpu: 1 })), { cpu: 4 }])
    window.close()
    expect(window.usage()).toMatchObject({ seconds: 125, cpuMean: 1.12, cpuPeak: 1.12 })
    expect(points(window).at(-1)).toMatchObject({ seconds: 5, cpu: 4 })
  })

  it("takes a run of less than a minute as it is", () => {
    const window = filled([{ cpu: 1 }, { cpu: 3 }])
    window.close()
    expect(window.usage()).toMatchObject({ seconds: 10, cpuMean: 2, cpuPeak: 2 })
  })

  it("continues from the state of an earlier agent", () => {
    const clock = { seconds: 0 }
    const first = filled(
      minutes(2, () => ({ cpu: 3, memoryMib: 500 })),
      new UsageWindow(),
      clock,
    )
    const state = JSON.parse(JSON.stringify(first.state)) as typeof first.state
    const second = filled(
      minutes(2, () => ({ cpu: 1 })),
      new UsageWindow(state),
      clock,
    )
    expect(points(second).map(({ cpu }) => cpu)).toEqual([3, 3, 1, 1])
    expect(second.usage()).toMatchObject({ seconds: 240, cpuMean: 2, cpuPeak: 3, memoryPeakMib: 500 })
  })

  it("forgets only the points that are stored", () => {
    const window = filled(minutes(3, () => ({})))
    const [, second] = points(window)
    window.stored(second?.time ?? 0)
    expect(points(window).map(({ time }) => time)).toEqual([BEGIN + 120_000])
    window.stored(0)
    expect(points(window)).toHaveLength(1)
  })

  it("has growing times also after the clock was set back", () => {
    const window = filled(minutes(1, () => ({})))
    for (const sample of minutes(1, () => ({ ...IDLE }))) {
      window.add({ ...IDLE, ...sample }, { time: BEGIN - 3_600_000, monotonic: 1000 })
      window.close()
    }
    const times = points(window).map(({ time }) => time)
    expect(times).toEqual([...times].sort((one, other) => one - other))
    expect(new Set(times).size).toBe(times.length)
  })

  it("merges neighbours if nothing is ever stored, and keeps the newest minute and all sums", () => {
    const count = USAGE_POINTS * 5
    const window = filled(
      minutes(count, (index) => ({ cpu: index < 12 ? 4 : 1, memoryMib: index === 20 ? 999 : 10, receivedMib: 1 })),
    )
    const kept = points(window)
    expect(kept).toHaveLength(USAGE_POINTS)
    expect(kept.at(-1)).toMatchObject({ time: BEGIN + (count - 1) * 60_000, seconds: 60 })
    expect(kept[0]?.time).toBe(BEGIN)
    const sum = (value: (point: UsagePoint) => number) => kept.reduce((all, point) => all + value(point), 0)
    expect(sum(({ seconds }) => seconds)).toBe(count * 60)
    expect(sum(({ receivedMib = 0 }) => receivedMib)).toBe(count * 12)
    expect(sum(({ cpu, seconds }) => cpu * seconds)).toBeCloseTo((count + 3) * 60, -1)
    expect(Math.max(...kept.map(({ memoryMib }) => memoryMib))).toBe(999)
    // Lengths differ by a factor that follows from merging neighbours, so no piece of the run is lost.
    expect(Math.max(...kept.map(({ seconds }) => seconds))).toBeLessThanOrEqual(16 * 60)
  })
})
