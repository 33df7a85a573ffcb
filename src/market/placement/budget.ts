import { LONGEST_BOOT_SECONDS } from "../../clouds/machines/machines.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { type HourlyPrices, sumOfParts } from "../../core/apis/price.ts"
import { debugOf, type JobSettings } from "./settings.ts"
import { monthlyCosts } from "./statements.ts"

/**
 * Time that a VM is billed before its own timers start, and for which `budgetSeconds` of its Launch leaves room,
 * seconds. A machine boots in one or two minutes.
 */
export const BOOT_RESERVE_SECONDS = 180

/** Time from the end of the container until the cloud no longer bills the VM, seconds: flush, report, power-off. */
export const END_RESERVE_SECONDS = 180

/** Part of the end in which the agent ends the VM. Then the VM's own timer powers it off, seconds. */
const LEAVE_SECONDS = 90

/** Shortest time for a container that is worth a VM, seconds. */
const SHORTEST_RUN_SECONDS = 60

/** Time that a VM gets beyond its timeout, for each retry and for its end (flushes), seconds. */
const END_SLACK_SECONDS = 600
const RETRY_SLACK_SECONDS = 30

/** Returns the seconds after boot at which a job's VM terminates itself, if no budget ends it earlier. */
export function vmLifetime(
  { spec }: Pick<StoredJob, "spec">,
  timeoutSeconds: number,
  settings: Pick<JobSettings, "bootDeadlineSeconds" | "startDeadlineSeconds" | "allowsSessions">,
): number {
  const { bootDeadlineSeconds, startDeadlineSeconds } = settings
  const { maxRetries = 0, terminationGraceSeconds = 0 } = spec
  const kept = debugOf(spec, settings)?.keepSeconds ?? 0
  const slack = END_SLACK_SECONDS + RETRY_SLACK_SECONDS * maxRetries + terminationGraceSeconds + kept
  // One number for all machines: the router asks before it has chosen one.
  return Math.max(bootDeadlineSeconds, LONGEST_BOOT_SECONDS) + startDeadlineSeconds + timeoutSeconds + slack
}

/** Returns the longest time for which a cloud bills a VM that ends itself after its lifetime, seconds. */
export function longestBilledSeconds(lifetimeSeconds: number): number {
  return BOOT_RESERVE_SECONDS + lifetimeSeconds + END_RESERVE_SECONDS - LEAVE_SECONDS
}

/** Amount that a job may still spend. */
export interface Budget {
  leftUsd: number
  /** Shortest time for which a VM must be paid, seconds. */
  leastSeconds: number
}

/** Returns what a job may still spend after its ended VMs; undefined if it has no limit. Pure. */
export function jobBudget(
  { spec, status }: Pick<StoredJob, "spec" | "status">,
  launches: readonly StoredLaunch[],
): Budget | undefined {
  const { maxCostUsd } = spec
  if (maxCostUsd === undefined) return undefined
  const ended = launches.reduce((total, launch) => total + highestCostOf(launch), 0)
  const { spent } = status?.cost ?? {}
  // Records of Launches are deleted after a time.
  const spentUsd = Math.max(ended, spent === undefined ? 0 : sumOfParts(spent))
  return {
    leftUsd: Math.max(0, maxCostUsd - spentUsd),
    leastSeconds: BOOT_RESERVE_SECONDS + SHORTEST_RUN_SECONDS + END_RESERVE_SECONDS,
  }
}

/** Returns the most that an ended VM may have cost, USD: the price of a spot machine may have risen to its ceiling. */
function highestCostOf(launch: StoredLaunch): number {
  const margins = monthlyCosts(launch).map(({ marginUsd }) => marginUsd)
  return roundUsd(margins.reduce((total, usd) => total + usd, launch.status?.costUsd ?? 0))
}

/** Deadlines of a VM. */
export interface Deadlines {
  bootDeadlineSeconds: number
  startDeadlineSeconds: number
  lifetimeSeconds: number
  /** Seconds after boot at which the agent ends the container. Absent: the budget lasts longer than the VM may live. */
  budgetSeconds?: number
}

/** Returns the deadlines at which a VM of these prices still costs no more than the budget. Pure. */
export function withinBudget(
  deadlines: Deadlines,
  { leftUsd }: Pick<Budget, "leftUsd">,
  prices: HourlyPrices,
): Deadlines {
  const hourlyUsd = sumOfParts(prices)
  const billedSeconds = hourlyUsd === 0 ? Number.POSITIVE_INFINITY : Math.floor((leftUsd * 3600) / hourlyUsd)
  const budgetSeconds = billedSeconds - BOOT_RESERVE_SECONDS - END_RESERVE_SECONDS
  if (budgetSeconds >= deadlines.lifetimeSeconds) return deadlines
  return {
    ...deadlines,
    bootDeadlineSeconds: Math.min(deadlines.bootDeadlineSeconds, Math.max(1, billedSeconds - END_RESERVE_SECONDS)),
    lifetimeSeconds: Math.min(deadlines.lifetimeSeconds, budgetSeconds + LEAVE_SECONDS),
    budgetSeconds,
  }
}
