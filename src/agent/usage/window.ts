import { defined } from "../../core/apis/defined.ts"
import { USAGE_POINTS, type Usage, type UsagePoint } from "../../core/apis/usage.ts"
import type { Sample } from "./sample.ts"

/** Length of a point, seconds. */
const POINT_SECONDS = 60

const MIB_PER_GIB = 1024

/** Use in a piece of time, without its beginning. */
type Use = Omit<UsagePoint, "time">

/** Use of a run, as it survives a restart of the agent. */
export interface UsageState {
  /** Use over all its measured time. */
  total?: Use
  /** Most vCPUs in use in a minute. */
  cpuPeak: number
  /** Points that the gateway has not stored yet, oldest first. */
  points: UsagePoint[]
}

/** Collects the samples of a run: a point for each minute, and the use over all its time. */
export class UsageWindow {
  #state: UsageState
  /** The point that is not complete, and the monotonic time of its beginning, seconds. */
  #open: { point: UsagePoint; start: number } | undefined
  #lastTime: number

  /** @param state what an earlier agent of this disk has measured */
  constructor(state: UsageState = { cpuPeak: 0, points: [] }) {
    this.#state = state
    this.#lastTime = state.points.at(-1)?.time ?? 0
  }

  get state(): UsageState {
    return this.#state
  }

  /**
   * Adds a sample. Returns true if it has completed a point.
   * @param end of the sample: milliseconds since 1970, and seconds of the monotonic clock
   */
  add(sample: Sample, end: { time: number; monotonic: number }): boolean {
    const use = useOf(sample)
    this.#state = { ...this.#state, total: both(this.#state.total, use) }
    if (this.#open === undefined) {
      // Times grow also if the VM's clock was set back, because the gateway names what it has stored by them.
      const time = Math.max(Math.round(end.time - use.seconds * 1000), this.#lastTime + 1)
      this.#open = { point: { time, ...use }, start: end.monotonic - use.seconds }
    } else {
      this.#open.point = { ...this.#open.point, ...both(this.#open.point, use) }
    }
    // Half a sample, so that points have a minute in the mean.
    if (end.monotonic - this.#open.start + use.seconds / 2 < POINT_SECONDS) return false
    this.close()
    return true
  }

  /** Completes the current point early, for example at the end of the run. */
  close(): void {
    if (this.#open === undefined) return
    const { point } = this.#open
    const { total, cpuPeak, points } = this.#state
    this.#open = undefined
    this.#lastTime = point.time
    // A short last piece with much use is no minute with much use.
    const least = Math.min(POINT_SECONDS, total?.seconds ?? 0)
    const cpu = (point.cpu * point.seconds) / Math.max(point.seconds, least)
    this.#state = { ...this.#state, cpuPeak: Math.max(cpuPeak, cpu), points: thinned([...points, rounded(point)]) }
  }

  /** Forgets the points up to the one that begins at this time, milliseconds since 1970. */
  stored(time: number): void {
    this.#state = { ...this.#state, points: this.#state.points.filter((point) => point.time > time) }
  }

  /** Returns the use over the whole run; undefined if nothing was measured. */
  usage(): Usage | undefined {
    const { total, cpuPeak } = this.#state
    if (total === undefined) return undefined
    const { seconds, cpu, memoryMib, diskGib, receivedMib, sentMib, gpu, vramMib } = rounded(total)
    return {
      seconds: Math.round(seconds),
      cpuMean: cpu,
      cpuPeak: Math.max(round(cpuPeak, 3), cpu),
      memoryPeakMib: memoryMib,
      ...(diskGib !== undefined && { diskPeakGib: diskGib }),
      ...(receivedMib !== undefined && { receivedGib: round(receivedMib / MIB_PER_GIB, 4) }),
      ...(sentMib !== undefined && { sentGib: round(sentMib / MIB_PER_GIB, 4) }),
      ...(gpu !== undefined && { gpuMean: gpu }),
      ...(vramMib !== undefined && { vramPeakMib: vramMib }),
    }
  }
}

function useOf({ cpus: _, gpu: { mean, vramMib } = {}, ...rest }: Sample): Use {
  return { ...rest, ...(mean !== undefined && { gpu: mean }), ...(vramMib !== undefined && { vramMib }) }
}

/** Returns the use of two pieces of time: the mean of rates, the largest of memory and disk, the sum of the rest. */
function both(one: Use | undefined, other: Use): Use {
  if (one === undefined) return other
  const seconds = one.seconds + other.seconds
  const mean = (first: number, second: number) => (first * one.seconds + second * other.seconds) / seconds
  const use = {
    ...{ seconds, cpu: mean(one.cpu, other.cpu), memoryMib: Math.max(one.memoryMib, other.memoryMib) },
    diskGib: known(Math.max, one.diskGib, other.diskGib),
    receivedMib: known(sum, one.receivedMib, other.receivedMib),
    sentMib: known(sum, one.sentMib, other.sentMib),
    gpu: known(mean, one.gpu, other.gpu),
    vramMib: known(Math.max, one.vramMib, other.vramMib),
  }
  return defined(use)
}

function sum(one: number, other: number): number {
  return one + other
}

/** Combines two values, of which any may be unknown. */
function known(
  combine: (one: number, other: number) => number,
  one: number | undefined,
  other: number | undefined,
): number | undefined {
  return one === undefined || other === undefined ? (one ?? other) : combine(one, other)
}

/**
 * Merges neighbours, the shortest and then the oldest first, until one report can have all points. The last point stays:
 * the gateway may have stored the one before it, and would take it for that one.
 */
function thinned(points: readonly UsagePoint[]): UsagePoint[] {
  const kept = [...points]
  while (kept.length > USAGE_POINTS) {
    const lengths = kept.slice(1, -1).map((point, index) => point.seconds + (kept[index]?.seconds ?? 0))
    const at = lengths.indexOf(Math.min(...lengths))
    const [one, other] = kept.slice(at, at + 2)
    if (one === undefined || other === undefined) break
    kept.splice(at, 2, rounded({ ...both(one, other), time: one.time }))
  }
  return kept
}

/** Digits after the point that a measurement is worth. */
const DIGITS: Record<keyof Use, number> = {
  ...{ seconds: 1, cpu: 3, memoryMib: 1, diskGib: 2, receivedMib: 2, sentMib: 2, gpu: 1, vramMib: 0 },
}

function rounded<Value extends Use>(use: Value): Value {
  const entries = Object.entries(DIGITS).flatMap(([name, digits]) => {
    const value = use[name as keyof Use]
    return value === undefined ? [] : [[name, round(value, digits)] as const]
  })
  return { ...use, ...Object.fromEntries(entries) }
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits))
}
