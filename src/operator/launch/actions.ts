import { accountOf, type VmRef } from "../../clouds/cloud.ts"
import { timestamp } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import { LAUNCH_FINALIZER, type StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS, LABELS } from "../../core/apis/meta.ts"
import { ifFound, isNotFound } from "../../core/kube/errors.ts"
import { CLEARED_MANAGED_FIELDS } from "../../core/kube/resource.ts"
import { CloudError, CredentialsError } from "../../core/outbound/errors.ts"
import { failureOnConsole } from "../../core/protocol/messages.ts"
import { LAUNCHES } from "../../core/resources.ts"
import { vmNameOf } from "../../core/reuse/reuse.ts"
import type { ReconcileContext } from "../../core/runtime/controller.ts"
import { monthlyCosts } from "../../market/placement/statements.ts"
import { type Writer, writeStatus } from "../writes.ts"
import { buildConditions } from "./conditions.ts"
import type { CloudContext } from "./create.ts"
import { abandonedStatus, type LaunchAction, type OwnStatus, ownStatus } from "./decide.ts"
import type { LaunchControllerDependencies } from "./dependencies.ts"
import { toMinute } from "./records.ts"
import { type Takeover, takeoverOf } from "./takeover.ts"

/** Owner of the fields that the launch controller writes. */
export const FIELD_MANAGER = "berth-launch-controller"

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
  try {
    const cloud = await options.clouds.open(accountOf(launch))
    signal.throwIfAborted()
    options.fence()
    await cloud.terminate(refOf(launch, vmId), options.fence)
  } catch (error) {
    const isRejected = error instanceof CredentialsError
    const status = isRejected ? abandonedStatus(launch, options.clock.now(), settings) : undefined
    if (status === undefined) throw error
    return status
  }
  calls.terminateRequested(launch.metadata.name)
  return undefined
}

function refOf(launch: StoredLaunch, id: string): VmRef {
  const { region, zone } = launch.spec.offer
  return { id, launch: vmNameOf(launch), region, ...defined({ zone }) }
}

/**
 * Reads the VM's console once. A console that can't be read delays nothing: the cloud may not allow it, or has none.
 * @returns the status with the failure that the VM wrote there; undefined if it wrote none
 */
export async function readConsole(
  launch: StoredLaunch,
  { vmId, reading }: Extract<LaunchAction, { do: "readConsole" }>,
  { options, calls }: CloudContext,
): Promise<OwnStatus | undefined> {
  const { name } = launch.metadata
  calls.readConsole(name, reading)
  try {
    const cloud = await options.clouds.open(accountOf(launch))
    const failure = failureOnConsole((await cloud.consoleOf?.(refOf(launch, vmId))) ?? "")
    if (failure === undefined) return undefined
    options.logger.warn({ launch: name, ...failure }, "a VM wrote on its console that it can run no container")
    const consoleFailure = { ...failure, time: timestamp(options.clock.now()) }
    return { ...ownStatus(launch.status ?? {}), consoleFailure }
  } catch (error) {
    if (!(error instanceof CloudError)) throw error
    options.logger.info({ err: error, launch: name }, "the console of a VM was not read")
    return undefined
  }
}

/**
 * Takes over the VM of the predecessor. Its last status is written here, in the version that was read; the status of the
 * Launch itself must be written next.
 * @returns what became of the takeover
 * @throws KubeError Conflict: the predecessor was changed in the meantime
 */
export async function takeOver(
  launch: StoredLaunch,
  { options, calls }: Pick<CloudContext, "options" | "calls">,
  context: ReconcileContext,
): Promise<Takeover> {
  const { client, clock, systemNamespace: namespace, fence } = options
  const ref = { namespace, name: launch.spec.takesOver ?? "" }
  const predecessor = await ifFound(client.get(LAUNCHES, ref))
  const step = takeoverOf(launch, predecessor, clock.now())
  if (step.is !== "possible" || predecessor === undefined) return step
  fence()
  calls.markInFlight(launch.metadata.name)
  const written = await writeOwnStatus(predecessor, step.predecessor, options, context)
  return takeoverOf(launch, written, clock.now())
}

/**
 * Writes the controller's part of the status, if the Launch is still the version that the decision was based on. Keeps
 * the gateway's part. @throws KubeError Conflict
 */
export function writeOwnStatus(
  launch: StoredLaunch,
  status: OwnStatus,
  options: LaunchControllerDependencies,
  context: ReconcileContext,
): Promise<StoredLaunch> {
  const conditions = buildConditions(launch, status, options.clock.now())
  // A merge patch removes a field by null. Any status without a launch error means that the cloud answered.
  const own = { unanswered: null, ...status, conditions, observedGeneration: launch.metadata.generation }
  return writeStatus(launch, own as StoredLaunch["status"], launchWriter(options), context)
}

/** Marks the cost of a Launch as counted, and removes its finalizer and `managedFields`, in one write. @throws KubeError Conflict */
export async function release(
  launch: StoredLaunch,
  { needed }: { needed: boolean },
  { client, launches, clock, fence }: LaunchControllerDependencies,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, resourceVersion, deletionTimestamp } = launch.metadata
  const finalizers = launch.metadata.finalizers?.filter((present) => present !== LAUNCH_FINALIZER) ?? []
  const months = monthlyCosts(launch).map(({ month }) => month)
  const annotations = { [ANNOTATIONS.counted]: months.join(",") }
  const labels = { [LABELS.released]: toMinute(clock.now()) }
  const marks = { ...(months.length > 0 && { annotations }), ...(!needed && { labels }) }
  // Only Berth writes Launches, so no one needs the record of their owners any more. The write itself gets cheaper too.
  const merge = { metadata: { resourceVersion, finalizers, ...marks, managedFields: CLEARED_MANAGED_FIELDS } }
  fence()
  try {
    const written = await client.patch(LAUNCHES, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
    // Without its last finalizer a deleted object does not exist, and the cache never shows this version.
    if (deletionTimestamp === undefined || finalizers.length > 0) context.wrote(launches.store, written)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}

export function launchWriter({ client, launches }: LaunchControllerDependencies): Writer<StoredLaunch> {
  return { client, resource: LAUNCHES, store: launches.store, fieldManager: FIELD_MANAGER }
}
