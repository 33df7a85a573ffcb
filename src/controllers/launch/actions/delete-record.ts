import type { StoredLaunch } from "../../../apis/launch.ts"
import { isNotFound } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { LAUNCHES, type LaunchControllerOptions } from "../dependencies.ts"

/** Deletes the record of a Launch that is over, this very one; the finalizer is dropped by the next look at it. */
export async function deleteRecord(
  launch: StoredLaunch,
  { client, launches }: LaunchControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, uid } = launch.metadata
  try {
    await client.delete(LAUNCHES, { namespace, name }, { preconditions: { uid } })
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
  context.deleted(launches.store, launch)
}
