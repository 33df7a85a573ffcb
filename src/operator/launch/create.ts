import type { Cloud, LaunchSpec, Vm } from "../../clouds/cloud.ts"
import { accountOf } from "../../clouds/cloud.ts"
import { type Clock, timestamp } from "../../core/apis/clock.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import { type LaunchStatus, RESTRICTED_MACHINES, type StoredLaunch } from "../../core/apis/launch.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { ifFound, KubeError } from "../../core/kube/errors.ts"
import {
  AccountError,
  CapacityError,
  CloudError,
  CredentialsError,
  InvalidRequestError,
  QuotaError,
  RegionError,
  RestrictedError,
  SubnetCapacityError,
  TransientError,
} from "../../core/outbound/errors.ts"
import { LAUNCHES } from "../../core/resources.ts"
import { vmLifetimeOf } from "../../core/reuse/reuse.ts"
import type { Source } from "../../core/runtime/controller.ts"
import { NotLeaderError } from "../fence.ts"
import {
  abandonedStatus,
  type ConsoleReading,
  type LaunchError,
  type OwnStatus,
  type RepeatedLaunchError,
} from "./decide.ts"
import type { LaunchControllerDependencies } from "./dependencies.ts"
import type { LaunchSettings } from "./settings.ts"

type RefusalClass = NonNullable<LaunchStatus["refusal"]>["class"]

/** Everything that calls to clouds need besides the Launch. */
export interface CloudContext {
  options: LaunchControllerDependencies
  calls: CloudCalls
  settings: LaunchSettings
  signal: AbortSignal
}

/**
 * Creates the Launch's VM and returns the next status. The same Launch always makes the identical call, so a repeated
 * call settles the outcome of an earlier one. A Launch without an image gets only its image. It is written before the
 * first call, so that every call has the same image. A Launch whose subnet has no capacity gets only the number of the
 * next subnet. It is written before that is requested. EC2's client tokens hold for one zone only, so a call that names
 * another subnet while an earlier one is open could create a second VM.
 * @returns undefined if a newer version of the Launch exists that the cache does not show yet
 * @throws any error that leaves the outcome open; the next reconcile writes it into the status and retries
 */
export async function createInstance(launch: StoredLaunch, context: CloudContext): Promise<OwnStatus | undefined> {
  const { name } = launch.metadata
  const wasInFlight = context.calls.mayBeInFlight(name)
  try {
    // The write of a refusal may have succeeded although it seemed to fail. Another call could then create a VM for a
    // Launch that is over.
    if (wasInFlight && !(await isLatest(launch, context.options))) return undefined
    return await statusAfterCall(launch, wasInFlight, context)
  } catch (error) {
    const launchError = context.signal.aborted ? undefined : toLaunchError(error)
    if (launchError !== undefined) context.calls.failed(name, launchError)
    throw error
  }
}

async function statusAfterCall(
  launch: StoredLaunch,
  wasInFlight: boolean,
  context: CloudContext,
): Promise<OwnStatus | undefined> {
  const { options, settings } = context
  try {
    const cloud = await options.clouds.open(accountOf(launch))
    const image = await missingImage(launch, cloud)
    if (image === undefined) return createdStatus(await call(launch, cloud, context))
    options.vmImages?.add(launch, image)
    return imageStatus(image)
  } catch (error) {
    if (error instanceof SubnetCapacityError) return nextSubnetStatus(launch, error)
    const refusal = refusalOf(error)
    if (refusal === undefined) throw error
    if (refusal.class === "InvalidRequest") options.vmImages?.remove(launch)
    if (!(error instanceof CredentialsError && wasInFlight)) return refusedStatus(refusal, options.clock.now())
    // Any other refusal of the identical call proves that there is no VM. This one leaves the outcome open.
    const status = abandonedStatus(launch, options.clock.now(), settings)
    if (status === undefined) throw error
    return status
  }
}

/**
 * Completes the launch of a VM whose create call may have been cut off, and returns the status that records the VM.
 * A rejected completion is only logged: the VM runs its job already, and must be recorded to be ended.
 * @throws CloudError if the call has to be retried
 */
export async function recordInstance(
  launch: StoredLaunch,
  vm: Vm,
  { options, signal }: CloudContext,
): Promise<OwnStatus> {
  if (vm.state !== "booting" && vm.state !== "running") return createdStatus(vm)
  try {
    const cloud = await options.clouds.open(accountOf(launch))
    signal.throwIfAborted()
    options.fence()
    await cloud.completeLaunch?.(cloudSpec(launch, options), options.fence)
  } catch (error) {
    const isFinal = error instanceof CloudError && refusalOf(error) !== undefined
    if (!isFinal) throw error
    options.logger.warn(
      { err: error, launch: launch.metadata.name },
      "the launch of a running VM could not be completed",
    )
  }
  return createdStatus(vm)
}

