import type { ConnectionType } from "../core/apis/connection.ts"
import { audienceOf, type CredentialFields } from "../core/apis/credentials.ts"
import { CredentialsError } from "../core/outbound/errors.ts"

/** Issues tokens by which one connection proves to a cloud which project and connection it is. */
export interface IdentityTokens {
  /** Returns a signed JWT (RS256), valid for ten minutes. */
  token(subject: string, audience: string): Promise<string>
}

/** Returns a token of the connection. @throws CredentialsError if the installation issues none */
export function identityToken(
  tokens: IdentityTokens | undefined,
  type: ConnectionType,
  credentials: CredentialFields,
): Promise<string> {
  const audience = audienceOf(type, credentials)
  const { identity_subject: subject } = credentials
  if (tokens !== undefined && subject !== undefined && audience !== undefined) return tokens.token(subject, audience)
  const message = "this installation issues no identity tokens: set --identity-issuer, or give the connection a secret"
  return Promise.reject(new CredentialsError("NoIdentityIssuer", message))
}
