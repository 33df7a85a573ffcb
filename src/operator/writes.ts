import type { KubeObject, Stored } from "../core/apis/meta.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { isNotFound } from "../core/kube/errors.ts"
import type { ApiObject, Resource } from "../core/kube/resource.ts"
import type { Store } from "../core/kube/store.ts"
import type { ReconcileContext } from "../core/runtime/controller.ts"

/** Client of a controller's writes to one kind of object, and the cache that shows them to its next reconcile. */
export interface Writer<T extends ApiObject> {
  client: Pick<KubeClient, "create" | "replace" | "patch" | "patchStatus" | "delete">
  resource: Resource<T>
  store: Store<T>
  /** Owner of the fields that the controller writes. */
  fieldManager: string
}

type WriterWith<T extends ApiObject, Method extends keyof KubeClient> = Omit<Writer<T>, "client"> & {
  client: Pick<KubeClient, Method>
}

export type Patcher<T extends ApiObject> = WriterWith<T, "patch">

export type StatusReplacer<T extends ApiObject> = WriterWith<T, "replaceStatus">

/** Creates an object. @throws KubeError AlreadyExists: the next reconcile finds out whose object it is */
export async function create<T extends ApiObject>(
  object: T,
  { client, resource, store, fieldManager }: Writer<T>,
  context: ReconcileContext,
): Promise<void> {
  context.wrote(store, await client.create(resource, object, { fieldManager }))
}

/** Replaces an object, if it still has the resourceVersion that was read. @throws KubeError Conflict */
export async function replace<T extends ApiObject>(
  object: T,
  { client, resource, store, fieldManager }: Writer<T>,
  context: ReconcileContext,
): Promise<void> {
  context.wrote(store, await client.replace(resource, object, { fieldManager }))
}

/** Deletes the object with this uid, but not a newer one of the same name. */
export async function remove<T extends ApiObject>(
  object: T,
  { client, resource, store }: Pick<Writer<T>, "client" | "resource" | "store">,
  context: ReconcileContext,
): Promise<void> {
  const { uid = "" } = object.metadata
  try {
    await client.delete(resource, object.metadata, { preconditions: { uid } })
    context.deleted(store, object)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}

/** Adds a finalizer to the version that was read. @throws KubeError Conflict */
export async function addFinalizer<T extends Stored<KubeObject>>(
  object: T,
  finalizer: string,
  { client, resource, store, fieldManager }: Writer<T>,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, resourceVersion, finalizers = [] } = object.metadata
  const merge = { metadata: { resourceVersion, finalizers: [...finalizers, finalizer] } }
  context.wrote(store, await client.patch(resource, { namespace, name }, { merge }, { fieldManager }))
}

/** Removes a finalizer from the version that was read. @throws KubeError Conflict */
export async function dropFinalizer<T extends Stored<KubeObject>>(
  object: T,
  finalizer: string,
  { client, resource, store, fieldManager }: Patcher<T>,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, resourceVersion } = object.metadata
  const finalizers = object.metadata.finalizers?.filter((present) => present !== finalizer) ?? []
  const merge = { metadata: { resourceVersion, finalizers } }
  try {
    const written = await client.patch(resource, { namespace, name }, { merge }, { fieldManager })
    if (finalizers.length > 0) context.wrote(store, written)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}

/**
 * Merges a status into that of the version that was decided on. Fields that the new status lacks stay.
 * @throws KubeError Conflict
 */
export async function writeStatus<T extends Stored<KubeObject>>(
  object: T,
  status: T["status"],
  { client, resource, store, fieldManager }: Writer<T>,
  context: ReconcileContext,
): Promise<T> {
  const { namespace, name, resourceVersion } = object.metadata
  const merge = { metadata: { resourceVersion }, status }
  const written = await client.patchStatus(resource, { namespace, name }, { merge }, { fieldManager })
  context.wrote(store, written)
  return written
}

/**
 * Replaces the whole status of the version that was decided on. Fields that the new status lacks are removed.
 * @throws KubeError Conflict
 */
export async function replaceStatus<T extends Stored<KubeObject>>(
  object: T,
  status: T["status"],
  { client, resource, store, fieldManager }: StatusReplacer<T>,
  context: ReconcileContext,
): Promise<T> {
  const written = await client.replaceStatus(resource, { ...object, status }, { fieldManager })
  context.wrote(store, written)
  return written
}
