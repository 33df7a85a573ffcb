import { defined } from "../../core/apis/defined.ts"
import { inParallel } from "../../core/apis/in-parallel.ts"
import { hasArrayEnded, type StoredJobArray } from "../../core/apis/jobarray.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { LABELS } from "../../core/apis/meta.ts"
import { limitForExisting, limitForJob, roomForJobs } from "../../core/quota/project-limits.ts"
import { arrayKey, isKeptForJobs, reuseOf } from "../../core/reuse/reuse.ts"
import { findJob, knownJobs, listJobs, projectEnding } from "../created-jobs.ts"
import type { ArrayObservation } from "./decide.ts"
import type { ArrayControllerDependencies } from "./dependencies.ts"
import { isMadeFor, jobName } from "./jobs.ts"
import type { Memory } from "./memory.ts"
import { attemptOf, currentJobs, recordedProgress } from "./progress.ts"
import type { Cause } from "./status.ts"

/** Live reads of an array's Jobs at the same time. */
const READS = 8

/** Reads the facts about an array from the caches, and live where a stale cache could do harm. */
export async function gather(
  array: StoredJobArray,
  options: ArrayControllerDependencies,
  memory: Memory,
): Promise<ArrayObservation> {
  const { namespace = "", name, uid } = array.metadata
  const { taken, rejection, writtenSeconds } = memory.of(uid)
  const isAwaited = options.prerequisites.isAwaited({ array: name }, array.metadata)
  const base = { taken, isAwaited, room: roomOf(namespace, options), ...defined({ writtenSeconds }) }
  if (array.metadata.deletionTimestamp !== undefined) {
    return { ...base, jobs: await listJobs(array, LABELS.arrayUid, options), settled: [], missing: new Set() }
  }
  const prerequisites = await options.prerequisites.look({ array: name }, array)
  const blocked = blockedBy(array, options) ?? rejection
  const kept = keptFor(array, options)
  return { ...base, kept, ...(await findJobs(array, options)), ...defined({ prerequisites, blocked }) }
}

/** Returns the Launches whose VMs wait for a job of this array only. */
function keptFor(
  { metadata, spec }: StoredJobArray,
  { launches, reuseDefault = {} }: ArrayControllerDependencies,
): StoredLaunch[] {
  const reuse = reuseOf({ spec: spec.jobDefinition }, reuseDefault)
  if (reuse === undefined || reuse.key !== undefined) return []
  const key = arrayKey(metadata.uid)
  return launches.store
    .byIndex("unmarked", metadata.namespace ?? "")
    .filter((launch) => launch.spec.run.reuse?.key === key && isKeptForJobs(launch))
}

function roomOf(namespace: string, { quota }: ArrayControllerDependencies): number {
  return quota === undefined ? Number.POSITIVE_INFINITY : roomForJobs(quota, namespace)
}

/** Returns why no Job may be created now; undefined if one may. */
function blockedBy(array: StoredJobArray, options: ArrayControllerDependencies): Cause | undefined {
  const namespace = array.metadata.namespace ?? ""
  const ending = projectEnding(namespace, options.tenancy)
  if (ending !== undefined) return ending
  const { quota, jobArrays } = options
  if (quota === undefined || hasArrayEnded(array)) return undefined
  const limit = limitForExisting(quota, "jobArrays", array, jobArrays.store) ?? limitForJob(quota, namespace)
  return limit && { reason: "ProjectLimit", message: limit.message }
}

type Found = Pick<ArrayObservation, "jobs" | "settled" | "missing">

async function findJobs(array: StoredJobArray, options: ArrayControllerDependencies): Promise<Found> {
  const { jobs: cached, settled } = knownJobs(array, options)
  const progress = recordedProgress(array)
  const known = currentJobs(array, [...settled, ...cached], progress)
  const unseen = [...progress.active].filter((index) => !known.has(index))
  const jobs = [...cached]
  const missing = new Set<number>()
  const look = async (index: number): Promise<void> => {
    const name = jobName(array, index, attemptOf(progress, index))
    const job = await findJob(name, array.metadata.namespace, options)
    if (job !== undefined && isMadeFor(job, array, index)) jobs.push(job)
    else missing.add(index)
  }
  await inParallel(unseen, READS, (index) => look(index))
  return { jobs, settled, missing }
}
