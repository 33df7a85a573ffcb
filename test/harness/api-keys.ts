import { expect } from "vitest"
import type { ApiKey, Role, StoredApiKey } from "../../src/core/apis/apikey.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import type { ObjectRef } from "../../src/core/kube/resource.ts"
import { API_KEYS } from "../../src/core/resources.ts"
import { eventually } from "./eventually.ts"

/** Namespaces in which a controller gives keys their machine users. There, `makeKey` waits for it. */
export const tendedNamespaces = new Set<string>()

/** Creates an ApiKey like the REST API or `berth key` does; returns its value. */
export async function makeKey(
  client: KubeClient,
  namespace: string,
  role: Role,
  more: { name?: string; expiresAt?: string } = {},
): Promise<string> {
  const { value, keyId, tokenHash } = makeApiKey()
  const { name = `key-${keyId}`, ...rest } = more
  const key: ApiKey = {
    apiVersion: API_VERSION,
    kind: "ApiKey",
    metadata: { name, namespace },
    spec: { role, keyId, tokenHash, ...rest },
  }
  await client.create(API_KEYS, key as StoredApiKey)
  if (tendedNamespaces.has(namespace)) await tendedTo(client, { namespace, name })
  return value
}

/** Resolves when the ApiKey controller has handled a key's present state. */
export async function tendedTo(client: KubeClient, ref: ObjectRef): Promise<StoredApiKey> {
  return eventually(async () => {
    const key = await client.get(API_KEYS, ref)
    const reconciling = findCondition(key.status?.conditions, "Reconciling")
    expect(reconciling).toMatchObject({ status: "False", observedGeneration: key.metadata.generation })
    return key
  })
}

/** Deletes a key; resolves when the key and its machine user are deleted. */
export async function deleteKey(client: KubeClient, ref: ObjectRef): Promise<void> {
  await client.delete(API_KEYS, ref)
  await eventually(() => expect(client.get(API_KEYS, ref)).rejects.toMatchObject({ code: 404 }))
}
