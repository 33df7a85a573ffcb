import { decodeJwt, errors } from "jose"
import {
  allowInsecureRequests,
  discovery,
  initiateDeviceAuthorization,
  None,
  pollDeviceAuthorizationGrant,
  ResponseBodyError,
} from "openid-client"
import { defined } from "../apis/defined.ts"
import { userIdOf } from "./members.ts"
import { isThisMachine } from "./oidc.ts"

export interface LoginOptions {
  /** URL of the OIDC issuer. */
  issuer: string
  clientId: string
  /** Resource that the token is for, if the issuer requires one (RFC 8707). */
  resource?: string | undefined
  signal: AbortSignal
  /** Shows the user the address to open, and the code to compare there. */
  prompt: (address: string, code: string) => void
}

/**
 * Signs a user in without a browser of its own (RFC 8628). The user opens a page on any device and agrees there.
 * Resolves with the access token, for `Authorization: Bearer`.
 * @throws Error if the issuer can't be reached, or the user does not agree in time
 */
export async function login({ issuer, clientId, resource, signal, prompt }: LoginOptions): Promise<string> {
  const url = new URL(issuer)
  const execute = isThisMachine(url) ? [allowInsecureRequests] : []
  const client = await discovery(url, clientId, undefined, None(), { execute })
  const wanted = { scope: "openid email", ...defined({ resource }) }
  const started = await initiateDeviceAuthorization(client, wanted)
  prompt(started.verification_uri_complete ?? started.verification_uri, started.user_code)
  try {
    const tokens = await pollDeviceAuthorizationGrant(client, started, undefined, { signal })
    return tokens.access_token
  } catch (error) {
    throw explainError(error)
  }
}

/** Returns an error that names the issuer's answer: its code, such as `expired_token` (RFC 8628), and its description. */
function explainError(error: unknown): unknown {
  if (!(error instanceof ResponseBodyError)) return error
  const description = error.error_description === undefined ? "" : `: ${error.error_description}`
  return new Error(`the issuer did not accept the sign-in (${error.error}${description}); sign in again`, {
    cause: error,
  })
}

/** Returns the user ID that others need to invite the token's user; undefined if the token does not show it. */
export function userIdIn(token: string): string | undefined {
  try {
    const { iss, sub } = decodeJwt(token)
    return iss === undefined || sub === undefined ? undefined : userIdOf(iss, sub)
  } catch (error) {
    // A token may be opaque to everyone but its issuer.
    if (error instanceof errors.JWTInvalid) return undefined
    throw error
  }
}
