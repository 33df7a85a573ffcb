import { secondsBetween, timestamp } from "../../apis/clock.ts"
import type { LaunchStatus, StoredLaunch } from "../../apis/launch.ts"
import { billedUsd } from "../../apis/money.ts"
import type { LaunchSettings } from "./settings.ts"

/** When the billing of a Launch's VM began. */
export function bornAt({ metadata, status }: StoredLaunch): string {
  return status?.vm?.createTime ?? metadata.creationTimestamp
}

/** Seconds within which a VM that was asked for was made, lived and ended itself. */
export function longestLife({ spec }: StoredLaunch, { lifetimeSlackSeconds }: LaunchSettings): number {
  return spec.bootDeadlineSeconds + spec.lifetimeSeconds + lifetimeSlackSeconds
}

/**
 * When a VM was gone at the latest whose end nobody has told: now, unless its agent had finished or its lifetime was over
 * before, while this process did not see it.
 */
export function latestEnd(
  launch: StoredLaunch,
  { lastSeen, now }: { lastSeen: Date | undefined; now: Date },
  settings: LaunchSettings,
): string {
  const seen = lastSeen === undefined ? 0 : lastSeen.getTime() + settings.settleSeconds * 1000
  return timestamp(new Date(Math.min(now.getTime(), Math.max(seen, endedItselfBy(launch, settings)))))
}

/** Milliseconds. The gateway's clock counts as much as the VM's: a VM stays until its finish was taken. */
function endedItselfBy(launch: StoredLaunch, settings: LaunchSettings): number {
  const { finish, lastHeartbeatTime } = launch.status?.agent ?? {}
  if (finish === undefined) return Date.parse(bornAt(launch)) + longestLife(launch, settings) * 1000
  const lastWord = Math.max(Date.parse(finish.time), Date.parse(lastHeartbeatTime ?? finish.time))
  return lastWord + settings.powerOffSeconds * 1000
}

/** The end of a VM, and what it has cost. */
export function billedUntil(launch: StoredLaunch, terminationTime: string): Pick<LaunchStatus, "vm" | "costUsd"> {
  const { hourlyPriceUsd, minimumBilledSeconds } = launch.spec.offer
  const lived = secondsBetween(bornAt(launch), terminationTime)
  return {
    vm: { ...launch.status?.vm, state: "terminated", terminationTime },
    costUsd: billedUsd(hourlyPriceUsd, lived, minimumBilledSeconds),
  }
}
