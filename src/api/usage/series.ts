import { defined } from "../../core/apis/defined.ts"
import type { Usage, UsagePoint } from "../../core/apis/usage.ts"

/** Series of what the runs of a job used. All of it is pure. */

/** Point of one of the job's Launches. */
export interface LaunchPoint extends UsagePoint {
  /** Number of the Launch, from 1. */
  launch: number
}

/** Points that are kept of a job: 512 KiB at the most digits that a point may have. */
export const MOST_POINTS = 4096

/** Fields of a point in their order in a stored row, with the largest value of each. */
const LARGEST = {
  time: 2 ** 42,
  seconds: 1e7,
  cpu: 1e5,
  memoryMib: 1e8,
  diskGib: 1e6,
  receivedMib: 1e9,
  sentMib: 1e9,
  gpu: 100,
  vramMib: 1e7,
} as const satisfies Record<keyof UsagePoint, number>

type Field = keyof typeof LARGEST

const FIELDS = Object.keys(LARGEST) as Field[]

const REQUIRED: readonly Field[] = ["time", "seconds", "cpu", "memoryMib"]

/** Number of fields of a point. */
export const POINT_FIELDS = FIELDS.length

/** Digits after the point of stored numbers. */
const PRECISION = 1000

/**
 * Returns the point of these fields, each rounded and at most the largest value; undefined if a required one is no number
 * of at least 0. Another field that is none is left out.
 */
export function pointOf(fields: Readonly<Partial<Record<Field, unknown>>>): UsagePoint | undefined {
  return pointWith((field) => fields[field])
}

/** Returns the numbers of a point in the order of a row; NaN for one that is absent. */
export function numbersOf(point: UsagePoint): number[] {
  return FIELDS.map((field) => point[field] ?? Number.NaN)
}

/** Returns the point of a row of numbers that begins at an index. */
export function pointOfNumbers(numbers: ArrayLike<unknown>, start = 0): UsagePoint | undefined {
  return pointWith((_, index) => numbers[start + index])
}

function pointWith(numberOf: (field: Field, index: number) => unknown): UsagePoint | undefined {
  const point: Partial<Record<Field, number>> = {}
  for (let index = 0; index < FIELDS.length; index++) {
    const field = FIELDS[index] as Field
    const value = numberOf(field, index)
    if (typeof value !== "number" || !Number.isFinite(value) || value < 0) continue
    point[field] = Math.round(Math.min(LARGEST[field], value) * PRECISION) / PRECISION
  }
  if (REQUIRED.some((field) => point[field] === undefined)) return undefined
  point.time = Math.floor(point.time ?? 0)
  return point as UsagePoint
}

/** Returns the series with the Launch's newer points. A point that is stored already is not added again. */
export function withPoints(
  series: readonly LaunchPoint[],
  launch: number,
  points: readonly UsagePoint[],
): LaunchPoint[] {
  const last = series.findLast((point) => point.launch === launch)?.time ?? -1
  const fresh = points.filter(({ time }) => time > last).map((point) => ({ ...point, launch }))
  // The points of two Launches may come in any order.
  return thinned([...series, ...fresh].sort((a, b) => a.launch - b.launch || a.time - b.time))
}

/** Merges neighbours, the oldest ones first, until MOST_POINTS are left. */
function thinned(series: LaunchPoint[]): LaunchPoint[] {
  let points = series
  while (points.length > MOST_POINTS) {
    const half = points.length >> 1
    const older = pairsOf(points.slice(0, half))
    // No two of one Launch are neighbours.
    const kept = older.length === half ? older.slice(points.length - MOST_POINTS) : older
    points = [...kept, ...points.slice(half)]
  }
  return points
}

function pairsOf(points: readonly LaunchPoint[]): LaunchPoint[] {
  const pairs: LaunchPoint[] = []
  for (let index = 0; index < points.length; index++) {
    const [one, next] = [points[index], points[index + 1]]
    if (one === undefined) continue
    const isPair = next?.launch === one.launch
    pairs.push(isPair ? mergedPoint(one, next) : one)
    if (isPair) index++
  }
  return pairs
}

