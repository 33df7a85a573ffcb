import { CANCEL_JOBS_FINALIZER, type StoredCronJob } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import { LABELS } from "../../apis/meta.ts"
import { ifFound } from "../../kube/errors.ts"
import { isMadeFor, jobName, tickOf } from "./jobs.ts"
import { type CronJobControllerOptions, changeTimeOf, JOBS, jobsOf } from "./options.ts"
import type { CronJobObservation } from "./schedule.ts"

/** Reads the facts about a CronJob: from the caches, and live where a stale cache could do harm. */
export async function gather(cronJob: StoredCronJob, options: CronJobControllerOptions): Promise<CronJobObservation> {
  return { jobs: await findJobs(cronJob, options), changedAt: changeTimeOf(cronJob) }
}

async function findJobs(cronJob: StoredCronJob, options: CronJobControllerOptions): Promise<StoredJob[]> {
  const { metadata, spec, status } = cronJob
  if (metadata.deletionTimestamp !== undefined) {
    return metadata.finalizers?.includes(CANCEL_JOBS_FINALIZER) ? listJobs(cronJob, options) : []
  }
  const cached = jobsOf(cronJob, options)
  const { concurrencyPolicy = "Allow" } = spec
  if (concurrencyPolicy === "Allow" || status?.lastTriggeredTime === undefined) return cached
  const last = new Date(status.lastTriggeredTime)
  if (cached.some((job) => tickOf(job)?.getTime() === last.getTime())) return cached
  // The cache of a new leader may lack the last Job of the previous leader, which may still run.
  const job = await findJob(jobName(cronJob, last), cronJob, options)
  return job !== undefined && isMadeFor(job, cronJob, last) ? [...cached, job] : cached
}

async function listJobs({ metadata }: StoredCronJob, { client }: CronJobControllerOptions): Promise<StoredJob[]> {
  const { namespace, uid } = metadata
  return (await client.list(JOBS, { namespace, labelSelector: `${LABELS.cronJobUid}=${uid}` })).items
}

/** Reads a Job of the CronJob's namespace live; undefined if there is none of that name. */
export async function findJob(
  name: string,
  { metadata: { namespace } }: StoredCronJob,
  { client }: Pick<CronJobControllerOptions, "client">,
): Promise<StoredJob | undefined> {
  return ifFound(client.get(JOBS, { namespace, name }))
}
