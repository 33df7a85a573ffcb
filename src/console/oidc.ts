import {
  AuthorizationResponseError,
  type AuthorizationServer,
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
import { type ConsoleClient, type Tokens, tokenFor } from "./sign-in.ts"
import { BASE, RETURN_PATH } from "./state.ts"

/** Sign-in of people at the issuer of the installation: an authorization code with PKCE. */

/** Sign-in that has begun. It outlives the visit at the issuer, and has no token. */
interface Begun extends ConsoleClient {
  verifier: string
  state: string
  returnTo: string
}

const KEPT = "sign-in"

/** Errors of an issuer that would have to ask the person (OpenID Connect Core 1.0, 3.1.2.6). */
const QUESTIONS = ["login_required", "interaction_required", "consent_required", "account_selection_required"]

function optionsFor(issuer: URL) {
  return { [allowInsecureRequests]: ["127.0.0.1", "[::1]", "localhost"].includes(issuer.hostname) }
}

/** Returns the description of the issuer, from the issuer or by the façade. */
async function serverOf({ issuer, exchange }: ConsoleClient): Promise<AuthorizationServer> {
  if (exchange === "facade") return (await askFacade("issuer")) as AuthorizationServer
  const url = new URL(issuer)
  return processDiscoveryResponse(url, await discoveryRequest(url, optionsFor(url)))
}

/** Asks the façade. @throws Error that has its answer */
async function askFacade(path: "issuer" | "token", body?: object): Promise<unknown> {
  const headers = { "Content-Type": "application/json" }
  const init = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) }
  const response = await fetch(`${BASE}/sign-in/${path}`, init)
  const answer = (await response.json()) as { detail?: string; errors?: { detail: string }[] }
  if (response.ok) return answer
  const [fault] = answer.errors ?? []
  throw new Error(fault?.detail ?? answer.detail)
}

/**
 * Sends the browser to the issuer. @param isSilent true: the issuer must not ask the person anything
 * @throws Error if the issuer can't be reached
 */
export async function begin(at: ConsoleClient, returnTo: string, isSilent: boolean): Promise<void> {
  const { authorization_endpoint: endpoint } = await serverOf(at)
  if (endpoint === undefined) throw new Error("it has no sign-in for browsers.")
  const begun: Begun = { ...at, returnTo, verifier: generateRandomCodeVerifier(), state: generateRandomState() }
  sessionStorage.setItem(KEPT, JSON.stringify(begun))
  const address = new URL(endpoint)
  const wanted = {
    client_id: at.clientId,
    response_type: "code",
    redirect_uri: location.origin + RETURN_PATH,
    scope: at.scope,
    state: begun.state,
    code_challenge: await calculatePKCECodeChallenge(begun.verifier),
    code_challenge_method: "S256",
    ...(isSilent && { prompt: "none" }),
  }
  for (const [name, value] of Object.entries(wanted)) address.searchParams.set(name, value)
  // A silent sign-in leaves no entry in the history: the way back would only repeat it.
  if (isSilent) location.replace(address)
  else location.assign(address)
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
  const server = await serverOf(begun)
  const answer = validateAuthResponse(server, { client_id: begun.clientId }, new URL(location.href), begun.state)
  const exchange = begun.exchange === "facade" ? exchangedByFacade : exchangedAtIssuer
  return tokenFor(await exchange(answer, begun, server), begun.audience)
}

function exchangedByFacade(answer: URLSearchParams, { verifier }: Begun): Promise<Tokens> {
  const body = { code: answer.get("code"), code_verifier: verifier, redirect_uri: location.origin + RETURN_PATH }
  return askFacade("token", body) as Promise<Tokens>
}

async function exchangedAtIssuer(answer: URLSearchParams, begun: Begun, server: AuthorizationServer): Promise<Tokens> {
  const client = { client_id: begun.clientId }
  const redirect = location.origin + RETURN_PATH
  const options = optionsFor(new URL(begun.issuer))
  const how = [server, client, None(), answer, redirect, begun.verifier, options] as const
  return processAuthorizationCodeResponse(server, client, await authorizationCodeGrantRequest(...how))
}

/** True if the issuer can't sign the person in without a question. */
export function needsQuestion(error: unknown): boolean {
  return error instanceof AuthorizationResponseError && QUESTIONS.includes(error.error)
}

/** Returns an error of the issuer or of the library in words: the issuer's own, if there are any. */
export function explainedByIssuer(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { error: code, error_description: description } = error as { error?: unknown; error_description?: unknown }
  if (typeof code !== "string") return error.message
  return typeof description === "string" ? `${code}: ${description}` : code
}
