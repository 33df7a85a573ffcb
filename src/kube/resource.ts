import type { ObjectMeta, ResourceType } from "../apis/meta.ts"
import { KubeError } from "./errors.ts"

/** Metadata as the API server returns it, with the fields that only the kube runtime itself reads. */
export interface ServerMeta extends ObjectMeta {
  ownerReferences?: OwnerReference[]
  managedFields?: ManagedFields[]
}

export interface OwnerReference {
  apiVersion: string
  kind: string
  name: string
  uid: string
  controller?: boolean
  blockOwnerDeletion?: boolean
}

/** One entry of `metadata.managedFields`: who wrote which fields, and when last. */
export interface ManagedFields {
  manager?: string
  operation?: string
  subresource?: string
  /** RFC 3339. */
  time?: string
  fieldsV1?: unknown
}

/** The least that every Kubernetes object has. */
export interface ApiObject {
  apiVersion?: string
  kind?: string
  metadata: ObjectMeta
}

/**
 * How a kind is reached, together with the TypeScript type of its objects. `object` never has a value:
 * it only carries the type, so that `client.get(jobs, …)` is a Job without a type argument.
 */
export interface Resource<T extends ApiObject = ApiObject> extends ResourceType {
  readonly object?: T
}

/** Names one object; `namespace` is required for namespaced resources and forbidden for the others. */
export interface ObjectRef {
  namespace?: string | undefined
  name: string
}

/** Gives a resource description the TypeScript type of its objects, e.g. `resourceOf<Job>(jobKind)`. */
export function resourceOf<T extends ApiObject>(type: ResourceType): Resource<T> {
  const { group, version, kind, plural, namespaced } = type
  return { group, version, kind, plural, namespaced }
}

/** `apiVersion` as objects carry it: `v1` for the core group, else `group/version`. */
export function apiVersionOf(resource: ResourceType): string {
  return resource.group === "" ? resource.version : `${resource.group}/${resource.version}`
}

/**
 * Rejects what would be another path: the API server reads an escaped slash as a slash, and no object has such a name.
 * Source: apimachinery path.IsValidPathSegmentName, without its `%`, which is escaped here. @throws KubeError, final
 */
function checkSegment(resource: ResourceType, field: "name" | "namespace", text: string): void {
  if (text !== "" && text !== "." && text !== ".." && !text.includes("/")) return
  const message = `${resource.kind}: ${field} ${JSON.stringify(text)} can't be in a path: it is empty, . or .., or has a /`
  throw new KubeError({ code: 400, reason: "BadRequest", message })
}

/**
 * The URL path of a collection (or of a whole resource across namespaces when `namespace` is absent).
 * Source: kubernetes.io, "API Concepts", resource URIs. @throws KubeError for a namespace that nothing can have
 */
export function collectionPath(resource: ResourceType, namespace?: string): string {
  const root = resource.group === "" ? `/api/${resource.version}` : `/apis/${resource.group}/${resource.version}`
  if (namespace === undefined) return `${root}/${resource.plural}`
  if (!resource.namespaced) {
    throw new TypeError(`${resource.kind} is cluster-scoped: leave out namespace "${namespace}"`)
  }
  checkSegment(resource, "namespace", namespace)
  return `${root}/namespaces/${encodeURIComponent(namespace)}/${resource.plural}`
}

/** The URL path of one object or of one of its subresources. @throws KubeError for a name that nothing can have */
export function objectPath(resource: ResourceType, ref: ObjectRef, subresource?: string): string {
  checkSegment(resource, "name", ref.name)
  if (resource.namespaced && !ref.namespace) {
    throw new TypeError(`${resource.kind} "${ref.name}" is namespaced: give its namespace`)
  }
  const path = `${collectionPath(resource, ref.namespace)}/${encodeURIComponent(ref.name)}`
  return subresource === undefined ? path : `${path}/${subresource}`
}
