import type { StoredJob } from "../../../apis/job.ts"
import { isConflict, isNotFound } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { type CronJobControllerOptions, FIELD_MANAGER, JOBS } from "../dependencies.ts"

/** Asks for the end of a Job, as a user would; the job controller sees to it. */
export async function cancelJob(
  job: StoredJob,
  { client, jobs, fence }: CronJobControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, uid } = job.metadata
  try {
    fence()
    const merge = { metadata: { uid }, spec: { cancelled: true } }
    context.wrote(jobs.store, await client.patch(JOBS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER }))
  } catch (error) {
    // It is gone, or another one has its name.
    if (!isNotFound(error) && !isConflict(error)) throw error
  }
}
