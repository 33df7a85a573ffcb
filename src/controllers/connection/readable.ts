import type { StoredConnection } from "../../apis/connection.ts"
import type { CredentialFields } from "../../apis/credentials.ts"
import { isMetadataName } from "../../apis/names.ts"
import { CredentialsError, TransientError } from "../../cloud/errors.ts"
import { SealingKeysMissing } from "../../identity/sealing-keys.ts"
import type { KubeClient } from "../../kube/client.ts"
import { SECRETS, type Secret } from "../../kube/core.ts"
import { ifFound, KubeError } from "../../kube/errors.ts"
import { IndexedStore } from "../../kube/store.ts"
import { CredentialsUnusable, credentialsOf } from "./credentials.ts"
import { CREDENTIALS_SECRET_TYPE, type CredentialSources } from "./dependencies.ts"

/** A connection's credentials in clear. @throws CloudError whose message says why they can't be had, and nothing of them */
export type ReadCredentials = (connection: StoredConnection) => Promise<CredentialFields>

/** For who has the Secrets of connections in memory. */
export function cachedCredentials(sources: CredentialSources): ReadCredentials {
  return (connection) => explained(async () => (await credentialsOf(connection, sources)).fields)
}

/**
 * For who has not: the one Secret that a connection names is read when it is needed, by this program's own right. Nobody
 * gets to see it, and one of another type counts as missing.
 */
export function liveCredentials(
  client: Pick<KubeClient, "get">,
  sources: Omit<CredentialSources, "secrets">,
): ReadCredentials {
  return (connection) =>
    explained(async () => {
      const store = new IndexedStore<Secret>()
      const secret = await secretOf(client, connection)
      if (secret?.type === CREDENTIALS_SECRET_TYPE) store.put(secret)
      return (await credentialsOf(connection, { ...sources, secrets: { store } })).fields
    })
}

async function secretOf(
  client: Pick<KubeClient, "get">,
  { metadata, spec }: StoredConnection,
): Promise<Secret | undefined> {
  const name = spec.credentialsSecretRef?.name
  if (name === undefined || !isMetadataName(name)) return undefined
  return ifFound(client.get(SECRETS, { namespace: metadata.namespace, name }))
}

async function explained(read: () => Promise<CredentialFields>): Promise<CredentialFields> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof CredentialsUnusable) throw new CredentialsError(error.reason, error.message, { cause: error })
    if (error instanceof SealingKeysMissing || error instanceof KubeError)
      throw new TransientError("CredentialsNotRead", "its credentials could not be read for the moment", {
        cause: error,
      })
    throw error
  }
}
