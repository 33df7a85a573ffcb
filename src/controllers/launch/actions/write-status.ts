import type { StoredLaunch } from "../../../apis/launch.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import type { OwnStatus } from "../decide.ts"
import { FIELD_MANAGER, LAUNCHES, type LaunchControllerOptions } from "../dependencies.ts"

/**
 * Writes the controller's part of the status, only upon the version that was decided on: a decision made from an older
 * one is no decision. Leaves the gateway's part alone. @throws KubeError Conflict when the Launch has changed meanwhile
 */
export async function writeStatus(
  launch: StoredLaunch,
  status: OwnStatus,
  { client, launches }: LaunchControllerOptions,
  context: ReconcileContext,
): Promise<StoredLaunch> {
  const { namespace, name, resourceVersion, generation } = launch.metadata
  // Whatever else is told, the cloud has answered.
  const own = { unanswered: null, ...status, observedGeneration: generation }
  const merge = { metadata: { resourceVersion }, status: own }
  const written = await client.patchStatus(LAUNCHES, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  context.wrote(launches.store, written)
  return written
}
