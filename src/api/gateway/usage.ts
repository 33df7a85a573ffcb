import Type, { type Static } from "typebox"
import type { AgentStatus } from "../../core/apis/launch.ts"
import { USAGE_POINTS, type Usage, type UsagePoint } from "../../core/apis/usage.ts"
import { type ReportRequest, ReportRequestSchema } from "../../core/protocol/protocol.ts"
import { pointOf } from "../usage/series.ts"
import type { ReportedPoints } from "../usage/tails.ts"

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
  usageAfter: Type.Optional(Type.Unknown()),
})
type ReceivedReport = Static<typeof ReceivedReportSchema>

/** Largest difference of a VM's clock, seconds. Points before the run by more are dropped; later ones are too early. */
const SKEW_SECONDS = 60

/** Times of a run, milliseconds since 1970. */
interface Bounds {
  from: number
  until: number
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
  received: ReceivedReport,
  bounds: Bounds,
): { report: ReportRequest; reported?: ReportedPoints } {
  const { usage: _, usageAfter: __, finish, ...report } = received
  const reported = pointsIn(received, bounds)
  const sound = finish && finishIn(finish, bounds)
  return { report: { ...report, ...(sound && { finish: sound }) }, ...(reported && { reported }) }
}

function pointsIn({ usage, usageAfter, finish }: ReceivedReport, { from, until }: Bounds): ReportedPoints | undefined {
  if (!Array.isArray(usage)) return undefined
  const all = usage.slice(-USAGE_POINTS).flatMap((each: unknown) => {
    const point = typeof each === "object" && each !== null ? pointOf(each) : undefined
    return point === undefined ? [] : [point]
  })
  if (all.length === 0) return undefined
  all.sort((a, b) => a.time - b.time)
  // If the VM's clock is ahead, its last points come again with later reports, except after the finish.
  const isEarly = ({ time, seconds }: UsagePoint) => time + (finish === undefined ? seconds * 1000 : 0) > until
  const early = all.findIndex(isEarly)
  const taken = early < 0 ? all : all.slice(0, early)
  const points = taken
    .filter(({ time }, index) => time >= from && time !== taken[index + 1]?.time)
    .map((point) => ({ ...point, seconds: Math.min(point.seconds, (until - point.time) / 1000) }))
  const after = typeof usageAfter === "number" && Number.isFinite(usageAfter) ? usageAfter : undefined
  return { points, upTo: taken.at(-1)?.time ?? -1, ...(after !== undefined && { after }) }
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
