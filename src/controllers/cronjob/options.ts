import type { Clock } from "../../apis/clock.ts"
import { CRON_JOB, type StoredCronJob } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import type { Logger } from "../../apis/logger.ts"
import { LABELS, type ObjectMeta } from "../../apis/meta.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Reflector, ReflectorOptions } from "../../kube/reflector.ts"
import { resourceOf, type ServerMeta } from "../../kube/resource.ts"
import type { IndexFunction } from "../../kube/store.ts"
import type { Quota } from "../../limits/project-limits.ts"
import { type CreatorOptions, JOBS, type Tenancy } from "../created-jobs.ts"
import type { Fence } from "../fence.ts"
import type { SettledJobs } from "../settled-jobs.ts"
import type { StatusReplacer, Writer } from "../writes.ts"

export const CRON_JOBS = resourceOf<StoredCronJob>(CRON_JOB)

/** Owner of the fields that the cronjob controller writes. */
export const FIELD_MANAGER = "berth-cronjob-controller"

/** Options that the reflector of CronJobs must have. */
export const CRON_JOB_CACHE: Pick<ReflectorOptions<StoredCronJob>, "resource" | "transform"> = {
  resource: CRON_JOBS,
  transform: keepChangeTime,
}

/** Index of Jobs by the uid of the CronJob that created them. */
const CRON_JOB_INDEX = "cronJobUid"

/** Indexes that the cache of Jobs must have. */
export const cronJobIndexes: Record<string, IndexFunction<StoredJob>> = {
  [CRON_JOB_INDEX]: ({ metadata }) => {
    const uid = metadata.labels?.[LABELS.cronJobUid]
    return uid === undefined ? [] : [uid]
  },
}

/** Dependencies of the cronjob controller. */
export interface CronJobControllerOptions {
  client: Pick<KubeClient, "get" | "list" | "create" | "replace" | "replaceStatus" | "patch" | "patchStatus" | "delete">
  /** Has the options CRON_JOB_CACHE. */
  cronJobs: Reflector<StoredCronJob>
  /** Has the indexes `cronJobIndexes` and the selection `UNSETTLED`. */
  jobs: Reflector<StoredJob>
  /** Settled jobs, which the cache has not. */
  settled: Pick<SettledJobs, "runsOf" | "onRuns" | "add" | "delete">
  /** Limits of what projects may store, and their use. Absent: no limits. */
  quota?: Quota
  /** Projects and organizations, whose deletion stops their schedules. Absent: no CronJobs belong to projects. */
  tenancy?: Tenancy
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  /** CronJobs reconciled at the same time. Default 16: many of them are due in the same minute. */
  workers?: number
}

export function jobsOf(cronJob: StoredCronJob, { jobs }: Pick<CronJobControllerOptions, "jobs">): StoredJob[] {
  return jobs.store
    .byIndex(CRON_JOB_INDEX, cronJob.metadata.uid)
    .filter(({ metadata }) => metadata.namespace === cronJob.metadata.namespace)
}

/** Returns the options of the actions on Jobs. */
export function creatorOf(options: CronJobControllerOptions): CreatorOptions {
  return { ...options, fieldManager: FIELD_MANAGER }
}

export function writersOf({ client, cronJobs, jobs }: CronJobControllerOptions): {
  cronJobs: Writer<StoredCronJob> & StatusReplacer<StoredCronJob>
  jobs: Writer<StoredJob>
} {
  const shared = { client, fieldManager: FIELD_MANAGER }
  return {
    cronJobs: { ...shared, resource: CRON_JOBS, store: cronJobs.store },
    jobs: { ...shared, resource: JOBS, store: jobs.store },
  }
}

const CHANGED_AT = Symbol("time of the last change of an object's spec")

interface WithChangeTime {
  [CHANGED_AT]?: Date | undefined
}

/**
 * Keeps the time of the last change of the spec, before the reflector strips managedFields. The time is under a symbol,
 * which no serialized copy of the object has.
 */
export function keepChangeTime<T extends { metadata: ObjectMeta }>(object: T): T {
  return Object.assign(object, { [CHANGED_AT]: changeTime(object.metadata as ServerMeta) })
}

/**
 * Returns the time of the last change of the spec. The time is later if an owner of spec fields has written other
 * fields since. Undefined for an object that did not pass through `keepChangeTime`.
 */
export function changeTimeOf(object: { metadata: ObjectMeta }): Date | undefined {
  return (object as WithChangeTime)[CHANGED_AT]
}

/** managedFields has the fields of each writer and the time of that writer's last write, to the second. */
function changeTime({ managedFields = [] }: ServerMeta): Date | undefined {
  const times = managedFields
    .filter(({ fieldsV1 }) => typeof fieldsV1 === "object" && fieldsV1 !== null && "f:spec" in fieldsV1)
    .flatMap(({ time }) => (time === undefined ? [] : Date.parse(time)))
  return times.length === 0 ? undefined : new Date(Math.max(...times))
}
