import { CreationTimes } from "../../core/apis/creation-times.ts"
import { isTerminal, type StoredJob } from "../../core/apis/job.ts"
import { JOB_ARRAY_FINALIZER, type JobArrayStatus, type StoredJobArray } from "../../core/apis/jobarray.ts"
import { keyOf, LABELS } from "../../core/apis/meta.ts"
import { endedBy } from "../../core/identity/projects.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Change } from "../../core/kube/store.ts"
import { JOB_ARRAYS } from "../../core/resources.ts"
import {
  Controller,
  type ReconcileContext,
  type ReconcileResult,
  type Source,
  watchSource,
} from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { cachedJobs, settledJobsSource } from "../created-jobs.ts"
import type { EndReader } from "../job/dependencies.ts"
import { addFinalizer, dropFinalizer, remove, replaceStatus, type StatusReplacer, type Writer } from "../writes.ts"
import { cancelJobs, createJobs, deleteJobs, endLaunches, FIELD_MANAGER, type Parts } from "./actions.ts"
import { type ArrayAction, type ArrayObservation, decide } from "./decide.ts"
import type { ArrayControllerDependencies } from "./dependencies.ts"
import { gather } from "./gather.ts"
import { Memory } from "./memory.ts"
import { awaitsEnd, type Progress, recordedProgress } from "./progress.ts"

/** Delay before retrying a decision made on a stale cache, seconds. Usually the watch event arrives sooner. */
const STALE_SECONDS = 1

/** Creates the controller that creates the jobs of arrays, and counts how they end. */
export function createArrayController(options: ArrayControllerDependencies): Controller {
  const { jobArrays, clock, recorder, logger, workers = 4, ttlSeconds } = options
  const memory = new Memory(clock)
  const parts = { options, memory, creationTimes: new CreationTimes(clock) }
  const reconciler: ObjectReconciler<StoredJobArray, ArrayObservation, JobArrayStatus, ArrayAction> = {
    store: jobArrays.store,
    clock,
    recorder,
    gather: (array) => gather(array, options, memory),
    decide: (array, observed, now) => decide(array, observed, now, { ttlSeconds }),
    writeStatus: async (array, status, context) => {
      const written = await replaceStatus(array, status, arrayWriter(options), context)
      memory.wrote(array.metadata.uid)
      return written
    },
    act: (array, action, context) => act(array, action, parts, context),
  }
  return new Controller({
    name: "array",
    reconcile: (key, context) => reconcileObject(key, reconciler, context),
    sources: createSources(options),
    clock,
    logger,
    workers,
  })
}

function createSources(options: ArrayControllerDependencies): Source[] {
  const { jobArrays, jobs, tenancy } = options
  const sources = [
    watchSource(jobArrays),
    watchSource(jobs, (change) => keysOf(change, options)),
    settledJobsSource(jobArrays.store, options),
    ...options.prerequisites.arraySources(),
  ]
  if (tenancy === undefined) return sources
  const { projects, organizations } = tenancy
  const arraysIn = (namespaces: readonly string[]) =>
    jobArrays.store
      .list()
      .filter(({ metadata }) => namespaces.includes(metadata.namespace ?? ""))
      .map(keyOf)
  return [
    ...sources,
    watchSource(projects, (change) => arraysIn(endedBy(change, projects.store))),
    watchSource(organizations, (change) => arraysIn(endedBy(change, projects.store))),
  ]
}

/** Returns the array of a Job whose progress has changed. Other changes of a Job don't requeue it. */
function keysOf({ old, current }: Change<StoredJob>, { jobArrays }: ArrayControllerDependencies): string[] {
  const uid = (current ?? old)?.metadata.labels?.[LABELS.arrayUid]
  if (uid === undefined || (old !== undefined && current !== undefined && standing(old) === standing(current)))
    return []
  const array = jobArrays.store.getByUid(uid)
  return array === undefined ? [] : [keyOf(array)]
}

/** Returns the fields of a Job that an array depends on. */
function standing({ metadata, status }: StoredJob): string {
  return JSON.stringify([status?.phase, status?.cost?.actualUsd, metadata.deletionTimestamp])
}

async function act(
  array: StoredJobArray,
  action: ArrayAction,
  parts: Parts,
  context: ReconcileContext,
): Promise<ReconcileResult | undefined> {
  const { options } = parts
  switch (action.do) {
    case "addFinalizer":
      await addFinalizer(array, JOB_ARRAY_FINALIZER, arrayWriter(options), context)
      return { requeueAfter: 0 }
    case "createJobs":
      return { requeueAfter: (await createJobs(array, action.jobs, parts, context)) ? 0 : STALE_SECONDS }
    case "cancelJobs":
      return cancelJobs(action.jobs, options, context).then(() => undefined)
    case "deleteJobs":
      return deleteJobs(action.jobs, options).then(() => undefined)
    case "endLaunches":
      return endLaunches(action.launches, options, context).then(() => undefined)
    case "deleteArray":
      return remove(array, arrayWriter(options), context).then(() => undefined)
    case "dropFinalizer":
      parts.memory.forget(array.metadata.uid)
      return dropFinalizer(array, JOB_ARRAY_FINALIZER, arrayWriter(options), context).then(() => undefined)
  }
}

/** Caches that say which ends of jobs an array still has to see. */
export interface EndReaderCaches {
  jobArrays: Reflector<StoredJobArray>
  /** Has the indexes `creatorIndexes`. */
  jobs: Reflector<StoredJob>
}

/** Returns the reader that keeps a job of an array unsettled until the array's status counts its end and its cost. */
export function arrayEndReader({ jobArrays, jobs }: EndReaderCaches): EndReader {
  const progresses = new WeakMap<StoredJobArray, Progress>()
  const progressOf = (array: StoredJobArray): Progress => {
    const progress = progresses.get(array) ?? recordedProgress(array)
    progresses.set(array, progress)
    return progress
  }
  const awaits = (job: StoredJob): boolean => {
    const uid = job.metadata.labels?.[LABELS.arrayUid]
    if (uid === undefined) return false
    const array = jobArrays.store.getByUid(uid)
    if (array === undefined || array.metadata.namespace !== job.metadata.namespace) return false
    return awaitsEnd(array, job, progressOf(array))
  }
  const seen = ({ old, current }: Change<StoredJobArray>): string[] => {
    const array = current ?? old
    if (array === undefined) return []
    const ended = cachedJobs(array, { jobs }).filter(
      ({ status }) => isTerminal(status?.phase) && status?.cost !== undefined,
    )
    return ended.filter((job) => !awaits(job)).map(keyOf)
  }
  return { awaits, source: watchSource(jobArrays, seen) }
}

function arrayWriter({
  client,
  jobArrays,
}: ArrayControllerDependencies): Writer<StoredJobArray> & StatusReplacer<StoredJobArray> {
  return { client, fieldManager: FIELD_MANAGER, resource: JOB_ARRAYS, store: jobArrays.store }
}
