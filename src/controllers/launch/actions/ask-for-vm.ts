import { timestamp } from "../../../apis/clock.ts"
import { cutTo } from "../../../apis/conditions.ts"
import type { LaunchStatus, StoredLaunch } from "../../../apis/launch.ts"
import {
  CapacityError,
  type CloudError,
  CredentialsError,
  InvalidRequestError,
  QuotaError,
  RegionError,
  TransientError,
} from "../../../cloud/errors.ts"
import type { Cloud, LaunchSpec, Vm } from "../../../cloud/provider.ts"
import { ifFound } from "../../../kube/errors.ts"
import { accountOf } from "../account.ts"
import type { CloudCalls } from "../calls.ts"
import { createdStatus, givenUp, imageStatus, type OwnStatus } from "../decide.ts"
import { LAUNCHES, type LaunchControllerOptions } from "../dependencies.ts"
import type { LaunchSettings } from "../settings.ts"

type RefusalClass = NonNullable<LaunchStatus["refusal"]>["class"]

interface Context {
  options: LaunchControllerOptions
  calls: CloudCalls
  settings: LaunchSettings
  signal: AbortSignal
}

/**
 * Asks the cloud for the Launch's VM and returns what the status becomes. The same Launch always makes the same call,
 * so calling again finds out what became of an earlier call. Where the VM's image is still to be found out, that is all
 * it does: the image is written down before the first call, so that every call has the same. Undefined: what an earlier
 * call came to has been written down, and the cache will show it.
 * @throws what leaves the outcome open (transient, unknown): the caller tries again
 */
export async function askForVm(launch: StoredLaunch, context: Context): Promise<OwnStatus | undefined> {
  const { options, calls, settings } = context
  const { name } = launch.metadata
  const wasOutstanding = calls.isOutstanding(name)
  // A refusal whose write seemed to fail may stand by now: asked again, the cloud might have a VM for a Launch that is over.
  if (wasOutstanding && !(await isLatest(launch, options))) return undefined
  try {
    const cloud = await options.clouds.open(accountOf(launch))
    const image = await missingImage(launch, cloud)
    return image === undefined ? createdStatus(await call(launch, cloud, context)) : imageStatus(image)
  } catch (error) {
    const refusal = refusalOf(error)
    if (refusal === undefined) throw error
    // Any other refusal of the identical call says that there is no VM; this one only that nobody may ask.
    if (refusal.error instanceof CredentialsError && wasOutstanding) {
      const status = givenUp(launch, options.clock.now(), settings)
      if (status === undefined) throw error
      return status
    }
    const { message } = refusal.error
    return {
      phase: "refused",
      message: cutTo(`${refusal.class}: ${message}`, 4096),
      refusal: {
        class: refusal.class,
        code: cutTo(refusal.error.code, 128),
        message: cutTo(message, 1024),
        time: timestamp(options.clock.now()),
      },
      costUsd: 0,
    }
  }
}

async function isLatest({ metadata }: StoredLaunch, { client }: LaunchControllerOptions): Promise<boolean> {
  const { namespace, name, resourceVersion } = metadata
  const live = await ifFound(client.get(LAUNCHES, { namespace, name }))
  return live?.metadata.resourceVersion === resourceVersion
}

/** The image that a Launch is to have which has none yet: no cloud was ever asked for its VM. */
async function missingImage({ spec, status }: StoredLaunch, cloud: Cloud): Promise<string | undefined> {
  if (spec.imageId !== undefined || status?.imageId !== undefined) return undefined
  return await cloud.imageFor?.(spec.offer)
}

async function call(launch: StoredLaunch, cloud: Cloud, { options, calls, signal }: Context): Promise<Vm> {
  const spec = cloudSpec(launch, options)
  signal.throwIfAborted()
  options.fence()
  const didNotHappen = calls.asking(launch.metadata.name)
  try {
    return await cloud.launch(spec, options.fence)
  } catch (error) {
    if (error instanceof TransientError) didNotHappen()
    throw error
  }
}

/** A pure function of what of the Launch is frozen: a replay must be the same to the last byte. */
function cloudSpec(launch: StoredLaunch, options: LaunchControllerOptions): LaunchSpec {
  const { job, installation, offer, lifetimeSeconds } = launch.spec
  const imageId = launch.spec.imageId ?? launch.status?.imageId
  return {
    name: launch.metadata.name,
    installation,
    tags: { project: job.namespace, job: job.name },
    offer,
    ...(imageId !== undefined && { imageId }),
    userData: options.userData(launch),
    lifetimeSeconds,
  }
}

function refusalOf(error: unknown): { class: RefusalClass; error: CloudError } | undefined {
  if (error instanceof CapacityError) return { class: "Capacity", error }
  if (error instanceof QuotaError) return { class: "Quota", error }
  if (error instanceof RegionError) return { class: "Region", error }
  if (error instanceof CredentialsError) return { class: "Credentials", error }
  if (error instanceof InvalidRequestError) return { class: "InvalidRequest", error }
  return undefined
}
