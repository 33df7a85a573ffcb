import type { StoredLaunch } from "../../../apis/launch.ts"
import { CredentialsError } from "../../../cloud/errors.ts"
import { accountOf } from "../account.ts"
import type { CloudCalls } from "../calls.ts"
import { givenUp, type OwnStatus } from "../decide.ts"
import type { LaunchControllerOptions } from "../dependencies.ts"
import type { LaunchSettings } from "../settings.ts"

interface Context {
  options: LaunchControllerOptions
  calls: CloudCalls
  settings: LaunchSettings
  signal: AbortSignal
}

/**
 * Asks the cloud to end the VM; whether it is gone, only the cloud's lists tell. Returns a final status where nobody
 * may ask the cloud any more and the VM has ended itself by its lifetime.
 * @throws CloudError to be tried again
 */
export async function terminate(
  launch: StoredLaunch,
  vmId: string,
  { options, calls, settings, signal }: Context,
): Promise<OwnStatus | undefined> {
  const { region, zone } = launch.spec.offer
  try {
    const cloud = await options.clouds.open(accountOf(launch))
    signal.throwIfAborted()
    options.fence()
    const vm = { id: vmId, launch: launch.metadata.name, region, ...(zone !== undefined && { zone }) }
    await cloud.terminate(vm, options.fence)
  } catch (error) {
    const status = error instanceof CredentialsError ? givenUp(launch, options.clock.now(), settings) : undefined
    if (status === undefined) throw error
    return status
  }
  calls.askedToTerminate(launch.metadata.name)
  return undefined
}
