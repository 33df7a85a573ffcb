import { decodeJwt, errors } from "jose"
import {
  allowInsecureRequests,
  discovery,
  initiateDeviceAuthorization,
  None,
  pollDeviceAuthorizationGrant,
} from "openid-client"
import { userIdOf } from "./members.ts"
import { isThisMachine } from "./oidc.ts"

export interface LoginOptions {
  /** URL of the OIDC issuer. */
  issuer: string
  clientId: string
  /** What the token shall be for, where the issuer wants to be told (RFC 8707). */
  resource?: string | undefined
  signal: AbortSignal
  /** Asked to show a person where to go, and the code to compare. */
  prompt: (address: string, code: string) => void
}

/**
 * Signs a person in without a browser of its own: they open a page wherever they like and agree there (RFC 8628).
 * Resolves with the access token, for Authorization: Bearer.
 * @throws Error when the issuer can't be asked, or the person does not agree in time
 */
export async function login({ issuer, clientId, resource, signal, prompt }: LoginOptions): Promise<string> {
  const url = new URL(issuer)
  const execute = isThisMachine(url) ? [allowInsecureRequests] : []
  const client = await discovery(url, clientId, undefined, None(), { execute })
  const wanted = { scope: "openid email", ...(resource !== undefined && { resource }) }
  const started = await initiateDeviceAuthorization(client, wanted)
  prompt(started.verification_uri_complete ?? started.verification_uri, started.user_code)
  const tokens = await pollDeviceAuthorizationGrant(client, started, undefined, { signal })
  return tokens.access_token
}

/** The id by which others invite the person that a token is of; undefined where the token does not show it. */
export function userIdIn(token: string): string | undefined {
  try {
    const { iss, sub } = decodeJwt(token)
    return iss === undefined || sub === undefined ? undefined : userIdOf(iss, sub)
  } catch (error) {
    // A token may be opaque to everybody but its issuer.
    if (error instanceof errors.JWTInvalid) return undefined
    throw error
  }
}
