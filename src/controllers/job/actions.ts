import { JOB_FINALIZER, type StoredJob } from "../../apis/job.ts"
import type { Launch, StoredLaunch } from "../../apis/launch.ts"
import { ANNOTATIONS } from "../../apis/meta.ts"
import { isAlreadyExists, isNotFound, KubeError } from "../../kube/errors.ts"
import type { LaunchLedger } from "../../placement/market.ts"
import type { ReconcileContext } from "../../runtime/controller.ts"
import { FIELD_MANAGER, JOBS, type JobControllerOptions, LAUNCHES } from "./options.ts"

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

/**
 * Creates the Launch, the atomic intent. The name makes a second one of that number impossible: where there is one, an
 * earlier attempt of ours (or of an earlier leader) made it, and it is what counts.
 * The Job is read live before, so that a late cache (a new leader's) never buys a VM for a job that has been cancelled.
 * @returns whether it was made now; false: decide again, from what is there
 * @throws Error when the one that is there is another job's
 */
export async function createLaunch(
  job: StoredJob,
  launch: Launch,
  { options, ledger, context }: { options: JobControllerOptions; ledger: LaunchLedger; context: ReconcileContext },
): Promise<boolean> {
  try {
    const complete = (await isCurrent(job, options)) ? await withCredentials(launch, options) : undefined
    if (complete === undefined) {
      ledger.release(launch)
      return false
    }
    options.fence()
    const written = await options.client.create(LAUNCHES, complete as StoredLaunch, { fieldManager: FIELD_MANAGER })
    context.wrote(options.launches.store, written)
    return true
  } catch (error) {
    // Whether it was made is unknown when no answer came: then it counts until the cache can tell.
    if (!(error instanceof KubeError && error.outcomeUnknown)) ledger.release(launch)
    if (!isAlreadyExists(error)) throw error
  }
  const { namespace, name } = launch.metadata
  const found = await options.client.get(LAUNCHES, { namespace, name })
  if (found.spec.job.uid !== launch.spec.job.uid) {
    throw new Error(
      `Launch ${name} exists, but for the job uid ${found.spec.job.uid}: somebody else made it; delete it`,
    )
  }
  context.wrote(options.launches.store, found)
  return false
}

/** The Launch as it is written; undefined when its connection can't pay any more. */
async function withCredentials(launch: Launch, { copyCredentials }: JobControllerOptions): Promise<Launch | undefined> {
  if (launch.spec.connection === undefined) return launch
  const copy = await copyCredentials?.(launch)
  return copy === undefined ? undefined : { ...launch, spec: { ...launch.spec, ...copy } }
}

/** Whether the Job is still the version that was decided on. */
async function isCurrent({ metadata }: StoredJob, { client }: JobControllerOptions): Promise<boolean> {
  const { namespace, name, uid, resourceVersion } = metadata
  try {
    const live = await client.get(JOBS, { namespace, name })
    return live.metadata.uid === uid && live.metadata.resourceVersion === resourceVersion
  } catch (error) {
    if (isNotFound(error)) return false
    throw error
  }
}

/**
 * Says that a Launch's VM shall be no more; the launch controller sees to it. It can't be taken back, so it is said upon the
 * version that was decided on: its agent may have told of its end meanwhile.
 * @throws KubeError Conflict, after which all is decided anew
 */
export async function endLaunch(
  launch: StoredLaunch,
  { client, launches, fence }: JobControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, uid, resourceVersion } = launch.metadata
  try {
    fence()
    const merge = { metadata: { uid, resourceVersion }, spec: { ended: true } }
    const written = await client.patch(LAUNCHES, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
    context.wrote(launches.store, written)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}

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
