/** The API group and version of every Berth kind. */
export const GROUP = "berth.dev"
export const VERSION = "v1alpha1"
export const API_VERSION = `${GROUP}/${VERSION}`

/** The part of Kubernetes' ObjectMeta that Berth reads or writes. */
export interface ObjectMeta {
  name: string
  namespace?: string
  uid?: string
  resourceVersion?: string
  generation?: number
  creationTimestamp?: string
  deletionTimestamp?: string
  labels?: Record<string, string>
  annotations?: Record<string, string>
  finalizers?: string[]
}

/** An object as it is written: what the API server adds (uid, resourceVersion …) may be missing. */
export interface KubeObject<Spec = unknown, Status = unknown> {
  apiVersion: string
  kind: string
  metadata: ObjectMeta
  spec: Spec
  status?: Status
}

/** An object as the API server returned it. */
export type Stored<T extends KubeObject> = T & {
  metadata: { uid: string; resourceVersion: string; generation: number; creationTimestamp: string }
}

/** How a kind is reached: what a client needs to build its URLs. */
export interface ResourceType {
  group: string
  version: string
  kind: string
  plural: string
  namespaced: boolean
}

/** Labels, annotations and finalizers that Berth puts on objects. */
export const LABELS = {
  /** On what was made for a Project: its name and its uid. */
  project: `${GROUP}/project`,
  projectUid: `${GROUP}/project-uid`,
  /** On Launches: the namespace, name and uid of the Job; on Jobs: the uid of the CronJob. */
  jobNamespace: `${GROUP}/job-namespace`,
  jobUid: `${GROUP}/job-uid`,
  cronJobUid: `${GROUP}/cronjob-uid`,
  /** On machine users and their bindings: the uid of the ApiKey that they stand for. */
  apiKeyUid: `${GROUP}/apikey-uid`,
} as const

export const ANNOTATIONS = {
  /** The uid of the object that its finalizer was written for: tells a restored copy from the original. */
  recordedUid: `${GROUP}/recorded-uid`,
  /** RFC 3339 with microseconds, written by the façade: creationTimestamp has only seconds to sort by. */
  createdAt: `${GROUP}/created-at`,
  /** The Idempotency-Key of the request that made the object, and a hash of that request's body. */
  idempotencyKey: `${GROUP}/idempotency-key`,
  requestHash: `${GROUP}/request-hash`,
  /** The namePrefix that the name was made from. */
  namePrefix: `${GROUP}/name-prefix`,
  /** On machine users and their bindings: `namespace/name` of their ApiKey, which no label can hold. */
  apiKey: `${GROUP}/apikey`,
  /** On a Launch: why its offer was chosen, for people. */
  placementReason: `${GROUP}/placement-reason`,
  /** On a Namespace: allows a Project of this name to adopt it. */
  adopt: `${GROUP}/adopt-by-project`,
} as const

/** Owner of what the gateway writes in managedFields: an agent's heartbeat is no update of anything a user wrote. */
export const GATEWAY_FIELD_MANAGER = "berth-gateway"

/** Label keys under these domains (and their subdomains) belong to tools and are never mirrored from users' labels. */
export const RESERVED_LABEL_DOMAINS = ["kubernetes.io", "k8s.io", "helm.sh", "argoproj.io", "fluxcd.io", GROUP] as const

/** `namespace/name`, or `name` for a cluster-scoped object: the key of queues, stores and logs. */
export function keyOf(object: { metadata: ObjectMeta }): string {
  const { namespace, name } = object.metadata
  return namespace === undefined ? name : `${namespace}/${name}`
}

/** Returns a number in [0, 1) that is constant for an object. It spreads the periodic work on many objects. */
export function shareOf(uid: string): number {
  return Number.parseInt(uid.slice(0, 8), 16) / 2 ** 32 || 0
}