/**
 * Lists the account of a Launch whose VM no list has shown.
 * @returns a final status if the cloud rejects the credentials and the VM has ended by its lifetime; otherwise undefined
 * @throws CloudError if the call has to be retried
 */
export async function findInstance(
  launch: StoredLaunch,
  { options, settings }: CloudContext,
): Promise<OwnStatus | undefined> {
  const { installation, offer } = launch.spec
  try {
    await (await options.clouds.open(accountOf(launch))).list({ installation, region: offer.region })
    return undefined
  } catch (error) {
    const isRejected = error instanceof CredentialsError
    const status = isRejected ? abandonedStatus(launch, options.clock.now(), settings) : undefined
    if (status === undefined) throw error
    return status
  }
}

async function isLatest({ metadata }: StoredLaunch, { client }: LaunchControllerDependencies): Promise<boolean> {
  const { namespace, name, resourceVersion } = metadata
  const live = await ifFound(client.get(LAUNCHES, { namespace, name }))
  return live?.metadata.resourceVersion === resourceVersion
}

/** Returns an image for a Launch that has none yet. No VM was requested for such a Launch. */
async function missingImage({ spec, status }: StoredLaunch, cloud: Cloud): Promise<string | undefined> {
  if (spec.imageId !== undefined || status?.imageId !== undefined) return undefined
  return await cloud.imageFor?.(spec.offer)
}

async function call(launch: StoredLaunch, cloud: Cloud, { options, calls, signal }: CloudContext): Promise<Vm> {
  const spec = cloudSpec(launch, options)
  signal.throwIfAborted()
  options.fence()
  const unmark = calls.markInFlight(launch.metadata.name)
  try {
    return await cloud.launch(spec, options.fence)
  } catch (error) {
    if (error instanceof TransientError) unmark()
    throw error
  }
}

/**
 * Returns the cloud's request, from fields of the Launch only: a replay must be the same to the last byte. The fields
 * are immutable, except `exhaustedSubnets`. That changes only after the cloud has rejected the request for certain.
 */
function cloudSpec(launch: StoredLaunch, options: LaunchControllerDependencies): LaunchSpec {
  const { job, installation, offer, network, disk, ceilingUsd } = launch.spec
  const imageId = launch.spec.imageId ?? launch.status?.imageId
  const exhaustedSubnets = launch.status?.exhaustedSubnets
  return {
    name: launch.metadata.name,
    installation,
    tags: { project: job.namespace, job: job.name },
    offer,
    ...defined({ imageId, network, disk, exhaustedSubnets, ceilingUsd }),
    userData: options.userData(launch),
    lifetimeSeconds: vmLifetimeOf(launch.spec),
  }
}

interface Refusal {
  class: RefusalClass
  error: CloudError
}

function refusalOf(error: unknown): Refusal | undefined {
  if (error instanceof CapacityError) return { class: "Capacity", error }
  if (error instanceof QuotaError) return { class: "Quota", error }
  if (error instanceof RegionError) return { class: "Region", error }
  if (error instanceof CredentialsError) return { class: "Credentials", error }
  if (error instanceof AccountError) return { class: "Account", error }
  if (error instanceof InvalidRequestError) return { class: "InvalidRequest", error }
  return undefined
}

function refusedStatus(refusal: Refusal, now: Date): OwnStatus {
  const { code, message } = refusal.error
  const machines = refusal.error instanceof RestrictedError ? refusal.error.machines : []
  return {
    phase: "refused",
    message: cutTo(`${refusal.class}: ${message}`, 4096),
    refusal: {
      class: refusal.class,
      code: cutTo(code, 128),
      message: cutTo(message, 1024),
      time: timestamp(now),
      ...(machines.length > 0 && { machines: machines.slice(0, RESTRICTED_MACHINES) }),
    },
    costUsd: 0,
  }
}

/** Returns the status of a Launch that has got its image. No VM was requested yet. */
function imageStatus(imageId: string): OwnStatus {
  return { phase: "requested", message: "requesting a VM from the cloud", imageId }
}

/** Returns the status of a Launch whose current subnet has no capacity. No VM exists. */
function nextSubnetStatus({ status }: StoredLaunch, { message }: SubnetCapacityError): OwnStatus {
  const exhaustedSubnets = (status?.exhaustedSubnets ?? 0) + 1
  return { phase: "requested", message: cutTo(`trying another subnet: ${message}`, 4096), exhaustedSubnets }
}

