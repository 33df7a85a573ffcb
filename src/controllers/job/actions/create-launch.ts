import { LAUNCH, type Launch, type StoredLaunch } from "../../../apis/launch.ts"
import { isAlreadyExists, KubeError } from "../../../kube/errors.ts"
import { resourceOf } from "../../../kube/resource.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, type JobControllerOptions } from "../dependencies.ts"
import type { LaunchLedger } from "../ledger.ts"

const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

/**
 * Creates the Launch, the atomic intent. The name makes a second one of that number impossible: where there is one, an
 * earlier attempt of ours (or of an earlier leader) made it, and it is what counts.
 * @returns whether it was made now; false: decide again, from the one that is there
 * @throws Error when the one that is there is another job's
 */
export async function createLaunch(
  launch: Launch,
  { options, ledger, context }: { options: JobControllerOptions; ledger: LaunchLedger; context: ReconcileContext },
): Promise<boolean> {
  try {
    options.fence()
    const written = await options.client.create(LAUNCHES, launch as StoredLaunch, { fieldManager: FIELD_MANAGER })
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
