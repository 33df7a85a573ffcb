import type { Clock } from "../../core/apis/clock.ts"
import { USAGE_POINTS, type UsagePoint } from "../../core/apis/usage.ts"
import type { ReportRequest, ReportResponse } from "../../core/protocol/protocol.ts"
import type { Meter } from "./meter.ts"

/** Shortest time between two reports with points, seconds. */
const INTERVAL_SECONDS = 60

/** Part of the reports that may have points. A gateway of many VMs asks for fewer reports, and then also for fewer points. */
const LEAST_HEARTBEATS = 2

/** Part of a report that has points. */
export type ReportedUsage = Pick<ReportRequest, "usage" | "usageAfter">

/**
 * Decides which points a report has: those that the gateway's replica does not hold. The meter keeps each of them until
 * it is stored, because the next report may reach a replica that holds none.
 */
export class UsageDelivery {
  readonly #meter: Pick<Meter, "points" | "stored">
  readonly #clock: Pick<Clock, "monotonic">
  /** Beginning of the last point that the replica holds, by its last answer, milliseconds since 1970. */
  #held: number | undefined
  /** Monotonic time from which a report may have points, seconds. */
  #dueAt = 0
  #intervalSeconds = INTERVAL_SECONDS

  constructor(meter: Pick<Meter, "points" | "stored">, clock: Pick<Clock, "monotonic">) {
    this.#meter = meter
    this.#clock = clock
  }

  /** Returns the points of the next report: those that are new, at most once a minute. With the finish, all that are not stored. */
  next(hasFinish: boolean): ReportedUsage {
    const now = this.#clock.monotonic()
    if (!hasFinish && now < this.#dueAt) return {}
    const { points } = this.#meter
    const after = hasFinish || mayBeMerged(points) ? undefined : this.#held
    const usage = points.filter(({ time }) => after === undefined || time > after)
    if (usage.length === 0) return {}
    this.#dueAt = now + this.#intervalSeconds
    return { usage, ...(after !== undefined && { usageAfter: after }) }
  }

  /** Takes the answer to a report with these points. */
  answered({ usage, usageAfter }: ReportedUsage, answer: ReportResponse): void {
    const { heartbeatSeconds, usageStored, usageHeld } = answer
    this.#intervalSeconds = Math.max(INTERVAL_SECONDS, LEAST_HEARTBEATS * heartbeatSeconds)
    if (usageStored !== undefined) this.#meter.stored(usageStored)
    if (usage === undefined) return
    this.#held = usageHeld
    // This replica lacks earlier points. It gets all of them with the next report.
    if (usageHeld === undefined && usageAfter !== undefined) this.#dueAt = this.#clock.monotonic()
  }
}

/** Returns true if a point may be merged with one that the replica holds: then the replica needs all of them again. */
function mayBeMerged(points: readonly UsagePoint[]): boolean {
  return points.length >= USAGE_POINTS
}
