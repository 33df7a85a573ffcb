import { LAUNCH, type StoredLaunch } from "../../../apis/launch.ts"
import { isNotFound } from "../../../kube/errors.ts"
import { resourceOf } from "../../../kube/resource.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, type JobControllerOptions } from "../dependencies.ts"

const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

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
