import { isTerminal, JOB, type StoredJob } from "../../apis/job.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import { ifFound } from "../../kube/errors.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { CloudCalls } from "./calls.ts"
import type { LaunchObservation } from "./decide.ts"
import type { LaunchControllerOptions } from "./dependencies.ts"
import type { VmObserver } from "./observer.ts"

const JOBS = resourceOf<StoredJob>(JOB)

/** Reads all that a decision on this Launch is made from. */
export async function gather(
  launch: StoredLaunch,
  options: LaunchControllerOptions,
  calls: CloudCalls,
  observer: VmObserver,
): Promise<LaunchObservation> {
  const { name } = launch.metadata
  const askedAgo = calls.terminateAskedSecondsAgo(name)
  const counts = countsUntil(launch, options)
  const attempts = calls.attempts(name)
  return {
    sighting: observer.sighting(name),
    silent: observer.isSilent(name),
    job: await jobState(launch, options),
    // Read last: nothing is awaited between this and the decision.
    outstanding: calls.isOutstanding(name),
    ...(askedAgo !== undefined && { terminateAskedSecondsAgo: askedAgo }),
    ...(counts !== undefined && { countsUntil: counts }),
    ...(attempts !== undefined && { attempts }),
  }
}

async function jobState(launch: StoredLaunch, options: LaunchControllerOptions): Promise<LaunchObservation["job"]> {
  return standingOf(options.jobs.store.getByUid(launch.spec.job.uid) ?? (await liveJob(launch, options)), launch)
}

/** What a Launch has to know of its Job, or that there is none. Pure. */
export function standingOf(job: StoredJob | undefined, launch: StoredLaunch): LaunchObservation["job"] {
  if (job === undefined) return "gone"
  if (isRefusalNoted(launch, job)) return "recorded"
  if (isTerminal(job.status?.phase) && job.status?.cost?.actualUsd !== undefined) return "recorded"
  return isCounted(launch, job) ? "alive" : "unaware"
}

/** Whether what has become of its Job may free this Launch's record, or orphan its VM. Pure. */
export function isWokenBy(launch: StoredLaunch, old: StoredJob | undefined, current: StoredJob | undefined): boolean {
  if (current === undefined || isTerminal(current.status?.phase)) return true
  const [before, after] = [old?.status?.launches, current.status?.launches]
  return isOver(launch) && (before?.current !== after?.current || before?.count !== after?.count)
}

/** A job that waits for long is refused often: once it has gone on, a Launch that never had a VM tells it nothing more. */
function isRefusalNoted(launch: StoredLaunch, job: StoredJob): boolean {
  const isLeft = job.status?.launches?.current !== launch.metadata.name
  return launch.status?.phase === "refused" && isCounted(launch, job) && isLeft
}

/** Whether the job's status knows that this number was given. */
function isCounted({ spec }: StoredLaunch, { status }: StoredJob): boolean {
  return (status?.launches?.count ?? 0) >= spec.number
}

/** A cache that lacks the Job may be late: only the API server's word makes a Job gone. */
async function liveJob(launch: StoredLaunch, options: LaunchControllerOptions): Promise<StoredJob | undefined> {
  const { namespace, name, uid } = launch.spec.job
  const job = await ifFound(options.client.get(JOBS, { namespace, name }))
  return job?.metadata.uid === uid ? job : undefined
}

/** Under a monthly cap what a deleted Job has cost still counts to the month's end (UTC). */
function countsUntil(launch: StoredLaunch, { caps }: LaunchControllerOptions): Date | undefined {
  const { vm, costUsd } = launch.status ?? {}
  if (!isOver(launch) || !costUsd || vm?.terminationTime === undefined) return undefined
  if (caps?.(launch.spec.job.namespace)?.maxMonthlyUsd === undefined) return undefined
  const end = new Date(vm.terminationTime)
  return new Date(Date.UTC(end.getUTCFullYear(), end.getUTCMonth() + 1, 1))
}
