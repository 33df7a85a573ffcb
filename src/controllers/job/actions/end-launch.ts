import { LAUNCH, type StoredLaunch } from "../../../apis/launch.ts"
import { isNotFound } from "../../../kube/errors.ts"
import { resourceOf } from "../../../kube/resource.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, type JobControllerOptions } from "../dependencies.ts"

const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

/** Says that a Launch's VM shall be no more; the launch controller sees to it. It can't be taken back. */
export async function endLaunch(
  launch: StoredLaunch,
  { client, launches, fence }: JobControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, uid } = launch.metadata
  try {
    fence()
    const merge = { metadata: { uid }, spec: { ended: true } }
    const written = await client.patch(LAUNCHES, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
    context.wrote(launches.store, written)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}
