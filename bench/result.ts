/**
 * One comparison. `ours` and `peer` are medians in the unit that `what` names. `ratio` is the median of the rounds'
 * ratios, because other load of the machine varies more between rounds than within one.
 */
export interface BenchRow {
  what: string
  ours: number
  peer: number
  ratio: number
  goal: number
  reached: boolean
}

/** Results of a benchmark. `spread` has the lowest and highest round of each contender. */
export interface BenchResult {
  name: string
  rows: BenchRow[]
  spread: Record<string, [number, number]>
}

/** JSON output of a run: of one benchmark, or of all under the name `all`. */
export interface BenchReport extends BenchResult {
  machine: { cpus: number; model: string; memoryGib: number; system: string; node: string; date: string }
}

/** A part of a result. */
export type Measured = Pick<BenchResult, "rows" | "spread">

/** Options of a benchmark. */
export interface BenchContext {
  /** Receives progress, for people. */
  report(line: string): void
  /** KUBEBUILDER_ASSETS and XDG_CACHE_HOME, if set. */
  assetsDir: string | undefined
  /** Number of jobs, and duration of each turn: for quick runs during development. */
  sizes?: number[]
  seconds?: number
  /** Folder for CPU profiles of operator and façade; absent for none. */
  profileDir?: string
  /** Folder of another checkout of Berth, with its packages, to compare this one with. */
  baseline?: string
  cacheHome: string | undefined
}

/** Compares values of the same rounds, in this order. More is better: ours must be `goal` times as much. */
export function compare(what: string, ours: number[], peer: number[], goal: number): BenchRow {
  return rowOf(what, { ours, peer, goal }, (own, other) => own / other)
}

/** Compares values of which less is better, like `compare`: the peer's must be `goal` times as much as ours. */
export function compareLess(what: string, ours: number[], peer: number[], goal: number): BenchRow {
  return rowOf(what, { ours, peer, goal }, (own, other) => other / own)
}

/** Returns a row whose peer is a limit. */
export function within(what: string, values: number[], limit: number): BenchRow {
  return compareLess(
    what,
    values,
    values.map(() => limit),
    1,
  )
}

interface Rounds {
  ours: number[]
  peer: number[]
  goal: number
}

function rowOf(what: string, { ours, peer, goal }: Rounds, times: (ours: number, peer: number) => number): BenchRow {
  if (ours.length !== peer.length) throw new RangeError(`${what}: ${ours.length} rounds against ${peer.length}`)
  const ratio = median(ours.map((value, index) => times(value, peer[index] ?? Number.NaN)))
  return {
    what,
    ours: round(median(ours)),
    peer: round(median(peer)),
    ratio: round(ratio),
    goal: round(goal),
    reached: ratio >= goal,
  }
}

/** Returns the middle value, or the mean of the two middle ones. */
export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length / 2
  const [low, high] = [sorted[Math.ceil(middle) - 1], sorted[Math.floor(middle)]]
  if (low === undefined || high === undefined) throw new RangeError("no values: a median needs at least one")
  return (low + high) / 2
}

/** Returns the lowest and the highest value. */
export function spreadOf(values: number[]): [number, number] {
  return [round(Math.min(...values)), round(Math.max(...values))]
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
