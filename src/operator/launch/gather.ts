import { secondsBetween } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import { isTerminal, type StoredJob } from "../../core/apis/job.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import { LABELS } from "../../core/apis/meta.ts"
import { statementName } from "../../core/apis/statement.ts"
import { ifFound } from "../../core/kube/errors.ts"
import type { Change } from "../../core/kube/store.ts"
import { JOBS, LAUNCHES } from "../../core/resources.ts"
import { isCounted as isCostCounted } from "../../market/placement/statements.ts"
import type { ElapsedTimes } from "../elapsed.ts"
import type { CloudCalls } from "./create.ts"
import { createTimeOf, hasFinalizer, type LaunchObservation } from "./decide.ts"
import type { LaunchControllerDependencies } from "./dependencies.ts"
import type { VmObserver } from "./observe.ts"

/** Sources of facts that the process itself has. */
export interface GatherParts {
  calls: CloudCalls
  observer: VmObserver
  /** Ages of the VMs. */
  ages: ElapsedTimes
}

/** Reads everything that a decision on this Launch depends on. */
export async function gather(
  launch: StoredLaunch,
  options: LaunchControllerDependencies,
  { calls, observer, ages }: GatherParts,
): Promise<LaunchObservation> {
  const { name } = launch.metadata
  const requestedAgo = calls.terminateRequestedSecondsAgo(name)
  const launchError = calls.launchError(name)
  const vmSeconds = vmAge(launch, ages)
  const consoleRead = calls.consoleRead(name)
  return {
    instance: observer.view(name),
    heartbeatTimedOut: observer.heartbeatTimedOut(name),
    isCounted: isOver(launch) && isCostCounted(launch, statementIn(options)),
    job: await jobState(launch, options),
    isHandoverOpen: await isHandoverOpen(launch, options),
    // Read last: nothing is awaited between this and the decision.
    inFlight: calls.mayBeInFlight(name),
    ...defined({ terminateRequestedSecondsAgo: requestedAgo, launchError, vmSeconds, consoleRead }),
  }
}

/** Returns the age of a VM, by the gateway's clock if this process did not see its creation. */
function vmAge(launch: StoredLaunch, ages: ElapsedTimes): number | undefined {
  const { metadata, status } = launch
  if (isOver(launch)) return undefined
  const since = status?.vm && createTimeOf(launch)
  const beat = status?.agent?.lastHeartbeatTime
  const reported = since === undefined || beat === undefined ? undefined : secondsBetween(since, beat)
  return ages.seconds(metadata.name, { id: metadata.uid, since, reported })
}

/** Returns true while the Launch that gets the VM of this one has not recorded it. A released record is not needed. */
async function isHandoverOpen(launch: StoredLaunch, options: LaunchControllerDependencies): Promise<boolean> {
  const name = launch.status?.handedTo
  if (name === undefined || !hasFinalizer(launch)) return false
  const ref = { namespace: options.systemNamespace, name }
  // A record never becomes needed again, so a late cache says at most that it is needed longer.
  const heir = options.launches.store.get(ref) ?? (await ifFound(options.client.get(LAUNCHES, ref)))
  return needsPredecessor(heir)
}

/** Returns true for a Launch that has taken over a VM, and can read only from its predecessor which one. */
export function needsPredecessor(heir: StoredLaunch | undefined): boolean {
  return heir !== undefined && !isOver(heir) && heir.status?.vm?.id === undefined
}

/** Returns the keys that a change of a Launch wakes: its own, and that of a predecessor whose record it needs no more. */
export function keysWokenBy({ key, old, current }: Change<StoredLaunch>): string[] {
  const { takesOver } = (current ?? old)?.spec ?? {}
  if (takesOver === undefined || !needsPredecessor(old) || needsPredecessor(current)) return [key]
  return [key, `${(current ?? old)?.metadata.namespace}/${takesOver}`]
}

/** Reads the Job's state from the cache. A Job that is not there may be settled, deleted, or not cached yet. */
async function jobState(
  launch: StoredLaunch,
  options: LaunchControllerDependencies,
): Promise<LaunchObservation["job"]> {
  const { jobs, settled } = options
  // The label says that the job needed the record no more.
  if (isOver(launch) && launch.metadata.labels?.[LABELS.released] !== undefined) return "settled"
  const { uid } = launch.spec.job
  const cached = jobs.store.getByUid(uid)
  if (cached === undefined && settled.has(uid)) return "settled"
  return readJobState(cached ?? (await liveJob(launch, options)), launch)
}

/** Returns the Job's state as far as it concerns this Launch. */
export function readJobState(job: StoredJob | undefined, launch: StoredLaunch): LaunchObservation["job"] {
  if (job === undefined) return "deleted"
  if (isRefusalNoted(launch, job)) return "settled"
  if (isTerminal(job.status?.phase) && job.status?.cost?.actualUsd !== undefined) return "settled"
  if (!isCounted(launch, job)) return "unobserved"
  return isTerminal(job.status?.phase) ? "ending" : "active"
}

/** Returns true if a change of its Job may release this Launch's record or orphan its VM. */
export function isWokenBy(launch: StoredLaunch, old: StoredJob | undefined, current: StoredJob | undefined): boolean {
  if (current === undefined || isTerminal(current.status?.phase)) return true
  const [before, after] = [old?.status?.launches, current.status?.launches]
  return isOver(launch) && (before?.current !== after?.current || before?.count !== after?.count)
}

/** Returns true for a refused Launch that its Job has replaced. A queued job may be refused often. */
function isRefusalNoted(launch: StoredLaunch, job: StoredJob): boolean {
  const isReplaced = job.status?.launches?.current !== launch.metadata.name
  return launch.status?.phase === "refused" && isCounted(launch, job) && isReplaced
}

/** Returns true if the Job's status counts this Launch's number. */
function isCounted({ spec }: StoredLaunch, { status }: StoredJob): boolean {
  return (status?.launches?.count ?? 0) >= spec.number
}

/** Reads the Job live: a cache without the Job may be stale. */
async function liveJob(launch: StoredLaunch, options: LaunchControllerDependencies): Promise<StoredJob | undefined> {
  const { namespace, name, uid } = launch.spec.job
  const job = await ifFound(options.client.get(JOBS, { namespace, name }))
  return job?.metadata.uid === uid ? job : undefined
}

/** Returns a function that finds a project's Statement of a month. */
function statementIn({ statements, systemNamespace: namespace }: LaunchControllerDependencies) {
  return (project: string, month: string) => statements.store.get({ namespace, name: statementName(project, month) })
}
