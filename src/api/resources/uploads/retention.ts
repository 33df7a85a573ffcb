import type { Clock } from "../../../core/apis/clock.ts"
import { secondsBetween } from "../../../core/apis/clock.ts"
import type { StoredCronJob } from "../../../core/apis/cronjob.ts"
import type { StoredJob } from "../../../core/apis/job.ts"
import type { StoredJobArray } from "../../../core/apis/jobarray.ts"
import type { Logger } from "../../../core/apis/logger.ts"
import { CacheBehind, findOrCatchUp, NAMESPACE_INDEX } from "../../../core/identity/catch-up.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import { CRON_JOBS, JOB_ARRAYS, JOBS } from "../../../core/resources.ts"
import type { Cache } from "../../caches.ts"
import { timeOrAbort } from "../../long-responses.ts"
import type { StoredUpload, UploadStore } from "../../uploads/store.ts"

/** Time for which an upload without a job is kept, seconds. A client uploads first, and submits its job then. */
export const UNUSED_SECONDS = 3600

/** Interval of the rounds, seconds. */
const ROUND_SECONDS = 600

/** Age of an upload that is not complete, and whose process has ended for certain, seconds. */
const UNFINISHED_SECONDS = 24 * 3600

export interface UploadRetentionOptions {
  client: Pick<KubeClient, "list">
  /** Caches of the kinds that refer to uploads. */
  caches: { jobs: Cache<StoredJob>; cronJobs: Cache<StoredCronJob>; jobArrays: Cache<StoredJobArray> }
  store: UploadStore
  clock: Clock
  logger: Logger
}

/** Removes uploads that nothing refers to, in rounds, until the signal aborts. */
export async function keepRemovingUploads(options: UploadRetentionOptions, signal: AbortSignal): Promise<void> {
  const { caches, clock, logger } = options
  while (!signal.aborted) {
    if (Object.values(caches).every(({ synced }) => synced)) {
      await removeUnusedUploads(options).catch((err: unknown) =>
        logger.warn({ err }, "unused uploads could not be removed; retrying in the next round"),
      )
    }
    await timeOrAbort(ROUND_SECONDS, clock, signal)
  }
}

/** Removes the uploads that nothing refers to, and that were not used for a while. */
export async function removeUnusedUploads(options: UploadRetentionOptions): Promise<void> {
  const { store, clock, logger } = options
  const now = clock.now()
  await store.removeUnfinished(new Date(now.getTime() - UNFINISHED_SECONDS * 1000))
  for await (const upload of store.list()) {
    if (!isOld(upload, now) || (await isReferredTo(upload, options))) continue
    // It may have been used again since it was listed.
    if (!(await store.removeUnused(upload, new Date(now.getTime() - UNUSED_SECONDS * 1000)))) continue
    const { namespace, sha256, bytes } = upload
    logger.info({ namespace, sha256, bytes }, "removed an upload that no job refers to")
  }
}

function isOld({ usedAt }: StoredUpload, now: Date): boolean {
  return secondsBetween(usedAt, now) >= UNUSED_SECONDS
}

/** Returns true if a job, a cronjob or an array refers to the upload. */
async function isReferredTo(
  { namespace, sha256 }: StoredUpload,
  { client, caches: { jobs, cronJobs, jobArrays } }: UploadRetentionOptions,
): Promise<boolean> {
  const ofJobs = () =>
    jobs.store.byIndex(NAMESPACE_INDEX, namespace).find(({ spec }) => spec.workdir?.sha256 === sha256)
  const isDefined = ({ spec }: StoredCronJob | StoredJobArray) => spec.jobDefinition.workdir?.sha256 === sha256
  const ofCronJobs = () => cronJobs.store.byIndex(NAMESPACE_INDEX, namespace).find(isDefined)
  const ofArrays = () => jobArrays.store.byIndex(NAMESPACE_INDEX, namespace).find(isDefined)
  try {
    const users = [
      await findOrCatchUp({ client, resource: JOBS, store: jobs.store }, namespace, ofJobs),
      await findOrCatchUp({ client, resource: CRON_JOBS, store: cronJobs.store }, namespace, ofCronJobs),
      await findOrCatchUp({ client, resource: JOB_ARRAYS, store: jobArrays.store }, namespace, ofArrays),
    ]
    return users.some((user) => user !== undefined)
  } catch (error) {
    if (error instanceof CacheBehind) return true
    throw error
  }
}
