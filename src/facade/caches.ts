import type { StoredApiKey } from "../apis/apikey.ts"
import { CONNECTION, type StoredConnection } from "../apis/connection.ts"
import { creationKey } from "../apis/creation-times.ts"
import { CRON_JOB, type StoredCronJob } from "../apis/cronjob.ts"
import { JOB, type JobPhase, type StoredJob } from "../apis/job.ts"
import { ANNOTATIONS, type KubeObject, type Stored } from "../apis/meta.ts"
import type { StoredOrganization } from "../apis/organization.ts"
import type { StoredProject } from "../apis/project.ts"
import { unavailable } from "../http/problem.ts"
import { API_KEY_INDEXES, API_KEYS } from "../identity/authenticate.ts"
import { byNamespace, NAMESPACE_INDEX } from "../identity/catch-up.ts"
import { ORGANIZATION_INDEXES } from "../identity/persons.ts"
import { ORGANIZATIONS, PROJECTS } from "../identity/projects.ts"
import type { PageIndexDefinition } from "../kube/page-index.ts"
import type { Reflector, ReflectorOptions } from "../kube/reflector.ts"
import { type ApiObject, resourceOf } from "../kube/resource.ts"
import type { IndexFunction, Store } from "../kube/store.ts"
import { statusOf } from "./jobs/record.ts"
import { keepUpdateTime } from "./update-time.ts"

export const JOBS = resourceOf<StoredJob>(JOB)
export const CRON_JOBS = resourceOf<StoredCronJob>(CRON_JOB)
export const CONNECTIONS = resourceOf<StoredConnection>(CONNECTION)

/** What the façade needs of a reflector. */
export type Cache<T extends ApiObject> = Pick<Reflector<T>, "store" | "synced" | "onChange">

export interface Caches {
  jobs: Cache<StoredJob>
  cronJobs: Cache<StoredCronJob>
  connections: Cache<StoredConnection>
  apiKeys: Cache<StoredApiKey>
  projects: Cache<StoredProject>
  organizations: Cache<StoredOrganization>
}

/** Index of Projects by their Organization. */
export const PROJECTS_OF_ORGANIZATION = "organization"

/** Index of every kind that POST makes; its values begin with the namespace. */
export const IDEMPOTENCY_KEY_INDEX = "idempotencyKey"

/** The value under which an index has the jobs of a namespace with this; a namespace has no slash. */
export function inNamespace(namespace: string, ...parts: string[]): string {
  return `${namespace}/${parts.join("\0")}`
}

const OBJECT_INDEXES: Record<string, IndexFunction<ApiObject>> = {
  [NAMESPACE_INDEX]: byNamespace,
  [IDEMPOTENCY_KEY_INDEX]: ({ metadata }) => {
    const key = metadata.annotations?.[ANNOTATIONS.idempotencyKey]
    return key === undefined ? [] : [inNamespace(metadata.namespace ?? "", key)]
  },
}

/**
 * A cache to make a list from: before the first look at the API server it has nothing, which says nothing of what there is.
 * @throws Problem 503
 */
export function filled<T extends ApiObject>(store: Store<T>): Store<T> {
  if (store.resourceVersion !== undefined) return store
  throw unavailable("The server is still loading its cache: try again.")
}

/** What jobs can be filtered by. */
export const JobTerm = {
  status: (status: JobPhase) => `status\0${status}`,
  tag: (tag: string) => `tag\0${tag}`,
  label: (key: string, value: string) => `label\0${key}\0${value}`,
} as const

function termsOfJob(job: StoredJob): string[] {
  const { tags = [], labels = {} } = job.spec
  const ofLabels = Object.entries(labels).map(([key, value]) => JobTerm.label(key, value))
  return [JobTerm.status(statusOf(job)), ...tags.map(JobTerm.tag), ...ofLabels]
}

/** A project's objects, newest first. */
function newestOfProject<T extends Stored<KubeObject>>(termsOf: (object: T) => string[]): PageIndexDefinition<T> {
  return { scopeOf, sortKeyOf: creationKey, termsOf }
}

function scopeOf({ metadata }: ApiObject): string {
  return metadata.namespace ?? ""
}

/** Whether an object is being deleted, and is there only until something else has been done. */
export function isGoing({ metadata }: ApiObject): boolean {
  return metadata.deletionTimestamp !== undefined
}

type CacheOptions<T extends ApiObject> = Pick<ReflectorOptions<T>, "resource" | "indexes" | "pages" | "transform">

/** What the reflectors of the façade's caches must be made with. */
export const CACHE_OPTIONS: {
  jobs: CacheOptions<StoredJob>
  cronJobs: CacheOptions<StoredCronJob>
  connections: CacheOptions<StoredConnection>
  apiKeys: CacheOptions<StoredApiKey>
  projects: CacheOptions<StoredProject>
  organizations: CacheOptions<StoredOrganization>
} = {
  jobs: { resource: JOBS, indexes: OBJECT_INDEXES, pages: newestOfProject(termsOfJob), transform: keepUpdateTime },
  cronJobs: {
    resource: CRON_JOBS,
    indexes: OBJECT_INDEXES,
    // One that was deleted is none any more, though it stays for as long as its jobs are being cancelled.
    pages: { ...newestOfProject(() => []), scopeOf: (one) => (isGoing(one) ? undefined : scopeOf(one)) },
    transform: keepUpdateTime,
  },
  connections: { resource: CONNECTIONS, indexes: OBJECT_INDEXES },
  apiKeys: { resource: API_KEYS, indexes: { ...OBJECT_INDEXES, ...API_KEY_INDEXES } },
  projects: {
    resource: PROJECTS,
    indexes: { [PROJECTS_OF_ORGANIZATION]: ({ spec }) => [spec.organization] },
  },
  organizations: { resource: ORGANIZATIONS, indexes: ORGANIZATION_INDEXES },
}

/** Waits for a cache, but not for ever: what was written is written, whatever the watch says. */
export async function withPatience(milliseconds: number, wait: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const patience = AbortSignal.timeout(milliseconds)
  await wait(patience).catch((error: unknown) => {
    if (!patience.aborted) throw error
  })
}
