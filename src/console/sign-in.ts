import type { Installation } from "./state.ts"

/** Client of the console at the issuer. */
export interface ConsoleClient {
  issuer: string
  clientId: string
  /** Audience that Berth expects in a token. */
  audience: string
  /** Scopes, separated by spaces. */
  scope: string
  /** Program that exchanges the code for a token. */
  exchange: "browser" | "facade"
}

/** Returns the client of an installation; undefined if people can't sign in. */
export function consoleClientOf({ issuer, console }: Installation): ConsoleClient | undefined {
  if (issuer === null || console === null) return undefined
  const { client_id: clientId, ...rest } = console
  return { issuer, clientId, ...rest }
}

/** Tokens of an issuer. */
export interface Tokens {
  access_token: string
  id_token?: string | undefined
}

/**
 * Returns the token that is for Berth: the access token, or the ID token of an issuer whose access tokens only the issuer
 * can read, such as Google.
 */
export function tokenFor({ access_token, id_token }: Tokens, audience: string): string {
  if (id_token === undefined || audiencesOf(access_token).includes(audience)) return access_token
  return audiencesOf(id_token).includes(audience) ? id_token : access_token
}

/** Returns the audiences of a JWT; none for any other text. */
function audiencesOf(token: string): unknown[] {
  const [, payload, signature] = token.split(".")
  if (payload === undefined || signature === undefined) return []
  try {
    const { aud } = JSON.parse(atob(payload.replaceAll("-", "+").replaceAll("_", "/"))) as { aud?: unknown }
    return Array.isArray(aud) ? aud : [aud]
  } catch {
    return []
  }
}
