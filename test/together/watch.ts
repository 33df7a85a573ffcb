import { secondsBetween } from "../../src/core/apis/clock.ts"
import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { ShiftedClock } from "../harness/shifted-clock.ts"
import type { SimCloud } from "../harness/sim-cloud.ts"
import type { Scenario } from "./scenario.ts"
import { cloudBillUsd } from "./world.ts"

export interface Seen {
  scenario: Scenario
  cloud: SimCloud
  clock: ShiftedClock
  /** All Launches of the project, by what the API server has. */
  launches: readonly StoredLaunch[]
  begin: Date
  /** Cost of own machines so far, USD. */
  ownUsd: number
  /** True once a user has removed the caps in USD. */
  isRaised: boolean
}

/** Returns what must not be at any time: two containers of a job, or more of anything than a cap or a group allows. */
export function breachesNow({
  scenario: { caps, groups },
  cloud,
  clock,
  begin,
  launches,
  ownUsd,
  isRaised,
}: Seen): string[] {
  const breaches: string[] = []
  const atMost = (count: number, of: string, most: number, cap: string): void => {
    if (count > most) breaches.push(`${count} ${of}, and ${cap} is ${most}`)
  }
  const live = launches.filter((launch) => !isOver(launch))
  const running = live.filter(({ status }) => status?.agent?.startTime !== undefined && !status.agent.finish)
  for (const [job, count] of counted(running, ({ spec }) => spec.job.name))
    atMost(count, `running containers of ${job}`, 1, "a job's limit")
  for (const [group, count] of counted(running, ({ spec }) => spec.concurrencyGroup ?? ""))
    if (group !== "") atMost(count, `running jobs of group ${group}`, groups[group] ?? 0, "its limit")
  const offers = cloud.vms.flatMap(({ vm, spec }) => (vm.state === "terminated" || !spec ? [] : [spec.offer]))
  const own = live.filter(
    ({ spec, status }) => spec.offer.cloud === "own" && status?.vm !== undefined && !status.handedTo,
  )
  atMost(offers.length + own.length, "VMs", caps.maxVms, "maxVms")
  atMost(offers.filter(({ gpu }) => gpu !== undefined).length, "GPUs", caps.maxGpus, "maxGpus")
  if (isRaised) return breaches
  const all = [...offers, ...own.map(({ spec }) => spec.offer)]
  const hourly = all.reduce((total, { hourlyPriceUsd }) => total + hourlyPriceUsd, 0)
  atMost(Math.round(hourly * 1e4) / 1e4, "USD an hour", caps.maxHourlyUsd ?? Number.POSITIVE_INFINITY, "maxHourlyUsd")
  const { maxMonthlyUsd = Number.POSITIVE_INFINITY } = caps
  // All spending is that of one month, unless one ends meanwhile.
  if (clock.now().getUTCMonth() !== begin.getUTCMonth()) return breaches
  const usd = ownUsd + cloudBillUsd(cloud, clock.now()) + yetUsd(live, clock.now())
  atMost(Math.floor(usd * 1000) / 1000, "USD until all timeouts", maxMonthlyUsd, "maxMonthlyUsd, strict,")
  return breaches
}

/**
 * Returns what VMs may cost from now on until the timeouts of their runs, or the budgets of their jobs, USD. A strict cap
 * covers that from the beginning.
 */
function yetUsd(live: readonly StoredLaunch[], now: Date): number {
  const working = live.filter(({ spec, status }) => status?.vm !== undefined && !status.agent?.finish && !spec.ended)
  return working.reduce((total, { spec: { run, offer, budgetSeconds = Number.POSITIVE_INFINITY }, status }) => {
    const since = (time: string | undefined) => (time === undefined ? 0 : secondsBetween(time, now))
    const ran = since(status?.agent?.startTime)
    const seconds = Math.min((run.timeoutSeconds ?? 0) - ran, budgetSeconds - since(status?.vm?.createTime))
    return total + (Math.max(0, seconds) * offer.hourlyPriceUsd) / 3600
  }, 0)
}

function counted<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, number> {
  const counts = new Map<string, number>()
  for (const item of items) counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1)
  return counts
}
