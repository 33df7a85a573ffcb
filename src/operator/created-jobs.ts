import type { Clock } from "../core/apis/clock.ts"
import type { ConditionCause } from "../core/apis/conditions.ts"
import type { StoredCronJob } from "../core/apis/cronjob.ts"
import type { StoredJob } from "../core/apis/job.ts"
import type { StoredJobArray } from "../core/apis/jobarray.ts"
import type { Logger } from "../core/apis/logger.ts"
import { keyOf, LABELS } from "../core/apis/meta.ts"
import type { StoredOrganization } from "../core/apis/organization.ts"
import type { StoredProject } from "../core/apis/project.ts"
import { endingIn } from "../core/identity/projects.ts"
import type { KubeClient } from "../core/kube/client.ts"
import {
  ifFound,
  isAlreadyExists,
  isConflict,
  isForbidden,
  isInvalid,
  isNotFound,
  type KubeError,
} from "../core/kube/errors.ts"
import type { EventRecorder } from "../core/kube/events.ts"
import type { Reflector } from "../core/kube/reflector.ts"
import type { ApiObject, Resource } from "../core/kube/resource.ts"
import type { IndexFunction, Store } from "../core/kube/store.ts"
import type { Quota } from "../core/quota/project-limits.ts"
import { JOBS } from "../core/resources.ts"
import type { ReconcileContext, Source } from "../core/runtime/controller.ts"
import type { Fence } from "./fence.ts"
import { type JobSummary, type SettledJobs, UNSETTLED } from "./settled-jobs.ts"

/** The Jobs that CronJobs and JobArrays create, and actions on them. */

/** Index of Jobs by the uid of the CronJob or the array that created them. */
const CREATOR_INDEX = "creatorUid"

/** Indexes that the cache of Jobs must have. */
export const creatorIndexes: Record<string, IndexFunction<StoredJob>> = {
  // People can set labels: a job with both stays one of its array.
  [CREATOR_INDEX]: ({ metadata }) =>
    [LABELS.cronJobUid, LABELS.arrayUid].flatMap((label) => metadata.labels?.[label] ?? []),
}

/** Dependencies that the controllers of CronJobs and of arrays share. */
export interface CreatorControllerDependencies {
  client: Pick<KubeClient, "get" | "list" | "create" | "replace" | "replaceStatus" | "patch" | "patchStatus" | "delete">
  /** Has the indexes `creatorIndexes` and the selection `UNSETTLED`. */
  jobs: Reflector<StoredJob>
  /** Settled jobs, which the cache has not. */
  settled: Pick<SettledJobs, "runsOf" | "onRuns" | "add" | "delete">
  /** Limits of what projects may store, and their use. Absent: no limits. */
  quota?: Quota
  /** Projects and organizations, whose deletion stops what creates Jobs in them. Absent: nothing belongs to projects. */
  tenancy?: Tenancy
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
}

/** Dependencies of the actions on Jobs. */
export interface CreatorOptions extends Pick<CreatorControllerDependencies, "jobs" | "fence"> {
  client: Pick<KubeClient, "get" | "create" | "patch">
  settled: Pick<SettledJobs, "add">
  /** Owner of the fields that the controller writes. */
  fieldManager: string
}

type Creator = StoredCronJob | StoredJobArray

/** Returns the Jobs in the cache that a CronJob or an array has created. */
export function cachedJobs(
  { metadata }: Creator,
  { jobs }: { jobs: { store: Pick<Store<StoredJob>, "byIndex"> } },
): StoredJob[] {
  return jobs.store.byIndex(CREATOR_INDEX, metadata.uid).filter((job) => job.metadata.namespace === metadata.namespace)
}

/** Returns the Jobs of a CronJob or an array: those in the cache, and the settled ones that are known. */
export function knownJobs(
  creator: Creator,
  { jobs, settled }: Pick<CreatorControllerDependencies, "jobs" | "settled">,
): { jobs: StoredJob[]; settled: JobSummary[] } {
  const cached = cachedJobs(creator, { jobs })
  // For a moment, a job may be both in the cache and settled.
  const uids = new Set(cached.map(({ metadata }) => metadata.uid))
  return {
    jobs: cached,
    settled: settled.runsOf(creator.metadata.uid).filter(({ metadata }) => !uids.has(metadata.uid)),
  }
}

/**
 * Lists the Jobs of a CronJob or an array that are not settled, by a live read.
 * @param label with the creator's uid
 */
