import type { KubeObject, Stored } from "../apis/meta.ts"
import type { KubeClient } from "../kube/client.ts"
import { isNotFound } from "../kube/errors.ts"
import type { ApiObject, Resource } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"
import type { ReconcileContext } from "../runtime/controller.ts"

/** What a controller's writes to one kind of object go through, and the cache that shows them to its next reconcile. */
export interface Writer<T extends ApiObject> {
  client: Pick<KubeClient, "create" | "replace" | "patch" | "patchStatus" | "delete">
  resource: Resource<T>
  store: Store<T>
  /** Owner of the fields that the controller writes. */
  fieldManager: string
}

/** A writer that only patches. */
export type Patcher<T extends ApiObject> = Omit<Writer<T>, "client"> & { client: Pick<KubeClient, "patch"> }

/** Creates an object. @throws KubeError AlreadyExists, after which the next look tells whose it is */
export async function create<T extends ApiObject>(
  object: T,
  { client, resource, store, fieldManager }: Writer<T>,
  context: ReconcileContext,
): Promise<void> {
  context.wrote(store, await client.create(resource, object, { fieldManager }))
}

/** Replaces an object by another version of it: the one that was read, or none. @throws KubeError Conflict */
export async function replace<T extends ApiObject>(
  object: T,
  { client, resource, store, fieldManager }: Writer<T>,
  context: ReconcileContext,
): Promise<void> {
  context.wrote(store, await client.replace(resource, object, { fieldManager }))
}

/** Deletes an object: this one, not another that has its name by now. */
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

/** Makes sure that an object does not go before what the finalizer stands for. @throws KubeError Conflict */
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

/** Lets a deleted object go, as far as this finalizer held it. @throws KubeError Conflict */
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

/** Writes an object's status, upon the version that was decided on. @throws KubeError Conflict */
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
