import { CANCEL_JOBS_FINALIZER, CronJobReason, type StoredCronJob } from "../../core/apis/cronjob.ts"
import { defined } from "../../core/apis/defined.ts"
import { LABELS } from "../../core/apis/meta.ts"
import { limitForCronJobRun, limitForExisting } from "../../core/quota/project-limits.ts"
import { changeTimeOf } from "../caches.ts"
import { findJob, knownJobs, listJobs, projectEnding } from "../created-jobs.ts"
import type { CronJobControllerDependencies } from "./dependencies.ts"
import { isMadeFor, jobName, readTick } from "./jobs.ts"
import type { CronJobObservation } from "./schedule.ts"

/** Reads the facts about a CronJob from the caches, and live where a stale cache could do harm. */
export async function gather(
  cronJob: StoredCronJob,
  options: CronJobControllerDependencies,
): Promise<CronJobObservation> {
  const blocked = blockedBy(cronJob, options)
  return {
    ...(await findJobs(cronJob, options)),
    changedAt: changeTimeOf(cronJob),
    ...defined({ blocked }),
  }
}

/** Returns why no Job may be created now; undefined if one may. */
function blockedBy(cronJob: StoredCronJob, options: CronJobControllerDependencies): CronJobObservation["blocked"] {
  const namespace = cronJob.metadata.namespace ?? ""
  const ending = projectEnding(namespace, options.tenancy)
  if (ending !== undefined) return ending
  const { quota, cronJobs } = options
  const limit =
    limitForExisting(quota, "cronJobs", cronJob, cronJobs.store) ?? (quota && limitForCronJobRun(quota, namespace))
  return limit && { reason: CronJobReason.ProjectLimit, message: limit.message }
}

type Found = Pick<CronJobObservation, "jobs" | "settled">

async function findJobs(cronJob: StoredCronJob, options: CronJobControllerDependencies): Promise<Found> {
  const { metadata, spec, status } = cronJob
  if (metadata.deletionTimestamp !== undefined) {
    const cancelsJobs = metadata.finalizers?.includes(CANCEL_JOBS_FINALIZER) ?? false
    return { jobs: cancelsJobs ? await listJobs(cronJob, LABELS.cronJobUid, options) : [] }
  }
  const known = knownJobs(cronJob, options)
  const { concurrencyPolicy = "Allow" } = spec
  if (concurrencyPolicy === "Allow" || status?.lastTriggeredTime === undefined) return known
  const last = new Date(status.lastTriggeredTime)
  if ([...known.jobs, ...known.settled].some((job) => readTick(job)?.getTime() === last.getTime())) return known
  // The cache of a new leader may lack the last Job of the previous leader, which may still run.
  const job = await findJob(jobName(cronJob, last), metadata.namespace, options)
  return job !== undefined && isMadeFor(job, cronJob, last) ? { ...known, jobs: [...known.jobs, job] } : known
}