export async function listJobs(
  { metadata: { namespace, uid } }: Creator,
  label: typeof LABELS.cronJobUid | typeof LABELS.arrayUid,
  { client }: { client: Pick<KubeClient, "list"> },
): Promise<StoredJob[]> {
  return (await client.list(JOBS, { namespace, labelSelector: `${label}=${uid}`, ...UNSETTLED })).items
}

/** Returns the source of those CronJobs or arrays whose settled Jobs change. */
export function settledJobsSource(
  creators: Pick<Store<ApiObject>, "getByUid">,
  { settled }: Pick<CreatorControllerDependencies, "settled">,
): Source {
  return {
    subscribe: (add) =>
      settled.onRuns((uid) => {
        const creator = creators.getByUid(uid)
        if (creator !== undefined) add(keyOf(creator))
      }),
    whenSynced: () => Promise.resolve(),
  }
}

/** A Job that the API server rejected. `isFinal`: the Job is invalid, so a retry fails too. */
export interface RejectedJob {
  is: "rejected"
  message: string
  isFinal: boolean
}

/** Outcome of the creation of a Job. `exists`: a Job has its name. */
export type Created = { is: "created" } | { is: "exists" } | RejectedJob

/** Creates a Job. */
export async function createJob(
  job: StoredJob,
  { client, jobs, fence, fieldManager }: CreatorOptions,
  context: ReconcileContext,
): Promise<Created> {
  try {
    fence()
    context.wrote(jobs.store, await client.create(JOBS, job, { fieldManager }))
    return { is: "created" }
  } catch (error) {
    if (isInvalid(error) || isForbidden(error)) return rejection(error)
    if (!isAlreadyExists(error)) throw error
    return { is: "exists" }
  }
}

/** The message names fields without their values: readers of the creator's events may lack the right to see them. */
function rejection(error: KubeError): RejectedJob {
  const fields = (error.details?.causes ?? []).flatMap(({ field }) => field ?? [])
  const why = isInvalid(error) && fields.length > 0 ? `invalid ${[...new Set(fields)].join(", ")}` : error.message
  return { is: "rejected", message: `the API server rejects Jobs of jobDefinition: ${why}`, isFinal: isInvalid(error) }
}

/**
 * Makes a Job that was found by a live read known to the next reconcile. A settled one is never in the cache, and without it
 * the Job would be created again.
 */
export function note(
  job: StoredJob,
  { jobs, settled }: Pick<CreatorOptions, "jobs" | "settled">,
  context: ReconcileContext,
): void {
  if (job.status?.settled === true) settled.add(job)
  else context.wrote(jobs.store, job)
}

/** Sets `spec.cancelled` of a Job, as a user would. */
export async function cancelJob(
  job: StoredJob,
  { client, jobs, fence, fieldManager }: CreatorOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, uid } = job.metadata
  try {
    fence()
    const merge = { metadata: { uid }, spec: { cancelled: true } }
    context.wrote(jobs.store, await client.patch(JOBS, { namespace, name }, { merge }, { fieldManager }))
  } catch (error) {
    // The Job was deleted, and another one may have its name.
    if (!isNotFound(error) && !isConflict(error)) throw error
  }
}

/** Reads a Job live; undefined if there is none of that name. */
export function findJob(
  name: string,
  namespace: string | undefined,
  { client }: Pick<CreatorOptions, "client">,
): Promise<StoredJob | undefined> {
  return ifFound(client.get(JOBS, { namespace, name }))
}

/**
 * Returns true if an object is still the version that was decided on, by a live read. A new leader's stale cache must not
 * create Jobs for an object that was changed or deleted.
 */
export async function isCurrent<T extends ApiObject>(
  { metadata }: T,
  resource: Resource<T>,
  { client }: { client: Pick<KubeClient, "get"> },
): Promise<boolean> {
  const { namespace, name, uid, resourceVersion } = metadata
  const live = await ifFound(client.get(resource, { namespace, name }))
  return live?.metadata.uid === uid && live?.metadata.resourceVersion === resourceVersion
}

/** Projects and organizations, whose deletion stops what creates Jobs for them. */
export interface Tenancy {
  projects: Reflector<StoredProject>
  organizations: Reflector<StoredOrganization>
}

/** Returns why a namespace gets no new Jobs: its project is being deleted. Undefined: it is not. */
export function projectEnding(
  namespace: string,
  tenancy: Tenancy | undefined,
): (ConditionCause & { reason: "ProjectDeleting" }) | undefined {
  const ending = tenancy && endingIn(tenancy.projects.store, tenancy.organizations.store)(namespace)
  return ending === undefined ? undefined : { reason: "ProjectDeleting", message: `${ending}: it creates no jobs` }
}