/** Returns one point for two: means of rates, largest sizes, sums of traffic. */
function mergedPoint(one: LaunchPoint, next: LaunchPoint): LaunchPoint {
  const pair = [one, next]
  const merged = pointOf({
    time: one.time,
    seconds: one.seconds + next.seconds,
    cpu: meanOf(pair, "cpu"),
    ...largestOf(pair),
    gpu: meanOf(pair, "gpu"),
    receivedMib: sumOf(pair, "receivedMib"),
    sentMib: sumOf(pair, "sentMib"),
  })
  return { ...(merged ?? one), launch: one.launch }
}

function valuesOf(points: readonly UsagePoint[], field: Field): number[] {
  return points.map((point) => point[field]).filter((value) => value !== undefined)
}

function sumOf(points: readonly UsagePoint[], field: Field): number | undefined {
  const values = valuesOf(points, field)
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0)
}

function peakOf(points: readonly UsagePoint[], field: Field): number | undefined {
  const values = valuesOf(points, field)
  return values.length === 0 ? undefined : values.reduce((peak, value) => Math.max(peak, value), 0)
}

/** Returns the mean over the time of the points that have the field. */
function meanOf(points: readonly UsagePoint[], field: Field): number | undefined {
  const having = points.filter((point) => point[field] !== undefined)
  const seconds = having.reduce((sum, point) => sum + point.seconds, 0)
  if (seconds === 0) return having[0]?.[field]
  return having.reduce((sum, point) => sum + (point[field] ?? 0) * point.seconds, 0) / seconds
}

function largestOf(points: readonly UsagePoint[]) {
  const [memoryMib, diskGib, vramMib] = [
    peakOf(points, "memoryMib"),
    peakOf(points, "diskGib"),
    peakOf(points, "vramMib"),
  ]
  return { memoryMib, diskGib, vramMib }
}

/** Returns what all points are together, in the form of a finish; undefined without a point. */
export function summaryOf(points: readonly UsagePoint[]): Usage | undefined {
  if (points.length === 0) return undefined
  const { memoryMib = 0, diskGib, vramMib } = largestOf(points)
  const gib = (mib: number | undefined) => (mib === undefined ? undefined : round(mib / 1024))
  const mean = meanOf(points, "gpu")
  return {
    seconds: Math.round(sumOf(points, "seconds") ?? 0),
    cpuMean: round(meanOf(points, "cpu") ?? 0),
    cpuPeak: peakOf(points, "cpu") ?? 0,
    memoryPeakMib: memoryMib,
    ...defined({
      diskPeakGib: diskGib,
      receivedGib: gib(sumOf(points, "receivedMib")),
      sentGib: gib(sumOf(points, "sentMib")),
      gpuMean: mean === undefined ? undefined : round(mean),
      vramPeakMib: vramMib,
    }),
  }
}

function round(value: number): number {
  return Math.round(value * PRECISION) / PRECISION
}

/** Returns a series as stored bytes: a row of the Launch's number and the fields for each point. */
export function encodeSeries(series: readonly LaunchPoint[]): Uint8Array {
  const rows = series.map((point) => [point.launch, ...FIELDS.map((field) => point[field] ?? null)])
  return Buffer.from(JSON.stringify({ fields: ["launch", ...FIELDS], rows }))
}

/** Returns the series in stored bytes. Rows that can't be read are left out. */
export function decodeSeries(bytes: Uint8Array): LaunchPoint[] {
  let rows: unknown
  try {
    rows = (JSON.parse(Buffer.from(bytes).toString()) as { rows?: unknown } | null)?.rows
  } catch {
    // A file that was cut off, as by a crash of the disk. The next points replace it.
    return []
  }
  return (Array.isArray(rows) ? rows : []).flatMap((row: unknown) => {
    if (!Array.isArray(row) || !Number.isSafeInteger(row[0])) return []
    const point = pointOfNumbers(row, 1)
    return point === undefined ? [] : [{ ...point, launch: row[0] as number }]
  })
}
