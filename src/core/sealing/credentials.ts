import type { ConnectionType } from "../apis/connection.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import type { Sealer, SealingContext } from "./envelope.ts"
import { SealingError } from "./keys.ts"

/** Content of a Connection's sealedCredentials. */
export interface SealedCredentials {
  /** Type of the connection. It is inside the seal too, so that credentials can't be used for another type. */
  type: ConnectionType
  fields: CredentialFields
  /**
   * Hash of the request that created the Connection, for its Idempotency-Key. It is sealed, because weak credentials
   * could be guessed from an unsealed hash.
   */
  requestHash?: string | undefined
}

/** Returns the credentials in the form that a Connection stores. */
export function sealCredentials(
  sealer: Sealer,
  credentials: SealedCredentials,
  context: SealingContext,
): Promise<string> {
  return sealer.seal(JSON.stringify(credentials), context)
}

/** Returns the credentials of a Connection of this type. @throws SealingError */
export async function openCredentials(
  sealer: Sealer,
  { type, sealedCredentials }: { type: ConnectionType; sealedCredentials: string },
  context: SealingContext,
): Promise<SealedCredentials> {
  const credentials = JSON.parse(await sealer.open(sealedCredentials, context)) as SealedCredentials
  if (credentials.type === type) return credentials
  throw new SealingError("tampered", `it holds credentials of type ${credentials.type}, not ${type}`)
}
