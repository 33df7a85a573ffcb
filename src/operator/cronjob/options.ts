import type { StoredCronJob } from "../../core/apis/cronjob.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { CRON_JOBS, JOBS } from "../../core/kinds.ts"
import { keptFact } from "../../core/kube/kept-fact.ts"
import type { Reflector, ReflectorOptions } from "../../core/kube/reflector.ts"
import type { ServerMeta } from "../../core/kube/resource.ts"
import type { CreatorControllerOptions, CreatorOptions } from "../created-jobs.ts"
import type { StatusReplacer, Writer } from "../writes.ts"

/** Owner of the fields that the cronjob controller writes. */
export const FIELD_MANAGER = "berth-cronjob-controller"

/**
 * Time of the last change of the spec. The time is later if an owner of spec fields has written other fields since.
 * Undefined if it is unknown.
 */
export const { keep: keepChangeTime, of: changeTimeOf } = keptFact("time of the last change of a spec", changeTime)

/** Options that the reflector of CronJobs must have. */
export const CRON_JOB_CACHE: Pick<ReflectorOptions<StoredCronJob>, "resource" | "transform"> = {
  resource: CRON_JOBS,
  transform: keepChangeTime,
}

/** Dependencies of the cronjob controller. */
export interface CronJobControllerOptions extends CreatorControllerOptions {
  /** Has the options CRON_JOB_CACHE. */
  cronJobs: Reflector<StoredCronJob>
  /** CronJobs reconciled at the same time. Default 16: many of them are due in the same minute. */
  workers?: number
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

/** managedFields has the fields of each writer and the time of that writer's last write, to the second. */
function changeTime({ managedFields = [] }: ServerMeta): Date | undefined {
  const times = managedFields
    .filter(({ fieldsV1 }) => typeof fieldsV1 === "object" && fieldsV1 !== null && "f:spec" in fieldsV1)
    .flatMap(({ time }) => (time === undefined ? [] : Date.parse(time)))
  return times.length === 0 ? undefined : new Date(Math.max(...times))
}
