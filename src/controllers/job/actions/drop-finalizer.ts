import { JOB_FINALIZER, type StoredJob } from "../../../apis/job.ts"
import { isNotFound } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, JOBS, type JobControllerOptions } from "../dependencies.ts"

/** Lets a deleted Job go whose VMs are no more. @throws KubeError Conflict */
export async function dropFinalizer(
  job: StoredJob,
  { client, jobs }: JobControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, resourceVersion } = job.metadata
  const finalizers = job.metadata.finalizers?.filter((finalizer) => finalizer !== JOB_FINALIZER) ?? []
  const merge = { metadata: { resourceVersion, finalizers } }
  try {
    const written = await client.patch(JOBS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
    if (finalizers.length > 0) context.wrote(jobs.store, written)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}
