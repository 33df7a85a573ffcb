import { secondsBetween } from "../../apis/clock.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import { billedUsd, roundUsd } from "../../apis/money.ts"
import type { SpendCaps } from "../../apis/project.ts"
import type { Room } from "../../router/route.ts"

/** What a project spends now. US dollars. */
export interface Spending {
  vms: number
  hourlyUsd: number
  /** Spent in this calendar month (UTC), with what its live VMs are expected to cost. */
  monthlyUsd: number
}

/** A project's own caps, and the installation's where it has none. */
export function effectiveCaps(own: SpendCaps | undefined, defaults: SpendCaps): SpendCaps {
  return { ...defaults, ...own }
}

/**
 * What the Launches of one project come to.
 * @param expectedSeconds how long a VM is taken to live whose job has no timeout
 */
export function spendingOf(launches: readonly StoredLaunch[], now: Date, expectedSeconds: number): Spending {
  const live = launches.filter((launch) => !isOver(launch))
  const month = launches.filter((launch) => isThisMonth(launch, now))
  return {
    vms: live.length,
    hourlyUsd: roundUsd(sum(live.map((launch) => launch.spec.offer.hourlyPriceUsd))),
    monthlyUsd: roundUsd(sum(month.map((launch) => costOf(launch, now, expectedSeconds)))),
  }
}

/** What is left under the caps; never below 0. */
export function roomUnder(caps: SpendCaps, spending: Spending): Room {
  const { maxHourlyUsd, maxMonthlyUsd } = caps
  return {
    ...(maxHourlyUsd !== undefined && { hourlyUsd: Math.max(0, roundUsd(maxHourlyUsd - spending.hourlyUsd)) }),
    ...(maxMonthlyUsd !== undefined && { monthlyUsd: Math.max(0, roundUsd(maxMonthlyUsd - spending.monthlyUsd)) }),
  }
}

/** A live VM counts in the month that it lives in, an ended one in that of its end. */
function isThisMonth(launch: StoredLaunch, now: Date): boolean {
  if (!isOver(launch)) return true
  const end = new Date(launch.status?.vm?.terminationTime ?? launch.metadata.creationTimestamp)
  return end.getUTCFullYear() === now.getUTCFullYear() && end.getUTCMonth() === now.getUTCMonth()
}

function costOf(launch: StoredLaunch, now: Date, expectedSeconds: number): number {
  if (isOver(launch)) return launch.status?.costUsd ?? 0
  const { hourlyPriceUsd, minimumBilledSeconds } = launch.spec.offer
  const lived = secondsBetween(launch.status?.vm?.createTime ?? launch.metadata.creationTimestamp, now)
  return billedUsd(hourlyPriceUsd, Math.max(lived, expectedSeconds), minimumBilledSeconds)
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
