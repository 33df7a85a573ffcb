import { once } from "node:events"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import type { Configuration, TokenEndpointResponse, TokenEndpointResponseHelpers } from "openid-client"
import { onAborted } from "../core/apis/abort.ts"
import { defined } from "../core/apis/defined.ts"
import type { SignIn } from "./context.ts"
import { EXIT, Failure } from "./exit.ts"

/** Issuer, and the client that Berth has there. */
export interface SignInTarget {
  issuer: string
  clientId: string
  resource?: string | undefined
  signal: AbortSignal
}

const SCOPE = "openid email"
const CALLBACK_PATH = "/callback"
/** Time for a person to sign in, milliseconds. */
const PATIENCE_MS = 300_000
/** A token that ends within this time is renewed first, milliseconds. */
const RENEWED_BEFORE_MS = 30_000
/** Longest wait for an answer of the issuer, seconds. Other processes wait for a renewal meanwhile. */
const ANSWER_SECONDS = 10

const DONE_PAGE = `<!doctype html><meta charset="utf-8"><title>Berth</title>
<p style="font: 1.1em sans-serif; margin: 3em">You are signed in. You can close this page.</p>`

/** Loads the library when it is needed: most commands don't. */
async function clientOf({ issuer, clientId }: Pick<SignInTarget, "issuer" | "clientId">) {
  const library = await import("openid-client")
  const url = new URL(issuer)
  const isHere = ["127.0.0.1", "[::1]", "localhost"].includes(url.hostname)
  const execute = isHere ? [library.allowInsecureRequests] : []
  const client: Configuration = await library.discovery(url, clientId, undefined, library.None(), {
    execute,
    timeout: ANSWER_SECONDS,
  })
  return { library, client, metadata: client.serverMetadata() }
}

/** True if the issuer can sign in with a browser on this machine. */
export async function hasBrowserFlow(target: SignInTarget): Promise<boolean> {
  return (await clientOf(target)).metadata.authorization_endpoint !== undefined
}

/**
 * Signs a person in with a browser on this machine: a code for the loopback address, with PKCE (RFC 8252).
 * @param open shows the address to the person, or opens it
 */
export async function signInByBrowser(target: SignInTarget, open: (address: string) => void): Promise<SignIn> {
  const { library, client } = await clientOf(target)
  const verifier = library.randomPKCECodeVerifier()
  const state = library.randomState()
  const server = createServer()
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  try {
    const redirect = `http://127.0.0.1:${(server.address() as AddressInfo).port}${CALLBACK_PATH}`
    const address = library.buildAuthorizationUrl(client, {
      redirect_uri: redirect,
      scope: SCOPE,
      code_challenge: await library.calculatePKCECodeChallenge(verifier),
      code_challenge_method: "S256",
      state,
      ...defined({ resource: target.resource }),
    })
    const answered = answerAt(server, redirect, target.signal)
    open(address.href)
    const checks = { pkceCodeVerifier: verifier, expectedState: state, idTokenExpected: false }
    return signInOf(await library.authorizationCodeGrant(client, await answered, checks), target)
  } catch (error) {
    throw explainError(error)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

/** Resolves with the address that the issuer sends the browser to. */
async function answerAt(server: Server, redirect: string, signal: AbortSignal): Promise<URL> {
  const { promise, resolve, reject } = Promise.withResolvers<URL>()
  const limit = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)])
  onAborted(limit, () => reject(new Failure(EXIT.forbidden, "The sign-in took too long: try again.")))
  server.on("request", (req, res) => {
    const url = new URL(req.url ?? "/", redirect)
    if (url.pathname !== CALLBACK_PATH) return void res.writeHead(404).end()
    res.writeHead(200, { "Content-Type": "text/html", "Cache-Control": "no-store", Connection: "close" }).end(DONE_PAGE)
    resolve(url)
  })
  return promise
}

/**
 * Signs a person in with a browser on any device (RFC 8628).
 * @param show shows the address to open, and the code to compare there
 */
export async function signInByDevice(
  target: SignInTarget,
  show: (address: string, code: string) => void,
): Promise<SignIn> {
  const { library, client, metadata } = await clientOf(target)
  if (metadata.device_authorization_endpoint === undefined)
    throw new Failure(EXIT.failed, `${target.issuer} has no device flow. Sign in with a key: berth login URL --key -`)
  const wanted = { scope: SCOPE, ...defined({ resource: target.resource }) }
  try {
    const started = await library.initiateDeviceAuthorization(client, wanted)
    show(started.verification_uri_complete ?? started.verification_uri, started.user_code)
    const { signal } = target
    return signInOf(await library.pollDeviceAuthorizationGrant(client, started, undefined, { signal }), target)
  } catch (error) {
    throw explainError(error)
  }
}

/** Tokens that the issuer renews. */
type RenewableSignIn = SignIn & Required<Pick<SignIn, "refreshToken">>

/**
 * True if the token ends soon, and can be renewed.
 * @param rejected token that the API has rejected, whenever it ends
 */
export function isRenewalDue(signIn: SignIn, now: Date, rejected?: string): signIn is RenewableSignIn {
  const { accessToken, refreshToken, expiresAt } = signIn
  if (refreshToken === undefined) return false
  if (accessToken === rejected) return true
  return expiresAt !== undefined && Date.parse(expiresAt) - now.getTime() <= RENEWED_BEFORE_MS
}

/** Returns the sign-in with a new token. @throws Failure if the issuer gives none, or can't be reached */
export async function renewSignIn(signIn: RenewableSignIn, signal: AbortSignal): Promise<SignIn> {
  try {
    const { library, client } = await clientOf(signIn)
    const resource = signIn.resource === undefined ? {} : { resource: signIn.resource }
    const tokens = await library.refreshTokenGrant(client, signIn.refreshToken, resource)
    return { ...signIn, ...signInOf(tokens, { ...signIn, signal }) }
  } catch (error) {
    const { message } = explainError(error)
    if (!isAnswer(error))
      throw new Failure(EXIT.tryAgain, `Your sign-in can't be renewed: ${signIn.issuer} does not answer (${message}).`)
    throw new Failure(EXIT.forbidden, `Your sign-in has ended, and can't be renewed (${message}). Run berth login.`)
  }
}

function signInOf(tokens: TokenEndpointResponse & TokenEndpointResponseHelpers, target: SignInTarget): SignIn {
  const seconds = tokens.expiresIn()
  return {
    accessToken: tokens.access_token,
    ...defined({ refreshToken: tokens.refresh_token }),
    ...(seconds !== undefined && { expiresAt: new Date(Date.now() + seconds * 1000).toISOString() }),
    issuer: target.issuer,
    clientId: target.clientId,
    ...defined({ resource: target.resource }),
  }
}

/** Returns an error that names the issuer's answer: its code, such as `access_denied`, and its description. */
function explainError(error: unknown): Error {
  if (!isAnswer(error)) return error instanceof Error ? error : new Error(String(error))
  const description = error.error_description === undefined ? "" : `: ${error.error_description}`
  return new Failure(EXIT.forbidden, `the issuer did not accept the sign-in (${error.error}${description})`)
}

/** True for an issuer's refusal (RFC 6749, section 5.2). Else it was not reached, or answered something else. */
function isAnswer(error: unknown): error is { error: string; error_description?: string } {
  return error instanceof Error && "error" in error && typeof error.error === "string"
}
