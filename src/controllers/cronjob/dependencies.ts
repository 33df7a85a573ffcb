import type { Clock } from "../../apis/clock.ts"
import { CRON_JOB, type StoredCronJob } from "../../apis/cronjob.ts"
import { JOB, type StoredJob } from "../../apis/job.ts"
import type { Logger } from "../../apis/logger.ts"
import { LABELS } from "../../apis/meta.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Reflector, ReflectorOptions } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { IndexFunction } from "../../kube/store.ts"
import type { Fence } from "../fence.ts"
import type { Writer } from "../writes.ts"
import { keepChangeTime } from "./change-time.ts"

/** How CronJobs and their Jobs are reached. */
export const CRON_JOBS = resourceOf<StoredCronJob>(CRON_JOB)
export const JOBS = resourceOf<StoredJob>(JOB)

/** Owner of the fields that the cronjob controller writes. */
export const FIELD_MANAGER = "berth-cronjob-controller"

/** What the reflector of CronJobs must be made with. */
export const CRON_JOB_CACHE: Pick<ReflectorOptions<StoredCronJob>, "resource" | "transform"> = {
  resource: CRON_JOBS,
  transform: keepChangeTime,
}

/** Index of Jobs by the uid of the CronJob that made them. */
const CRON_JOB_INDEX = "cronJobUid"

/** The indexes that the cache of Jobs must have. */
export const cronJobIndexes: Record<string, IndexFunction<StoredJob>> = {
  [CRON_JOB_INDEX]: ({ metadata }) => {
    const uid = metadata.labels?.[LABELS.cronJobUid]
    return uid === undefined ? [] : [uid]
  },
}

/** What the cronjob controller works with; `operator.ts` constructs it. */
export interface CronJobControllerOptions {
  client: Pick<KubeClient, "get" | "list" | "create" | "replace" | "replaceStatus" | "patch" | "patchStatus" | "delete">
  /** Made with CRON_JOB_CACHE. */
  cronJobs: Reflector<StoredCronJob>
  /** With the indexes `cronJobIndexes`. */
  jobs: Reflector<StoredJob>
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  /** CronJobs looked after at the same time. Default 16: what is due in the same minute shall not wait. */
  workers?: number
}

/** The Jobs of a CronJob that the cache has. */
export function jobsOf(cronJob: StoredCronJob, { jobs }: Pick<CronJobControllerOptions, "jobs">): StoredJob[] {
  return jobs.store
    .byIndex(CRON_JOB_INDEX, cronJob.metadata.uid)
    .filter(({ metadata }) => metadata.namespace === cronJob.metadata.namespace)
}

/** What the controller writes through, by kind. */
export function writersOf({ client, cronJobs, jobs }: CronJobControllerOptions): {
  cronJobs: Writer<StoredCronJob>
  jobs: Writer<StoredJob>
} {
  const shared = { client, fieldManager: FIELD_MANAGER }
  return {
    cronJobs: { ...shared, resource: CRON_JOBS, store: cronJobs.store },
    jobs: { ...shared, resource: JOBS, store: jobs.store },
  }
}
