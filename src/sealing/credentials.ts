import type { ConnectionType } from "../apis/connection.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import type { Sealer, SealingContext } from "./envelope.ts"
import { SealingError } from "./keys.ts"

/** What a Connection's sealedCredentials hold. */
export interface SealedCredentials {
  /** Inside the seal too, so that credentials can't be made to serve as another kind's. */
  type: ConnectionType
  fields: CredentialFields
  /**
   * Hash of the request that made the Connection, for its Idempotency-Key. In here, because a hash of weak credentials
   * in the open could be guessed.
   */
  requestHash?: string | undefined
}

/** The credentials as a Connection may carry them. */
export function sealCredentials(
  sealer: Sealer,
  credentials: SealedCredentials,
  context: SealingContext,
): Promise<string> {
  return sealer.seal(JSON.stringify(credentials), context)
}

/** The credentials of a Connection of this type. @throws SealingError */
export async function openCredentials(
  sealer: Sealer,
  { type, sealedCredentials }: { type: ConnectionType; sealedCredentials: string },
  context: SealingContext,
): Promise<SealedCredentials> {
  const credentials = JSON.parse(await sealer.open(sealedCredentials, context)) as SealedCredentials
  if (credentials.type === type) return credentials
  throw new SealingError("tampered", `it holds credentials of type ${credentials.type}, not ${type}`)
}
