import type { StoredJob } from "../../../apis/job.ts"
import { LAUNCH, type Launch, type StoredLaunch } from "../../../apis/launch.ts"
import { isAlreadyExists, isNotFound, KubeError } from "../../../kube/errors.ts"
import { resourceOf } from "../../../kube/resource.ts"
import type { LaunchLedger } from "../../../placement/market.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, JOBS, type JobControllerOptions } from "../dependencies.ts"

const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

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
