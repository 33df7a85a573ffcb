import type { Clock } from "../../apis/clock.ts"
import type { StoredJob } from "../../apis/job.ts"
import { JOB_ARRAY, type StoredJobArray } from "../../apis/jobarray.ts"
import type { Logger } from "../../apis/logger.ts"
import { LABELS } from "../../apis/meta.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Reflector } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { IndexFunction } from "../../kube/store.ts"
import type { Quota } from "../../limits/project-limits.ts"
import type { CreatorOptions, Tenancy } from "../created-jobs.ts"
import type { Fence } from "../fence.ts"
import type { SettledJobs } from "../settled-jobs.ts"
import type { StatusReplacer, Writer } from "../writes.ts"

export const JOB_ARRAYS = resourceOf<StoredJobArray>(JOB_ARRAY)

/** Owner of the fields that the array controller writes. */
export const FIELD_MANAGER = "berth-array-controller"

/** Index of Jobs by the uid of the array that created them. */
const ARRAY_INDEX = "arrayUid"

/** Indexes that the cache of Jobs must have. */
export const arrayIndexes: Record<string, IndexFunction<StoredJob>> = {
  [ARRAY_INDEX]: ({ metadata }) => {
    const uid = metadata.labels?.[LABELS.arrayUid]
    return uid === undefined ? [] : [uid]
  },
}

/** Dependencies of the array controller. */
export interface ArrayControllerOptions {
  client: Pick<KubeClient, "get" | "list" | "create" | "replace" | "replaceStatus" | "patch" | "patchStatus" | "delete">
  jobArrays: Reflector<StoredJobArray>
  /** Has the indexes `arrayIndexes` and the selection `UNSETTLED`. */
  jobs: Reflector<StoredJob>
  /** Settled jobs, which the cache has not. */
  settled: Pick<SettledJobs, "runsOf" | "onRuns" | "add" | "delete">
  /** Limits of what projects may store, and their use. Absent: no limits. */
  quota?: Quota
  /** Projects and organizations, whose deletion stops their arrays. Absent: no arrays belong to projects. */
  tenancy?: Tenancy
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  /** Time for which an ended array is kept, unless it says otherwise. */
  ttlSeconds: number
  /** Arrays reconciled at the same time. Default 4. */
  workers?: number
}

export function jobsOf(
  array: StoredJobArray,
  { jobs }: { jobs: { store: Pick<Reflector<StoredJob>["store"], "byIndex"> } },
): StoredJob[] {
  return jobs.store
    .byIndex(ARRAY_INDEX, array.metadata.uid)
    .filter(({ metadata }) => metadata.namespace === array.metadata.namespace)
}

/** Returns the options of the actions on Jobs. */
export function creatorOf(options: ArrayControllerOptions): CreatorOptions {
  return { ...options, fieldManager: FIELD_MANAGER }
}

export function arrayWriter({
  client,
  jobArrays,
}: ArrayControllerOptions): Writer<StoredJobArray> & StatusReplacer<StoredJobArray> {
  return { client, fieldManager: FIELD_MANAGER, resource: JOB_ARRAYS, store: jobArrays.store }
}
