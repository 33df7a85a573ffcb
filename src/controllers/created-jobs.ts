import type { ConditionCause } from "../apis/conditions.ts"
import { JOB, type StoredJob } from "../apis/job.ts"
import type { StoredOrganization } from "../apis/organization.ts"
import type { StoredProject } from "../apis/project.ts"
import { endingIn } from "../identity/projects.ts"
import type { KubeClient } from "../kube/client.ts"
import {
  ifFound,
  isAlreadyExists,
  isConflict,
  isForbidden,
  isInvalid,
  isNotFound,
  type KubeError,
} from "../kube/errors.ts"
import type { Reflector } from "../kube/reflector.ts"
import { type ApiObject, type Resource, resourceOf } from "../kube/resource.ts"
import type { ReconcileContext } from "../runtime/controller.ts"
import type { Fence } from "./fence.ts"
import type { SettledJobs } from "./settled-jobs.ts"

/** Actions on the Jobs that CronJobs and JobArrays create. */

export const JOBS = resourceOf<StoredJob>(JOB)

export interface CreatorOptions {
  client: Pick<KubeClient, "get" | "create" | "patch">
  /** Has the selection `UNSETTLED`. */
  jobs: Reflector<StoredJob>
  settled: Pick<SettledJobs, "add">
  fence: Fence
  /** Owner of the fields that the controller writes. */
  fieldManager: string
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
