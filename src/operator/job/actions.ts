import { timestamp } from "../../core/apis/clock.ts"
import { JOB_FINALIZER, type StoredJob } from "../../core/apis/job.ts"
import { type Launch, launchName, pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import { ifFound, isAlreadyExists, isNotFound, KubeError } from "../../core/kube/errors.ts"
import { CLEARED_MANAGED_FIELDS } from "../../core/kube/resource.ts"
import { JOBS, LAUNCHES } from "../../core/resources.ts"
import type { ReconcileContext } from "../../core/runtime/controller.ts"
import type { LaunchLedger } from "../../market/placement/ledger.ts"
import { isWrittenByBerth } from "../caches.ts"
import type { Patcher, StatusReplacer } from "../writes.ts"
import type { JobControllerDependencies } from "./dependencies.ts"
import type { JobAction } from "./render.ts"

/** Field manager of the job controller. */
const FIELD_MANAGER = "berth-job-controller"

/** Writes the finalizer, the uid that it stands for, and the mirrored labels. @throws KubeError Conflict */
export async function adopt(
  job: StoredJob,
  labels: Record<string, string>,
  { client, jobs }: JobControllerDependencies,
  context: ReconcileContext,
): Promise<StoredJob> {
  const { namespace, name, resourceVersion } = job.metadata
  const finalizers = [...otherFinalizers(job), JOB_FINALIZER]
  const merge = { metadata: { resourceVersion, finalizers, ...recordOf(job, labels) } }
  const written = await client.patch(JOBS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  context.wrote(jobs.store, written)
  return written
}

/** Returns what an adoption writes besides the finalizer. One record is enough: a copy is recognized by the uid. */
function recordOf({ metadata }: StoredJob, labels: Record<string, string>) {
  return { annotations: { [ANNOTATIONS.recordedUid]: metadata.uid, [ANNOTATIONS.submission]: null }, labels }
}

function otherFinalizers({ metadata }: StoredJob): string[] {
  return metadata.finalizers?.filter((finalizer) => finalizer !== JOB_FINALIZER) ?? []
}

/**
 * Removes the finalizer of a Job whose VMs are all deleted. A Launch of the next number is read live: a dead leader may
 * have created it, and the cache may not show it yet. A Launch that arrives later ends, because its Job has ended.
 * @returns the written Job, or undefined: decide again
 * @throws KubeError Conflict
 */
export async function release(
  job: StoredJob,
  { next, labels }: JobAction & { do: "release" },
  { client, jobs, launches, installation, clock, fence }: JobControllerDependencies,
  context: ReconcileContext,
): Promise<StoredJob | undefined> {
  const { namespace, name, uid, resourceVersion } = job.metadata
  const ref = { namespace: installation.systemNamespace, name: launchName(uid, next) }
  const late = await ifFound(client.get(LAUNCHES, ref))
  if (late !== undefined) {
    context.wrote(launches.store, late)
    return undefined
  }
  const finalizers = otherFinalizers(job)
  const merge = { metadata: { resourceVersion, finalizers, ...marksOf(job, labels, clock.now()) } }
  fence()
  const written = await client.patch(JOBS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  context.wrote(jobs.store, written)
  return written
}

/**
 * Returns what the removal of the finalizer also writes. It clears `managedFields`, two fifths of an ended Job, unless a
 * tool owns fields there. An annotation gets the time of this write, which `managedFields` no longer has.
 */
function marksOf(job: StoredJob, labels: Record<string, string> | undefined, now: Date) {
  const record = labels && recordOf(job, labels)
  if (!isWrittenByBerth(job)) return record
  const annotations = { ...record?.annotations, [ANNOTATIONS.updatedAt]: timestamp(now) }
  return { ...record, annotations, managedFields: CLEARED_MANAGED_FIELDS }
}

/**
 * Creates the Launch, the atomic intent. Its name makes a second Launch of that number impossible. If the Launch
 * exists, an earlier attempt of this or an earlier leader created it, and it counts. The Job is read live first. So a
 * new leader's stale cache never buys a VM for a cancelled job.
 * @returns true if the Launch was created now; false: decide again
 * @throws Error if the existing Launch belongs to another job
 */
export async function createLaunch(
  job: StoredJob,
  { launch, isStrict }: JobAction & { do: "createLaunch" },
  { options, ledger, context }: { options: JobControllerDependencies; ledger: LaunchLedger; context: ReconcileContext },
): Promise<boolean> {
  try {
    const complete = (await isCurrent(job, options)) ? await withConnection(launch, isStrict, options) : undefined
    if (complete === undefined) {
      ledger.forget(launch)
      return false
    }
    options.fence()
    const written = await options.client.create(LAUNCHES, complete, { fieldManager: FIELD_MANAGER })
    context.wrote(options.launches.store, written)
    return true
  } catch (error) {
    // Without an answer the Launch may exist. It counts until the cache shows the truth.
    if (!(error instanceof KubeError && error.outcomeUnknown)) ledger.forget(launch)
    if (!isAlreadyExists(error)) throw error
  }
  const { namespace, name } = launch.metadata
  const found = await options.client.get(LAUNCHES, { namespace, name })
  if (found.spec.job.uid !== launch.spec.job.uid) {
    throw new Error(
      `Launch ${name} exists, but for the job uid ${found.spec.job.uid}: Berth did not create it; delete it`,
    )
  }
  context.wrote(options.launches.store, found)
  return false
}

/** Returns the Launch with its credentials and image, or undefined if its connection can no longer pay. */
async function withConnection(
  launch: Launch,
  isStrict: boolean,
  options: JobControllerDependencies,
): Promise<Launch | undefined> {
  const complete = launch.spec.connection === undefined ? launch : await withCredentials(launch, isStrict, options)
  if (complete === undefined) return undefined
  const imageId = complete.spec.takesOver === undefined ? options.vmImage?.(complete) : undefined
  return imageId === undefined ? complete : { ...complete, spec: { ...complete.spec, imageId } }
}

async function withCredentials(
  launch: Launch,
  isStrict: boolean,
  { copyCredentials, offers }: JobControllerDependencies,
): Promise<Launch | undefined> {
  const copy = await copyCredentials?.(launch)
  if (copy === undefined) return undefined
  const { version, ...sealed } = copy
  const annotations = { ...launch.metadata.annotations, [ANNOTATIONS.credentials]: version }
  if (launch.spec.takesOver !== undefined) {
    // The VM keeps its settings and its prices.
    const { project, sealedCredentials } = sealed
    const kept = { ...launch.spec, project, sealedCredentials }
    return { ...launch, metadata: { ...launch.metadata, annotations }, spec: kept }
  }
  const spec = { ...launch.spec, ...sealed }
  // The connection or the image's size may have changed since the decision.
  const vm = { disk: spec.disk, publicAddress: spec.network?.publicAddress ?? true, isStrict }
  const hourlyPrices = offers.current().pricesOf(spec.offer, vm)
  // A strict limit holds for the prices of the decision. With a higher price it is decided again.
  const [before, after] = [sumOfParts(pricesOf(launch)), sumOfParts(hourlyPrices)]
  if (isStrict && after > before) return undefined
  const reservedUsd = before === 0 ? spec.reservedUsd : roundUsd(((spec.reservedUsd ?? 0) * after) / before)
  const priced = { hourlyPrices, ...(!isStrict && reservedUsd !== undefined && { reservedUsd }) }
  return { ...launch, metadata: { ...launch.metadata, annotations }, spec: { ...spec, ...priced } }
}

/** Returns true if the Job is still the version that the decision used. */
async function isCurrent({ metadata }: StoredJob, { client }: JobControllerDependencies): Promise<boolean> {
  const { namespace, name, uid, resourceVersion } = metadata
  try {
    const live = await client.get(JOBS, { namespace, name })
    return live.metadata.uid === uid && live.metadata.resourceVersion === resourceVersion
  } catch (error) {
    if (isNotFound(error)) return false
    throw error
  }
}

/**
 * Sets `ended` of a Launch, and the launch controller then terminates the VM. This is irreversible, so it requires the
 * version that the decision used. The agent may have reported the end since.
 * @throws KubeError Conflict; the caller decides again
 */
export async function endLaunch(
  launch: StoredLaunch,
  {
    client,
    launches,
    fence,
  }: Pick<JobControllerDependencies, "launches" | "fence"> & {
    client: Pick<JobControllerDependencies["client"], "patch">
  },
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

/** Returns the writer of Jobs. */
export function jobWriter({ client, jobs }: JobControllerDependencies): Patcher<StoredJob> & StatusReplacer<StoredJob> {
  return { client, resource: JOBS, store: jobs.store, fieldManager: FIELD_MANAGER }
}
