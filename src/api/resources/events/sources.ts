import type { StoredJob } from "../../../core/apis/job.ts"
import { type KubeObject, keyOf, type Stored } from "../../../core/apis/meta.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import type { Resource } from "../../../core/kube/resource.ts"
import type { Change } from "../../../core/kube/store.ts"
import { toRecord } from "../../../core/records/job.ts"
import type { Owner } from "../../../core/records/owner.ts"
import { CONNECTIONS, CRON_JOBS, JOB_ARRAYS, JOBS } from "../../../core/resources.ts"
import { type Cache, type Caches, isBeingDeleted } from "../../caches.ts"
import { toArrayRecord } from "../arrays/translate.ts"
import { toRestrictedRecord } from "../connections/translate.ts"
import { toCronJobRecord } from "../cronjobs/translate.ts"
import type { JobServices } from "../jobs/routes.ts"
import type { Kind } from "./position.ts"

/** An object that has changed. */
export interface Changed {
  kind: Kind
  namespace: string
  /** Key in the cache. */
  key: string
  uid: string
  /** Name in REST. */
  name: string
  /** Version of the change. */
  version: string
}

/** An object as REST shows it. */
interface Shown {
  version: string
  record: object
}

/** Objects of one kind. */
export interface Source {
  kind: Kind
  store: Pick<Cache<Stored<KubeObject>>["store"], "resourceVersion" | "reached" | "waitUntil">
  /** Reads the current version from the API server. */
  latest(namespace: string): Promise<string>
  onChange(handler: (changed: Changed) => void): void
  /** Returns an object as it is now; undefined if REST doesn't show it any more. */
  read(changed: Changed, owner: Owner): Shown | undefined
}

interface SourceOptions<T extends Stored<KubeObject>> {
  kind: Kind
  cache: Cache<T>
  resource: Resource<T>
  record: (object: T, owner: Owner) => object
}

type Reader = Pick<KubeClient, "list">

function source<T extends Stored<KubeObject>>(
  client: Reader,
  { kind, cache, resource, record }: SourceOptions<T>,
): Source {
  const { store } = cache
  const changedIn = ({ old, current }: Change<T>): Changed | undefined => {
    const object = current ?? old
    if (object === undefined) return undefined
    const { namespace = "", uid, name, resourceVersion } = object.metadata
    // A deletion has no version in the object that a list missed. The cache shows it from its own version on.
    const version = current === undefined ? (store.resourceVersion ?? resourceVersion) : resourceVersion
    return { kind, namespace, key: keyOf(object), uid, name: fromMetadataName(name), version }
  }
  return {
    kind,
    store,
    latest: async (namespace) => (await client.list(resource, { namespace, limit: 1 })).metadata.resourceVersion,
    onChange: (handler) =>
      void cache.onChange((change) => {
        const changed = changedIn(change)
        if (changed !== undefined) handler(changed)
      }),
    read: ({ key, uid }, owner) => {
      const object = store.getByKey(key)
      // REST doesn't show a cronjob or an array from its deletion on, although its jobs may still have to be cancelled.
      if (object?.metadata.uid !== uid || ((kind === "cronjob" || kind === "array") && isBeingDeleted(object)))
        return undefined
      return { version: object.metadata.resourceVersion, record: record(object, owner) }
    },
  }
}

export interface SourcesOptions extends Pick<JobServices, "lastHeartbeatOf"> {
  /** Client with the façade's own rights. */
  client: Reader
  caches: Caches
}

/** Returns the sources of projects' events. Connections are shown as viewers see them. */
export function createSources({ client, caches, lastHeartbeatOf }: SourcesOptions): Source[] {
  const ofJob = (job: StoredJob, owner: Owner): object =>
    toRecord(job, owner, { lastHeartbeatTime: lastHeartbeatOf(job) })
  const { jobs, cronJobs, jobArrays, connections } = caches
  return [
    source(client, { kind: "job", cache: jobs, resource: JOBS, record: ofJob }),
    source(client, { kind: "cronjob", cache: cronJobs, resource: CRON_JOBS, record: toCronJobRecord }),
    source(client, { kind: "array", cache: jobArrays, resource: JOB_ARRAYS, record: toArrayRecord }),
    source(client, { kind: "connection", cache: connections, resource: CONNECTIONS, record: toRestrictedRecord }),
  ]
}
