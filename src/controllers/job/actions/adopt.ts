import { JOB_FINALIZER, type StoredJob } from "../../../apis/job.ts"
import { ANNOTATIONS } from "../../../apis/meta.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, JOBS, type JobControllerOptions } from "../dependencies.ts"

/** Writes the finalizer, the uid that it stands for, and the mirrored labels. @throws KubeError Conflict */
export async function adopt(
  job: StoredJob,
  labels: Record<string, string>,
  { client, jobs }: JobControllerOptions,
  context: ReconcileContext,
): Promise<StoredJob> {
  const { namespace, name, uid, resourceVersion, finalizers = [] } = job.metadata
  const merge = {
    metadata: {
      resourceVersion,
      finalizers: [...finalizers.filter((finalizer) => finalizer !== JOB_FINALIZER), JOB_FINALIZER],
      annotations: { [ANNOTATIONS.recordedUid]: uid },
      labels,
    },
  }
  const written = await client.patch(JOBS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  context.wrote(jobs.store, written)
  return written
}
