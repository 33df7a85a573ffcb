import Type, { type Static } from "typebox"
import type { AgentStatus } from "../../core/apis/launch.ts"
import { USAGE_POINTS, type Usage, type UsagePoint } from "../../core/apis/usage.ts"
import { type ReportRequest, ReportRequestSchema } from "../../core/protocol/protocol.ts"
import { pointOf } from "../usage/series.ts"

/**
 * Reads what a VM says about its use. A user may have the VM's keys, and its agent may be of another version, so nothing is
 * taken as it is, and nothing of it makes a report invalid.
 */

const { finish } = ReportRequestSchema.properties

/** Report as it is received: its usage may be anything. */
export const ReceivedReportSchema = Type.Object({
  ...ReportRequestSchema.properties,
  finish: Type.Optional(Type.Object({ ...finish.properties, usage: Type.Optional(Type.Unknown()) })),
  usage: Type.Optional(Type.Unknown()),
})
type ReceivedReport = Static<typeof ReceivedReportSchema>

/** Largest difference of a VM's clock, seconds. Points outside of the run's time by more are dropped. */
const SKEW_SECONDS = 60

/** Times of a run, milliseconds since 1970. */
interface Bounds {
  from: number
  until: number
}

/** Usage as a report has it. */
export interface ReportedUsage {
  /** Points in order, all within the run's time. */
  points: UsagePoint[]
  /** Beginning of the last reported point, also of one that was dropped: the agent sends it no more once this is stored. */
  upTo: number
}

/** Returns the times that points of a Launch may have. */
export function boundsOf({ registrationTime }: AgentStatus, now: Date): Bounds {
  return {
    from: Date.parse(registrationTime) - SKEW_SECONDS * 1000,
    until: now.getTime() + SKEW_SECONDS * 1000,
  }
}

/** Returns the report without what is no usage; `reported` is absent if it has no points. */
export function readUsage(
  { usage, finish: received, ...report }: ReceivedReport,
  bounds: Bounds,
): { report: ReportRequest; reported?: ReportedUsage } {
  const reported = pointsIn(usage, bounds)
  const sound = received && finishIn(received, bounds)
  return { report: { ...report, ...(sound && { finish: sound }) }, ...(reported && { reported }) }
}

function pointsIn(usage: unknown, { from, until }: Bounds): ReportedUsage | undefined {
  if (!Array.isArray(usage)) return undefined
  let upTo = -1
  const points = new Map<number, UsagePoint>()
  for (const each of usage.slice(-USAGE_POINTS)) {
    const point = typeof each === "object" && each !== null ? pointOf(each as object) : undefined
    if (point === undefined) continue
    const { time } = point
    upTo = Math.max(upTo, time)
    if (time < from || time > until) continue
    points.set(time, { ...point, seconds: Math.min(point.seconds, (until - time) / 1000) })
  }
  if (upTo < 0) return undefined
  return { points: [...points.values()].sort((a, b) => a.time - b.time), upTo }
}

function finishIn(
  { usage, ...same }: NonNullable<ReceivedReport["finish"]>,
  { from, until }: Bounds,
): NonNullable<ReportRequest["finish"]> {
  const sound = usageIn(usage, (until - from) / 1000)
  return { ...same, ...(sound && { usage: sound }) }
}

/** Largest values of a run's usage, beside its time. */
const LARGEST = {
  cpuMean: 1e5,
  cpuPeak: 1e5,
  memoryPeakMib: 1e8,
  diskPeakGib: 1e6,
  receivedGib: 1e7,
  sentGib: 1e7,
  gpuMean: 100,
  vramPeakMib: 1e7,
}

/** Returns the usage of a finish, with bounded values; undefined if a required one is missing. */
function usageIn(usage: unknown, longest: number): Usage | undefined {
  if (typeof usage !== "object" || usage === null) return undefined
  const largest: Record<string, number> = { seconds: longest, ...LARGEST }
  const given = usage as Record<string, unknown>
  const numbers: Record<string, number> = {}
  for (const [field, most] of Object.entries(largest)) {
    const value = given[field]
    if (typeof value !== "number" || !Number.isFinite(value) || value < 0) continue
    numbers[field] = Math.round(Math.min(most, value) * 1000) / 1000
  }
  const { seconds: measured, cpuMean, cpuPeak, memoryPeakMib, ...others } = numbers
  if (measured === undefined || cpuMean === undefined || cpuPeak === undefined || memoryPeakMib === undefined)
    return undefined
  return { seconds: Math.floor(measured), cpuMean, cpuPeak, memoryPeakMib, ...others }
}
