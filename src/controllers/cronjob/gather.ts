import type { StoredCronJob } from "../../apis/cronjob.ts"
import { CANCEL_JOBS_FINALIZER } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import { LABELS } from "../../apis/meta.ts"
import { ifFound } from "../../kube/errors.ts"
import { changeTimeOf } from "./change-time.ts"
import { type CronJobControllerOptions, JOBS, jobsOf } from "./dependencies.ts"
import { isMadeFor, jobName, tickOf } from "./job-object.ts"
import type { CronJobObservation } from "./reckoning.ts"

/** Reads all that a decision on this CronJob is made from: from the caches, and live where a late one could do harm. */
export async function gather(cronJob: StoredCronJob, options: CronJobControllerOptions): Promise<CronJobObservation> {
  return { jobs: await jobsOfAll(cronJob, options), changedAt: changeTimeOf(cronJob) }
}

async function jobsOfAll(cronJob: StoredCronJob, options: CronJobControllerOptions): Promise<StoredJob[]> {
  const { metadata, spec, status } = cronJob
  if (metadata.deletionTimestamp !== undefined) return isToCancel(cronJob) ? jobsLive(cronJob, options) : []
  const cached = jobsOf(cronJob, options)
  const { concurrencyPolicy = "Allow" } = spec
  if (concurrencyPolicy === "Allow" || status?.lastTriggeredTime === undefined) return cached
  const last = new Date(status.lastTriggeredTime)
  if (cached.some((job) => tickOf(job)?.getTime() === last.getTime())) return cached
  // A new leader's cache may not have what the one before it made last, and it may run still.
  const job = await findJob(jobName(cronJob, last), cronJob, options)
  return job !== undefined && isMadeFor(job, cronJob, last) ? [...cached, job] : cached
}

function isToCancel({ metadata }: StoredCronJob): boolean {
  return metadata.finalizers?.includes(CANCEL_JOBS_FINALIZER) ?? false
}

async function jobsLive({ metadata }: StoredCronJob, { client }: CronJobControllerOptions): Promise<StoredJob[]> {
  const { namespace, uid } = metadata
  return (await client.list(JOBS, { namespace, labelSelector: `${LABELS.cronJobUid}=${uid}` })).items
}

/** The Job of a name in the CronJob's namespace, as it is at the API server now; undefined when there is none. */
export async function findJob(
  name: string,
  { metadata: { namespace } }: StoredCronJob,
  { client }: Pick<CronJobControllerOptions, "client">,
): Promise<StoredJob | undefined> {
  return ifFound(client.get(JOBS, { namespace, name }))
}
