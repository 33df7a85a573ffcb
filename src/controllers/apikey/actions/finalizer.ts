import { API_KEY_FINALIZER, type StoredApiKey } from "../../../apis/apikey.ts"
import { isNotFound } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { API_KEYS, type ApiKeyControllerOptions, FIELD_MANAGER } from "../dependencies.ts"

/** Makes sure that the key does not go before its machine user. @throws KubeError Conflict */
export async function addFinalizer(
  key: StoredApiKey,
  { client, apiKeys }: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, resourceVersion, finalizers = [] } = key.metadata
  const merge = { metadata: { resourceVersion, finalizers: [...finalizers, API_KEY_FINALIZER] } }
  const written = await client.patch(API_KEYS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  context.wrote(apiKeys.store, written)
}

/** Lets a deleted key go whose machine user is no more. @throws KubeError Conflict */
export async function dropFinalizer(
  key: StoredApiKey,
  { client, apiKeys }: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, resourceVersion } = key.metadata
  const finalizers = key.metadata.finalizers?.filter((finalizer) => finalizer !== API_KEY_FINALIZER) ?? []
  const merge = { metadata: { resourceVersion, finalizers } }
  try {
    const written = await client.patch(API_KEYS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
    if (finalizers.length > 0) context.wrote(apiKeys.store, written)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}
