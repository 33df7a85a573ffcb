import type { CronJobStatus, StoredCronJob } from "../../../apis/cronjob.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { CRON_JOBS, type CronJobControllerOptions, FIELD_MANAGER } from "../dependencies.ts"

/** Writes the whole status (what it has no more must go), upon the version that was decided on. @throws KubeError Conflict */
export async function writeStatus(
  cronJob: StoredCronJob,
  status: CronJobStatus,
  { client, cronJobs }: CronJobControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const written = await client.replaceStatus(CRON_JOBS, { ...cronJob, status }, { fieldManager: FIELD_MANAGER })
  context.wrote(cronJobs.store, written)
}
