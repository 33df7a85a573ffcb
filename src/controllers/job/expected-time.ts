import { CRON_JOB_ANNOTATIONS } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import { LIMITS } from "../../apis/limits.ts"
import type { JobSettings } from "./settings.ts"

/** A job that there is, or one that somebody only asks about. */
type AskedFor = Pick<StoredJob, "spec"> & { metadata?: Pick<StoredJob["metadata"], "annotations"> }

/**
 * How long a job is taken to run, seconds, for what it will cost: its timeout, or else how long its like took that the
 * same CronJob made before, or else the setting. Pure.
 */
export function expectedSecondsOf(
  { spec, metadata }: AskedFor,
  settings: Pick<JobSettings, "expectedSeconds">,
): number {
  if (spec.timeoutSeconds !== undefined) return spec.timeoutSeconds
  const earlier = metadata?.annotations?.[CRON_JOB_ANNOTATIONS.expectedSeconds] ?? ""
  // Anybody may write annotations.
  if (!/^[1-9]\d{0,9}$/.test(earlier)) return settings.expectedSeconds
  return Math.min(Number(earlier), LIMITS.timeoutSeconds)
}
