/** API group of every Berth kind. */
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

/** Object as a client writes it: fields that the API server adds (uid, resourceVersion …) may be absent. */
export interface KubeObject<Spec = unknown, Status = unknown> {
  apiVersion: string
  kind: string
  metadata: ObjectMeta
  spec: Spec
  status?: Status
}

/** Object as the API server returned it. */
export type Stored<T extends KubeObject> = T & {
  metadata: { uid: string; resourceVersion: string; generation: number; creationTimestamp: string }
}

/** Names with which a client builds a kind's URLs. */
export interface ResourceType {
  group: string
  version: string
  kind: string
  plural: string
  namespaced: boolean
}

/** Labels, annotations and finalizers that Berth puts on objects. */
export const LABELS = {
  /** Name and uid of the Project, on objects that were created for it. */
  project: `${GROUP}/project`,
  projectUid: `${GROUP}/project-uid`,
  /** Namespace, name and uid of the Job on Launches; uid of the CronJob on Jobs. */
  jobNamespace: `${GROUP}/job-namespace`,
  jobUid: `${GROUP}/job-uid`,
  /** Name of the Launch that created the VM, on Launches that took it over. */
  rootLaunch: `${GROUP}/root-launch`,
  cronJobUid: `${GROUP}/cronjob-uid`,
  /** Name and uid of the JobArray, and the index, on its Jobs. */
  array: `${GROUP}/array`,
  arrayUid: `${GROUP}/array-uid`,
  arrayIndex: `${GROUP}/array-index`,
  /** Uid of the ApiKey, on its machine user and role bindings. */
  apiKeyUid: `${GROUP}/apikey-uid`,
  /** Minute (UTC) in which a Launch was released, such as `202611292359`, if its Job needs it no more. */
  released: `${GROUP}/released`,
  /** Hash of the Idempotency-Key of the request that created the object. */
  idempotencyKey: `${GROUP}/idempotency-key`,
  /** Marks the Leases that hold the heartbeats of VMs. */
  heartbeats: `${GROUP}/heartbeats`,
  /** Marks the Leases of open sessions. */
  session: `${GROUP}/session`,
} as const

export const ANNOTATIONS = {
  /** Uid of the object that its finalizer was written for. It distinguishes a restored copy from the original. */
  recordedUid: `${GROUP}/recorded-uid`,
  /** Id of the request to the REST API that created the Job. It distinguishes a copy from the original. */
  submission: `${GROUP}/submission`,
  /** Creation time, RFC 3339 with microseconds. The REST API writes it because creationTimestamp has only seconds. */
  createdAt: `${GROUP}/created-at`,
  /** Time of the last write before `managedFields`, which had it, was cleared. RFC 3339, whole seconds. */
  updatedAt: `${GROUP}/updated-at`,
  /** Id of the user who created an Organization over REST. */
  createdBy: `${GROUP}/created-by`,
  /** Idempotency-Key of the request that created the object, and a hash of the request's body. */
  idempotencyKey: `${GROUP}/idempotency-key`,
  requestHash: `${GROUP}/request-hash`,
  /** namePrefix from which the name was generated. */
  namePrefix: `${GROUP}/name-prefix`,
  /** `namespace/name` of the ApiKey, on its machine user and role bindings. A label cannot hold it. */
  apiKey: `${GROUP}/apikey`,
  /** Explanation of the offer's choice, on a Launch. */
  placementReason: `${GROUP}/placement-reason`,
  /** Version of the connection's credentials that a Launch has a copy of. It contains no part of them. */
  credentials: `${GROUP}/credentials-version`,
  /** Months whose Statements count the cost of a Launch, such as `2026-11`. */
  counted: `${GROUP}/counted`,
  /** Permission for a Project of this name to adopt the Namespace. */
  adopt: `${GROUP}/adopt-by-project`,
  /** Heartbeats of VMs, on a Lease: `name:seconds` for each Launch (core/kube/heartbeats.ts). */
  heartbeats: `${GROUP}/heartbeats`,
  /** Facts of an open session, on its Lease, as JSON (api/sessions/lease.ts). */
  session: `${GROUP}/session`,
  /** Abilities of the operator that leads, on the operators' Lease: `identity=ability,ability` (core/kube/lease.ts). */
  abilities: `${GROUP}/abilities`,
  /** Any new text asks the operator to check a Connection now. Its `status.lastCheck.request` then has the text. */
  checkRequested: `${GROUP}/check-requested`,
} as const

/** Returns true for the field managers of Berth's programs: `berth` over REST, and `berth-…` of controllers. */
export function isOwnFieldManager(manager: string): boolean {
  return /^berth(-|$)/.test(manager)
}

/** Field manager of the gateway's writes. A heartbeat does not count as an update by a user. */
export const GATEWAY_FIELD_MANAGER = "berth-gateway"

/** Domains whose labels belong to tools. Labels under them and their subdomains are not copied from users' labels. */
export const RESERVED_LABEL_DOMAINS = ["kubernetes.io", "k8s.io", "helm.sh", "argoproj.io", "fluxcd.io", GROUP] as const

/** Returns `namespace/name`, or `name` of a cluster-scoped object: the key of queues, stores and logs. */
export function keyOf(object: { metadata: ObjectMeta }): string {
  const { namespace, name } = object.metadata
  return namespace === undefined ? name : `${namespace}/${name}`
}

/** Returns a number in [0, 1) that is constant for an object. It spreads the periodic work on many objects. */
export function shareOf(uid: string): number {
  return Number.parseInt(uid.slice(0, 8), 16) / 2 ** 32 || 0
}
