import {
  allowInsecureRequests,
  authorizationCodeGrantRequest,
  calculatePKCECodeChallenge,
  discoveryRequest,
  generateRandomCodeVerifier,
  generateRandomState,
  None,
  processAuthorizationCodeResponse,
  processDiscoveryResponse,
  validateAuthResponse,
} from "oauth4webapi"
import { BASE } from "./state.ts"

/** Sign-in of people at the issuer of the installation: an authorization code with PKCE. */

/** Issuer, and the client that Berth has there. */
export interface Issuer {
  issuer: string
  clientId: string
}

/** Page to which the issuer sends the browser back. */
export const RETURN_PATH = `${BASE}/signed-in`

/** Sign-in that has begun. It outlives the visit at the issuer, and has no token. */
interface Begun extends Issuer {
  verifier: string
  state: string
  returnTo: string
}

const KEPT = "sign-in"
const SCOPE = "openid email"

async function serverOf({ issuer }: Issuer) {
  const url = new URL(issuer)
  const isHere = ["127.0.0.1", "[::1]", "localhost"].includes(url.hostname)
  const options = { [allowInsecureRequests]: isHere }
  const server = await processDiscoveryResponse(url, await discoveryRequest(url, options))
  return { server, options }
}

/**
 * Sends the browser to the issuer. @param isSilent true: the issuer must not ask the person anything
 * @throws Error if the issuer can't be reached
 */
export async function begin(at: Issuer, returnTo: string, isSilent: boolean): Promise<void> {
  const { server } = await serverOf(at)
  if (server.authorization_endpoint === undefined) throw new Error(`${at.issuer} has no sign-in for browsers.`)
  const begun: Begun = { ...at, returnTo, verifier: generateRandomCodeVerifier(), state: generateRandomState() }
  sessionStorage.setItem(KEPT, JSON.stringify(begun))
  const address = new URL(server.authorization_endpoint)
  const wanted = {
    client_id: at.clientId,
    response_type: "code",
    redirect_uri: location.origin + RETURN_PATH,
    scope: SCOPE,
    state: begun.state,
    code_challenge: await calculatePKCECodeChallenge(begun.verifier),
    code_challenge_method: "S256",
    ...(isSilent && { prompt: "none" }),
  }
  for (const [name, value] of Object.entries(wanted)) address.searchParams.set(name, value)
  location.assign(address)
}

/** Returns the page that the person came from; undefined if no sign-in has begun. */
export function returnAddress(): string | undefined {
  const kept = sessionStorage.getItem(KEPT)
  return kept === null ? undefined : (JSON.parse(kept) as Begun).returnTo
}

/** Exchanges the code in the address for a token. @throws Error that has the issuer's answer */
export async function finish(): Promise<string> {
  const kept = sessionStorage.getItem(KEPT)
  if (kept === null) throw new Error("This sign-in did not begin in this tab: sign in again.")
  sessionStorage.removeItem(KEPT)
  const begun = JSON.parse(kept) as Begun
  const { server, options } = await serverOf(begun)
  const client = { client_id: begun.clientId }
  const answer = validateAuthResponse(server, client, new URL(location.href), begun.state)
  const redirect = location.origin + RETURN_PATH
  const response = await authorizationCodeGrantRequest(
    server,
    client,
    None(),
    answer,
    redirect,
    begun.verifier,
    options,
  )
  return (await processAuthorizationCodeResponse(server, client, response)).access_token
}
