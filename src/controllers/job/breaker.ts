import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import { outcomeOf } from "./history.ts"
import { neverRegistered } from "./resting.ts"

/** When launching is paused. */
export interface BreakerSettings {
  breakerBoots: number
  breakerPauseSeconds: number
}

/**
 * Until when no VM is launched, because the last boots in a row never registered (a broken gateway, image or network
 * would otherwise be paid for again and again); undefined: launching is free. After the pause one VM is let through:
 * while it boots, the others wait on, and its failure is the next in the row. Pure, from the Launches alone.
 */
export function pausedUntil(launches: readonly StoredLaunch[], now: Date, settings: BreakerSettings): Date | undefined {
  const lastGood = Math.max(
    0,
    ...launches.map((launch) => Date.parse(launch.status?.agent?.registrationTime ?? "1970-01-01")),
  )
  const failures = launches
    .filter(neverRegistered)
    .map((launch) => failedAt(launch))
    .filter((time) => time > lastGood)
  if (failures.length < settings.breakerBoots) return undefined
  const lastFailure = Math.max(...failures)
  const pause = settings.breakerPauseSeconds * 1000
  const end = new Date(lastFailure + pause)
  if (end > now) return end
  const probing = launches.some(
    (launch) =>
      !isOver(launch) &&
      launch.status?.agent === undefined &&
      outcomeOf(launch).kind === "live" &&
      Date.parse(launch.metadata.creationTimestamp) >= lastFailure,
  )
  return probing ? new Date(now.getTime() + PROBE_CHECK_MS) : undefined
}

/** How long those wait who find a probe under way, before they look again. */
const PROBE_CHECK_MS = 15_000

function failedAt(launch: StoredLaunch): number {
  const outcome = outcomeOf(launch)
  const told = outcome.kind === "lost" || outcome.kind === "bootFailed" ? outcome.time : undefined
  return Date.parse(launch.status?.vm?.terminationTime ?? told ?? launch.metadata.creationTimestamp)
}
