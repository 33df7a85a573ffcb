import { LAUNCH_FINALIZER, type StoredLaunch } from "../../../apis/launch.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { FIELD_MANAGER, LAUNCHES, type LaunchControllerOptions } from "../dependencies.ts"

/** Writes the finalizer of a Launch that somebody made without it, before any cloud is asked. */
export function addFinalizer(
  launch: StoredLaunch,
  options: LaunchControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  return setFinalizers(launch, [...(launch.metadata.finalizers ?? []), LAUNCH_FINALIZER], { options, context })
}

/** Lets a Launch go whose VM is no more. */
export function dropFinalizer(
  launch: StoredLaunch,
  options: LaunchControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const others = launch.metadata.finalizers?.filter((finalizer) => finalizer !== LAUNCH_FINALIZER) ?? []
  return setFinalizers(launch, others, { options, context })
}

/** The resourceVersion makes it a change of the list that was read, not of one that others have added to. */
async function setFinalizers(
  launch: StoredLaunch,
  finalizers: readonly string[],
  { options, context }: { options: LaunchControllerOptions; context: ReconcileContext },
): Promise<void> {
  const { namespace, name, resourceVersion, deletionTimestamp } = launch.metadata
  const merge = { metadata: { resourceVersion, finalizers } }
  const written = await options.client.patch(LAUNCHES, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  const isGone = deletionTimestamp !== undefined && finalizers.length === 0
  if (!isGone) context.wrote(options.launches.store, written)
}