/** Returns the status of a Launch whose VM the cloud has accepted. */
export function createdStatus(vm: Vm): OwnStatus {
  const { id, ipAddress, createTime } = vm
  return {
    phase: "created",
    message: "the VM is booting",
    vm: { state: "booting", id, createTime, ...defined({ ipAddress }) },
  }
}

/**
 * Returns the launch error that the job's owner sees. Undefined for errors of the API server and for a lost lease. Of
 * an internal error only the name is shown: its text is for the operator's log.
 */
export function toLaunchError(error: unknown): LaunchError | undefined {
  if (error instanceof KubeError || error instanceof NotLeaderError) return undefined
  if (error instanceof CloudError) {
    const kind = error instanceof CredentialsError ? "Credentials" : "Unavailable"
    return { class: kind, message: cutTo(error.message, 1024) }
  }
  const name = error instanceof Error ? error.name : typeof error
  return { class: "Unavailable", message: `internal error in Berth (${name}); the operator's log has details` }
}

/**
 * Calls to clouds in this term of leadership. A call for a Launch may be in flight unless this leader has seen the
 * Launch's whole life. That requires two facts:
 * - The Launch did not exist when the term began. A live list, read after the lease was acquired, contains every Launch
 *   that an earlier leader can have acted on. The lease stops an earlier leader from calling later.
 * - Since then no call was made whose outcome is unknown.
 */
export class CloudCalls {
  readonly #inherited = new Set<string>()
  readonly #inFlight = new Set<string>()
  readonly #errors = new Map<string, RepeatedLaunchError>()
  readonly #terminateRequested = new Map<string, number>()
  readonly #consoleReads = new Map<string, ConsoleReading>()
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns a source that begins a term each time the controller is run, before its first reconcile. */
  term(client: Pick<KubeClient, "pages">, systemNamespace: string): Source {
    return {
      subscribe: () => () => undefined,
      whenSynced: async (signal) => {
        for (const known of [this.#inherited, this.#inFlight, this.#errors, this.#terminateRequested]) known.clear()
        this.#consoleReads.clear()
        for await (const page of client.pages(LAUNCHES, { namespace: systemNamespace, signal })) {
          for (const launch of page.items) this.#inherited.add(launch.metadata.name)
        }
      },
    }
  }

  /** Returns true if a create call may have been made whose outcome is unknown. */
  mayBeInFlight(name: string): boolean {
    return this.#inherited.has(name) || this.#inFlight.has(name)
  }

  /**
   * Marks a create call that is about to be made. Returns how to remove the mark once the cloud says that this call had
   * no effect. An earlier call stays marked.
   */
  markInFlight(name: string): () => void {
    if (this.#inFlight.has(name)) return () => undefined
    this.#inFlight.add(name)
    return () => this.#inFlight.delete(name)
  }

  /** Records a create call that failed and left the outcome open. */
  failed(name: string, error: LaunchError): void {
    const before = this.#errors.get(name)
    const since = before?.class === error.class ? before.since : this.#clock.now()
    this.#errors.set(name, { ...before, ...error, since })
  }

  /** Records that the launch error was written into the status. */
  reported(name: string): void {
    const error = this.#errors.get(name)
    if (error !== undefined) this.#errors.set(name, { ...error, lastReported: this.#clock.now() })
  }

  /** Returns the launch error of this leader's latest calls; undefined if there was none since the last answer. */
  launchError(name: string): RepeatedLaunchError | undefined {
    return this.#errors.get(name)
  }

  /** Records that the outcome is known and written. */
  settled(name: string): void {
    this.#inherited.delete(name)
    this.#inFlight.delete(name)
    this.#errors.delete(name)
  }

  /** Records that a VM's console was read, with whatever result. */
  readConsole(name: string, reading: ConsoleReading): void {
    this.#consoleReads.set(name, reading)
  }

  /** Returns the latest reading of a VM's console; undefined if there was none. */
  consoleRead(name: string): ConsoleReading | undefined {
    return this.#consoleReads.get(name)
  }

  /** Records a terminate call that the cloud accepted. */
  terminateRequested(name: string): void {
    this.#terminateRequested.set(name, this.#clock.monotonic())
  }

  /** Returns the age of the last accepted terminate call in seconds. */
  terminateRequestedSecondsAgo(name: string): number | undefined {
    const at = this.#terminateRequested.get(name)
    return at === undefined ? undefined : this.#clock.monotonic() - at
  }

  /** Removes everything about a Launch that is over. */
  forget(name: string): void {
    this.settled(name)
    this.#terminateRequested.delete(name)
    this.#consoleReads.delete(name)
  }
}
