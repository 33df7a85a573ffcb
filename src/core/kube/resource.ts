import type { ObjectMeta, ResourceType } from "../apis/meta.ts"
import { KubeError } from "./errors.ts"

/** Metadata as the API server returns it, with fields that only this folder reads. */
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

/** Entry of `metadata.managedFields`: a manager, its fields, and the time of its last write. */
export interface ManagedFields {
  manager?: string
  operation?: string
  subresource?: string
  /** RFC 3339. */
  time?: string
  fieldsV1?: unknown
}

/** Value with which a write clears `managedFields`; an empty list would keep it. Source: kubernetes.io, "Server-Side Apply". */
export const CLEARED_MANAGED_FIELDS: readonly ManagedFields[] = [{}]

/** Fields that every Kubernetes object has. */
export interface ApiObject {
  apiVersion?: string
  kind?: string
  metadata: ObjectMeta
}

/** Object before its creation: the API server adds to its metadata. */
export type Unstored<T extends ApiObject> = Omit<T, "metadata"> & { metadata: ObjectMeta }

/**
 * REST address of a kind, with the TypeScript type of its objects. `object` never has a value: it only has the type, so
 * that `client.get(jobs, …)` returns a Job without a type argument.
 */
export interface Resource<T extends ApiObject = ApiObject> extends ResourceType {
  readonly object?: T
}

/** Reference to one object. `namespace` is required for namespaced resources and not allowed for others. */
export interface ObjectRef {
  namespace?: string | undefined
  name: string
}

/** Adds the TypeScript type of its objects to a resource description, e.g. `resourceOf<Job>(jobKind)`. */
export function declareResource<T extends ApiObject>(type: ResourceType): Resource<T> {
  const { group, version, kind, plural, namespaced } = type
  return { group, version, kind, plural, namespaced }
}

/** Returns the `apiVersion` of objects: `v1` for the core group, else `group/version`. */
export function apiVersionOf(resource: ResourceType): string {
  return resource.group === "" ? resource.version : `${resource.group}/${resource.version}`
}

/**
 * Rejects names that would lead to another path. The API server reads an escaped slash as a slash, and no object has
 * such a name. Source: apimachinery path.IsValidPathSegmentName, without its `%`, which is escaped here. @throws
 * KubeError, final
 */
function checkSegment(resource: ResourceType, field: "name" | "namespace", text: string): void {
  if (text !== "" && text !== "." && text !== ".." && !text.includes("/")) return
  const message = `${resource.kind}: ${field} ${JSON.stringify(text)} can't be in a path: it is empty, . or .., or has a /`
  throw new KubeError({ code: 400, reason: "BadRequest", message })
}

/**
 * Returns the URL path of a collection, or of a resource in all namespaces if `namespace` is absent. Source:
 * kubernetes.io, "API Concepts", resource URIs. @throws KubeError if the namespace's name is not valid
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

/** Returns the URL path of one object or of one of its subresources. @throws KubeError if the name is not valid */
export function objectPath(resource: ResourceType, ref: ObjectRef, subresource?: string): string {
  checkSegment(resource, "name", ref.name)
  if (resource.namespaced && !ref.namespace) {
    throw new TypeError(`${resource.kind} "${ref.name}" is namespaced: give its namespace`)
  }
  const path = `${collectionPath(resource, ref.namespace)}/${encodeURIComponent(ref.name)}`
  return subresource === undefined ? path : `${path}/${subresource}`
}
