import type { StoredLaunch } from "../../core/apis/launch.ts"
import { LABELS } from "../../core/apis/meta.ts"
import { LAUNCHES } from "../../core/resources.ts"
import { inRounds } from "../rounds.ts"
import type { LaunchControllerDependencies } from "./dependencies.ts"
import type { LaunchSettings } from "./settings.ts"

/** Seconds between two rounds. */
const INTERVAL_SECONDS = 30

/** Returns the minute of a time, as a label's value: `202611292359`. */
export function toMinute(time: Date): string {
  return time.toISOString().slice(0, 16).replaceAll(/\D/g, "")
}

/**
 * Deletes the records of VMs after the retention, until the signal is aborted. Those that were released within one minute
 * are deleted by one request.
 */
export function deleteRecords(
  options: LaunchControllerDependencies,
  settings: Pick<LaunchSettings, "retentionSeconds">,
  signal: AbortSignal,
): Promise<void> {
  const { client, launches, systemNamespace: namespace, clock, logger, fence } = options
  const round = async (): Promise<void> => {
    for (const minute of expiredMinutes(launches.store.list(), clock.now(), settings)) {
      fence()
      await client.deleteCollection(LAUNCHES, { namespace, labelSelector: `${LABELS.released}=${minute}` })
    }
  }
  const failure = "records of VMs could not be deleted"
  return inRounds(round, { clock, logger, intervalSeconds: INTERVAL_SECONDS, failure }, signal)
}

/** Returns the minutes whose released Launches have all been kept for the retention, oldest first. */
export function expiredMinutes(
  launches: readonly StoredLaunch[],
  now: Date,
  { retentionSeconds }: Pick<LaunchSettings, "retentionSeconds">,
): string[] {
  const latest = toMinute(new Date(now.getTime() - (retentionSeconds + 60) * 1000))
  const minutes = new Set(launches.map(({ metadata }) => metadata.labels?.[LABELS.released] ?? ""))
  return [...minutes].filter((minute) => /^\d{12}$/.test(minute) && minute <= latest).sort()
}
