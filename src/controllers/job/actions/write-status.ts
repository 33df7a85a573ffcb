import type { JobStatus, StoredJob } from "../../../apis/job.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, JOBS, type JobControllerOptions } from "../dependencies.ts"

/**
 * Writes the whole status, upon the version that was decided on: a decision made from an older one is no decision, so
 * that `cancelled` and an end that was written before are never overwritten. @throws KubeError Conflict
 */
export async function writeStatus(
  job: StoredJob,
  status: JobStatus,
  { client, jobs }: JobControllerOptions,
  context: ReconcileContext,
): Promise<StoredJob> {
  const written = await client.replaceStatus(JOBS, { ...job, status }, { fieldManager: FIELD_MANAGER })
  context.wrote(jobs.store, written)
  return written
}
