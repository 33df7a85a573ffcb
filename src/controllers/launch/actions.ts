import type { StoredLaunch } from "../../apis/launch.ts"
import { CredentialsError } from "../../cloud/errors.ts"
import type { ReconcileContext } from "../../runtime/controller.ts"
import { writeStatus } from "../writes.ts"
import { conditionsOf } from "./conditions.ts"
import { accountOf, type CloudContext } from "./create.ts"
import { abandonedStatus, type OwnStatus } from "./decide.ts"
import { type LaunchControllerOptions, launchWriter } from "./options.ts"

/**
 * Terminates the VM. Only the cloud's lists can prove that the VM is deleted.
 * @returns a final status if the cloud rejects the credentials and the VM has ended by its lifetime
 * @throws CloudError if the call has to be retried
 */
export async function terminate(
  launch: StoredLaunch,
  vmId: string,
  { options, calls, settings, signal }: CloudContext,
): Promise<OwnStatus | undefined> {
  const { region, zone } = launch.spec.offer
  try {
    const cloud = await options.clouds.open(accountOf(launch))
    signal.throwIfAborted()
    options.fence()
    const vm = { id: vmId, launch: launch.metadata.name, region, ...(zone !== undefined && { zone }) }
    await cloud.terminate(vm, options.fence)
  } catch (error) {
    const isRejected = error instanceof CredentialsError
    const status = isRejected ? abandonedStatus(launch, options.clock.now(), settings) : undefined
    if (status === undefined) throw error
    return status
  }
  calls.terminateRequested(launch.metadata.name)
  return undefined
}

/**
 * Writes the controller's part of the status, if the Launch is still the version that the decision was based on. Keeps
 * the gateway's part. @throws KubeError Conflict
 */
export function writeOwnStatus(
  launch: StoredLaunch,
  status: OwnStatus,
  options: LaunchControllerOptions,
  context: ReconcileContext,
): Promise<StoredLaunch> {
  const conditions = conditionsOf(launch, status, options.clock.now())
  // A merge patch removes a field by null. Any status without a launch error means that the cloud answered.
  const own = { unanswered: null, ...status, conditions, observedGeneration: launch.metadata.generation }
  return writeStatus(launch, own as StoredLaunch["status"], launchWriter(options), context)
}
