import { type SpendCaps, type SpendingStatus, THRESHOLDS, WITHIN_CAPS } from "../../core/apis/caps.ts"
import { condition, setCondition } from "../../core/apis/conditions.ts"
import type { Condition } from "../../core/apis/schema.ts"
import { monthOf } from "../../core/apis/statement.ts"
import type { EventNote } from "../../core/kube/events.ts"
import { reservedUsd, type Spending, spentUsd } from "../../market/placement/caps.ts"
import { usd } from "../../market/router/explain.ts"

/** Caps of an object or the installation, and what was written about them. */
export interface CapsObservation {
  /** Level for people, such as `project`. */
  level: string
  caps: SpendCaps
  spending: Spending
  before: SpendingStatus | undefined
}

export interface CapsDecision {
  /** Spending to write; absent if nothing has changed. */
  status?: SpendingStatus
  events: EventNote[]
}

/**
 * Decides what is written about the spending under a month's cap. Each threshold has one event a month. A cost may fall, for
 * example if a preempted VM is free. So the highest threshold stays until the month or the cap changes. Pure.
 */
export function decide({ level, caps, spending, before }: CapsObservation, now: Date): CapsDecision {
  const { maxMonthlyUsd } = caps
  if (maxMonthlyUsd === undefined) return { events: [] }
  const month = monthOf(now)
  const spent = spentUsd(spending)
  const isSame = before?.month === month && before.maxMonthlyUsd === maxMonthlyUsd
  const reachedBefore = isSame ? before.reachedPercent : 0
  const reachedPercent = Math.max(reachedBefore, thresholdOf(spent, maxMonthlyUsd))
  const status = { month, spentUsd: spent, reservedUsd: reservedUsd({ caps, spending }), maxMonthlyUsd, reachedPercent }
  const hasChanged = Object.entries(status).some(([name, value]) => before?.[name as keyof SpendingStatus] !== value)
  if (!hasChanged) return { events: [] }
  const note = reachedPercent > reachedBefore ? [eventOf(level, status, caps)] : []
  return { status, events: note }
}

/** Returns the highest threshold that is reached. A cap of nothing is always spent. */
function thresholdOf(spent: number, cap: number): number {
  return THRESHOLDS.findLast((percent) => spent * 100 >= percent * cap) ?? 0
}

function eventOf(level: string, status: SpendingStatus, caps: SpendCaps): EventNote {
  const { reachedPercent } = status
  const reason = reasonOf(reachedPercent)
  return { type: reachedPercent < 80 ? "Normal" : "Warning", reason, message: messageOf(level, status, caps) }
}

function reasonOf(reachedPercent: number): string {
  if (reachedPercent === 0) return "WithinCaps"
  return reachedPercent >= 100 ? "CapSpent" : `CapSpent${reachedPercent}Percent`
}

/** Returns the spending for people. Reached thresholds name it as it was then. */
function messageOf(
  level: string,
  { month, maxMonthlyUsd, spentUsd: spent, reservedUsd: reserved, reachedPercent }: SpendingStatus,
  caps: SpendCaps,
): string {
  const amounts = `the ${level} has spent ${usd(spent)} of its cap of ${usd(maxMonthlyUsd)} in ${month}, and ${usd(reserved)} is reserved for live VMs`
  if (reachedPercent < 100) return amounts
  const running = caps.onExceeded === "cancel" ? "Berth cancels running jobs" : "running jobs go on"
  return `${amounts}; ${running}, and jobs without a VM wait for the next month. To go on, raise maxMonthlyUsd`
}

/** Returns the conditions with WITHIN_CAPS. Its message changes only with the threshold. */
export function withCondition(
  conditions: readonly Condition[] | undefined,
  { level, status, caps }: { level: string; status: SpendingStatus; caps: SpendCaps },
  generation: number,
  now: Date,
): Condition[] {
  const cause = { reason: reasonOf(status.reachedPercent), message: messageOf(level, status, caps) }
  return setCondition(conditions, condition(WITHIN_CAPS, status.reachedPercent < 100, cause), generation, now)
}
