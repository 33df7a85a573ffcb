import type { StoredCronJob } from "../../core/apis/cronjob.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { CreatorControllerDependencies } from "../created-jobs.ts"

/** Dependencies of the cronjob controller. */
export interface CronJobControllerDependencies extends CreatorControllerDependencies {
  /** Has the options CRON_JOB_CACHE. */
  cronJobs: Reflector<StoredCronJob>
  /** CronJobs reconciled at the same time. Default 16: many of them are due in the same minute. */
  workers?: number
}
