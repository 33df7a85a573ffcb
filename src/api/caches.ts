import type { StoredApiKey } from "../core/apis/apikey.ts"
import type { StoredConnection } from "../core/apis/connection.ts"
import { creationKey } from "../core/apis/creation-times.ts"
import type { StoredCronJob } from "../core/apis/cronjob.ts"
import { isTerminal, type JobPhase, type StoredJob } from "../core/apis/job.ts"
import type { StoredJobArray } from "../core/apis/jobarray.ts"
import type { StoredMachine } from "../core/apis/machine.ts"
import { ANNOTATIONS, type KubeObject, LABELS, type Stored } from "../core/apis/meta.ts"
import type { StoredOrganization } from "../core/apis/organization.ts"
import { originalUidOf } from "../core/apis/origin.ts"
import { type PrerequisiteName, prerequisiteText } from "../core/apis/prerequisites.ts"
import type { StoredProject } from "../core/apis/project.ts"
import type { StoredWebhook } from "../core/apis/webhook.ts"
import { API_KEY_INDEXES } from "../core/identity/authenticate.ts"
import { byNamespace, NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import { IDENTITIES_NAMESPACE } from "../core/identity/machine-users.ts"
import { ORGANIZATION_INDEXES } from "../core/identity/memberships.ts"
import { PROJECT_OF_NAMESPACE } from "../core/identity/projects.ts"
import type { PageIndexDefinition } from "../core/kube/page-index.ts"
import { Reflector, type ReflectorOptions } from "../core/kube/reflector.ts"
import type { ApiObject } from "../core/kube/resource.ts"
import type { IndexFunction, Packing, Store } from "../core/kube/store.ts"
import { awaitedBy } from "../core/order/waiting.ts"
import { recordStatus } from "../core/records/job.ts"
import { keepUpdateTime, textWithUpdateTime, withUpdateTime } from "../core/records/update-time.ts"
import {
  API_KEYS,
  CONNECTIONS,
  CRON_JOBS,
  JOB_ARRAYS,
  JOBS,
  MACHINES,
  ORGANIZATIONS,
  PROJECTS,
  WEBHOOKS,
} from "../core/resources.ts"
import { systemCaches } from "../market/caches.ts"
import { isInLine, lineUp } from "../market/placement/line.ts"
import { unavailable } from "./http/problem.ts"
import { groupOf } from "./resources/jobs/groups.ts"
import { JOB_NUMBERS } from "./resources/jobs/numbers.ts"
import { SESSIONS_CACHE } from "./sessions/lease.ts"

/** Part of a reflector that the façade needs. */
export type Cache<T extends ApiObject> = Pick<Reflector<T>, "store" | "synced" | "onChange">

export interface Caches {
  jobs: Cache<StoredJob>
  cronJobs: Cache<StoredCronJob>
  jobArrays: Cache<StoredJobArray>
  connections: Cache<StoredConnection>
  webhooks: Cache<StoredWebhook>
  machines: Cache<StoredMachine>
  apiKeys: Cache<StoredApiKey>
  projects: Cache<StoredProject>
  organizations: Cache<StoredOrganization>
}

/** Index of Projects by their Organization. */
export const PROJECTS_OF_ORGANIZATION = "organization"

/** Index of every kind that POST creates. Its values begin with the namespace. */
export const IDEMPOTENCY_KEY_INDEX = "idempotencyKey"

/** Returns the value of an index for these parts within a namespace. The slash is safe: no namespace has one. */
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

/** Index of the jobs from a backup, by the uid that they had before. */
const ORIGINAL_UID_INDEX = "originalUid"

/** Returns the jobs whose log is stored under this uid: the one that ran, and its copies in the namespace. */
export function jobsWithLog(store: Store<StoredJob>, namespace: string, uid: string): StoredJob[] {
  const job = store.getByUid(uid)
  const isOwn = job !== undefined && originalUidOf(job) === uid
  return [...(isOwn ? [job] : []), ...store.byIndex(ORIGINAL_UID_INDEX, inNamespace(namespace, uid))]
}

/** Index of the jobs that wait in their project's line, by namespace. */
const LINE_INDEX = "line"

function inLine(job: StoredJob): string[] {
  return isInLine(job) ? [job.metadata.namespace ?? ""] : []
}

/** Returns the jobs that wait in the line of a namespace's project, in no order. */
export function jobsInLine(store: Pick<Store<StoredJob>, "byIndex">, namespace: string): StoredJob[] {
  return store.byIndex(LINE_INDEX, namespace)
}

/**
 * Returns a function that returns a job's place in its project's line, from 1; undefined: it is not in it. The line is
 * sorted at the first job that is in it, so one function is for the jobs of one answer.
 */
export function queuePositions(
  store: Pick<Store<StoredJob>, "byIndex">,
  namespace: string,
): (job: StoredJob) => number | undefined {
  let places: Map<string, number> | undefined
  return (job) => {
    if (!isInLine(job)) return undefined
    places ??= new Map(lineUp(jobsInLine(store, namespace)).map(({ uid }, index) => [uid, index + 1]))
    return places.get(job.metadata.uid)
  }
}

/**
 * Returns the cache if it has been filled, so that a list of it is complete.
 * @throws Problem 503 before the first list from the API server
 */
export function requireSynced<T extends ApiObject>(store: Store<T>): Store<T> {
  if (store.resourceVersion !== undefined) return store
  throw unavailable("The server is still loading its cache: try again.")
}

/** Index of the jobs or arrays that wait for others, by what they wait for. Its values begin with the namespace. */
const WAITING_INDEX = "waitingFor"

/** @param kind of the objects of the cache, with any name */
function waitingFor(kind: PrerequisiteName): IndexFunction<StoredJob | StoredJobArray> {
  return (object) =>
    awaitedBy(kind, object).map(({ prerequisite }) =>
      inNamespace(object.metadata.namespace ?? "", prerequisiteText(prerequisite)),
    )
}

/** Returns the objects of a namespace that wait for one of this name, in no order. */
export function waitingIn<T extends ApiObject>(
  store: Pick<Store<T>, "byIndex">,
  namespace: string,
  name: PrerequisiteName,
): T[] {
  return store.byIndex(WAITING_INDEX, inNamespace(namespace, prerequisiteText(name)))
}

/** Terms that filter jobs; `after` filters arrays too. */
export const JobTerm = {
  status: (status: JobPhase) => `status\0${status}`,
  tag: (tag: string) => `tag\0${tag}`,
  label: (key: string, value: string) => `label\0${key}\0${value}`,
  /** @param uid of the CronJob that created the job */
  cronJob: (uid: string) => `cronjob\0${uid}`,
  /** @param uid of the array that created the job */
  array: (uid: string) => `array\0${uid}`,
  /** @param name of a prerequisite, as people type it */
  after: (name: string) => `after\0${name}`,
} as const

function originalUids(job: StoredJob): string[] {
  const uid = originalUidOf(job)
  return uid === job.metadata.uid ? [] : [inNamespace(job.metadata.namespace ?? "", uid)]
}

function afterTerms({ spec: { after = [] } }: StoredJob | StoredJobArray): string[] {
  return after.map((one) => JobTerm.after(prerequisiteText(one)))
}

function termsOfJob(job: StoredJob): string[] {
  const { tags = [], labels = {} } = job.spec
  const ofLabels = Object.entries(labels).map(([key, value]) => JobTerm.label(key, value))
  const cronJob = job.metadata.labels?.[LABELS.cronJobUid]
  const ofCronJob = cronJob === undefined ? [] : [JobTerm.cronJob(cronJob)]
  const array = job.metadata.labels?.[LABELS.arrayUid]
  const ofArray = array === undefined ? [] : [JobTerm.array(array)]
  return [
    JobTerm.status(recordStatus(job)),
    ...tags.map(JobTerm.tag),
    ...ofLabels,
    ...ofCronJob,
    ...ofArray,
    ...afterTerms(job),
  ]
}

/** Defines pages of a project's objects, newest first. */
function newestOfProject<T extends Stored<KubeObject>>(termsOf: (object: T) => string[]): PageIndexDefinition<T> {
  return { scopeOf, sortKeyOf: creationKey, termsOf }
}

function scopeOf({ metadata }: ApiObject): string {
  return metadata.namespace ?? ""
}

/** True if an object is being deleted: it exists only until its finalizers are removed. */
export function isBeingDeleted({ metadata }: ApiObject): boolean {
  return metadata.deletionTimestamp !== undefined
}

/** Packs ended jobs: most jobs have ended, and few of them are read. */
const ENDED_JOBS: Packing<StoredJob> = {
  isPacked: ({ status }) => isTerminal(status?.phase),
  textOf: textWithUpdateTime,
  objectOf: withUpdateTime,
}

/** Pages that an object leaves as soon as it is deleted, although it stays until its jobs are cancelled. */
const UNTIL_DELETED: PageIndexDefinition<Stored<KubeObject>> = {
  ...newestOfProject(() => []),
  scopeOf: (one) => (isBeingDeleted(one) ? undefined : scopeOf(one)),
}

const ANY_JOB: PrerequisiteName = { job: "" }
const ANY_ARRAY: PrerequisiteName = { array: "" }

type CacheOptions<T extends ApiObject> = Pick<
  ReflectorOptions<T>,
  "resource" | "indexes" | "pages" | "packing" | "transform"
>

/** Options that the reflectors of the façade's caches need. */
export const CACHE_OPTIONS: {
  jobs: CacheOptions<StoredJob>
  cronJobs: CacheOptions<StoredCronJob>
  jobArrays: CacheOptions<StoredJobArray>
  connections: CacheOptions<StoredConnection>
  webhooks: CacheOptions<StoredWebhook>
  machines: CacheOptions<StoredMachine>
  apiKeys: CacheOptions<StoredApiKey>
  projects: CacheOptions<StoredProject>
  organizations: CacheOptions<StoredOrganization>
} = {
  jobs: {
    resource: JOBS,
    indexes: {
      ...OBJECT_INDEXES,
      [ORIGINAL_UID_INDEX]: originalUids,
      [LINE_INDEX]: inLine,
      [WAITING_INDEX]: waitingFor(ANY_JOB),
    },
    pages: { ...newestOfProject(termsOfJob), numbers: JOB_NUMBERS, groupOf },
    packing: ENDED_JOBS,
    transform: keepUpdateTime,
  },
  cronJobs: {
    resource: CRON_JOBS,
    indexes: OBJECT_INDEXES,
    pages: UNTIL_DELETED,
    transform: keepUpdateTime,
  },
  jobArrays: {
    resource: JOB_ARRAYS,
    indexes: { ...OBJECT_INDEXES, [WAITING_INDEX]: waitingFor(ANY_ARRAY) },
    pages: { ...UNTIL_DELETED, termsOf: afterTerms },
    transform: keepUpdateTime,
  },
  connections: { resource: CONNECTIONS, indexes: OBJECT_INDEXES },
  webhooks: {
    resource: WEBHOOKS,
    indexes: OBJECT_INDEXES,
    pages: newestOfProject(() => []),
    transform: keepUpdateTime,
  },
  machines: {
    resource: MACHINES,
    indexes: OBJECT_INDEXES,
    pages: newestOfProject(() => []),
    transform: keepUpdateTime,
  },
  apiKeys: { resource: API_KEYS, indexes: { ...OBJECT_INDEXES, ...API_KEY_INDEXES } },
  projects: {
    resource: PROJECTS,
    indexes: { ...PROJECT_OF_NAMESPACE, [PROJECTS_OF_ORGANIZATION]: ({ spec }) => [spec.organization] },
  },
  organizations: { resource: ORGANIZATIONS, indexes: ORGANIZATION_INDEXES },
}

/** Constructs the façade's caches. */
export function facadeCaches(
  base: Pick<ReflectorOptions<StoredJob>, "client" | "logger">,
  options: { systemNamespace: string; watchNamespace?: string | undefined; sessions?: boolean | undefined },
) {
  const namespace = options.watchNamespace
  return {
    ...systemCaches(base, options),
    ...(options.sessions === true && {
      sessions: new Reflector({ ...base, ...SESSIONS_CACHE, namespace: IDENTITIES_NAMESPACE }),
    }),
    jobs: new Reflector({ ...base, ...CACHE_OPTIONS.jobs, namespace }),
    cronJobs: new Reflector({ ...base, ...CACHE_OPTIONS.cronJobs, namespace }),
    jobArrays: new Reflector({ ...base, ...CACHE_OPTIONS.jobArrays, namespace }),
    connections: new Reflector({ ...base, ...CACHE_OPTIONS.connections, namespace }),
    webhooks: new Reflector({ ...base, ...CACHE_OPTIONS.webhooks, namespace }),
    machines: new Reflector({ ...base, ...CACHE_OPTIONS.machines, namespace }),
    apiKeys: new Reflector({ ...base, ...CACHE_OPTIONS.apiKeys, namespace }),
    projects: new Reflector({ ...base, ...CACHE_OPTIONS.projects }),
    organizations: new Reflector({ ...base, ...CACHE_OPTIONS.organizations }),
  }
}

/** Waits for a cache, at most `milliseconds`. A timeout is not an error: the write has already succeeded. */
export async function waitWithTimeout(
  milliseconds: number,
  wait: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const timeout = AbortSignal.timeout(milliseconds)
  await wait(timeout).catch((error: unknown) => {
    if (!timeout.aborted) throw error
  })
}
