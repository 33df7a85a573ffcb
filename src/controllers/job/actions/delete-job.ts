import type { StoredJob } from "../../../apis/job.ts"
import { isNotFound } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { JOBS, type JobControllerOptions } from "../dependencies.ts"

/** Deletes a Job whose time after its end is over, this very one as it was read: its time may have been prolonged. */
export async function deleteJob(
  job: StoredJob,
  { client, jobs }: JobControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, uid, resourceVersion } = job.metadata
  try {
    await client.delete(JOBS, { namespace, name }, { preconditions: { uid, resourceVersion } })
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
  context.deleted(jobs.store, job)
}
