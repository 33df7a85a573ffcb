import type { ApiKeyStatus, StoredApiKey } from "../../../apis/apikey.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { API_KEYS, type ApiKeyControllerOptions, FIELD_MANAGER } from "../dependencies.ts"

/** Writes the status, upon the version that was decided on. @throws KubeError Conflict */
export async function writeStatus(
  key: StoredApiKey,
  status: ApiKeyStatus,
  { client, apiKeys }: ApiKeyControllerOptions,
  context: ReconcileContext,
): Promise<StoredApiKey> {
  const { namespace, name, resourceVersion } = key.metadata
  const merge = { metadata: { resourceVersion }, status }
  const written = await client.patchStatus(API_KEYS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER })
  context.wrote(apiKeys.store, written)
  return written
}
