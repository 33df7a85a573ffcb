import type { OAuth2Client } from "google-auth-library"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CloudError, CredentialsError, TransientError } from "../../core/outbound/errors.ts"
import { type Fetch, guardedFetch } from "../../core/outbound/guarded-fetch.ts"
import { type ReadFailure, toReadError } from "../../core/outbound/read-errors.ts"
import { type IdentityTokens, identityToken } from "../identity-tokens.ts"

/** Google's hosts that are only read from, or that issue tokens. Addresses in a key file are ignored. */
const HOSTS = [
  "oauth2.googleapis.com",
  "storage.googleapis.com",
  "artifactregistry.googleapis.com",
  "cloudresourcemanager.googleapis.com",
  "cloudbilling.googleapis.com",
  "compute.googleapis.com",
  "sts.googleapis.com",
  "iamcredentials.googleapis.com",
]

const SCOPES = ["https://www.googleapis.com/auth/cloud-platform.read-only"]

export interface GoogleOptions {
  /** Scopes of the tokens. Default: reading everything that the service account may read. */
  scopes?: readonly string[]
  /** Sends the requests, whose hosts are checked before. Default: Node.js' own fetch. */
  send?: Fetch
  /** Absent: only service accounts with a key file. */
  tokens?: IdentityTokens
}

/** Returns a client of Google as one service account. All its calls end when the signal is aborted. */
export async function googleAs(
  credentials: CredentialFields,
  { send, tokens, scopes = SCOPES }: GoogleOptions,
  signal: AbortSignal,
): Promise<OAuth2Client> {
  const fetchImplementation = guardedFetch({ isOwn: (host) => HOSTS.includes(host), signal, send })
  return await authClient(credentials, { scopes, tokens, fetchImplementation })
}

export interface AuthOptions {
  scopes: readonly string[]
  tokens: IdentityTokens | undefined
  fetchImplementation: Fetch
}

/** Returns a client that gets tokens of the service account, by its key or by identity tokens of Berth. */
export async function authClient(credentials: CredentialFields, options: AuthOptions): Promise<OAuth2Client> {
  const { default: library } = await import("google-auth-library")
  const { JWT, OAuth2Client } = library
  const { scopes, fetchImplementation } = options
  const transporterOptions = { fetchImplementation }
  if (credentials["workload_identity_provider"] === undefined) {
    // Built from the key alone: a client built from the whole file would use the addresses in it.
    return new JWT({ ...parseKey(credentials), scopes: [...scopes], transporterOptions })
  }
  const client = new OAuth2Client({ transporterOptions })
  client.refreshHandler = () => federatedToken(credentials, options)
  return client
}

/**
 * Exchanges an identity token of Berth for a token of the service account
 * (https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers). The library's own client for
 * this would use its own fetch, which checks no hosts.
 */
async function federatedToken(credentials: CredentialFields, { scopes, tokens, fetchImplementation }: AuthOptions) {
  const { workload_identity_provider: provider, service_account: account } = credentials
  const exchange = {
    grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
    requested_token_type: "urn:ietf:params:oauth:token-type:access_token",
    subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
    subject_token: await identityToken(tokens, "gcp", credentials),
    audience: `//iam.googleapis.com/${provider}`,
    scope: FULL_SCOPE,
  }
  const post = poster(credentials, fetchImplementation)
  const { access_token: federated } = await post("https://sts.googleapis.com/v1/token", exchange)
  const impersonation = `https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/${account}:generateAccessToken`
  const { accessToken, expireTime } = await post(impersonation, { scope: scopes }, federated)
  if (accessToken === undefined || expireTime === undefined)
    throw new CredentialsError("NoCredentials", "Google returned no token")
  return { access_token: accessToken, expiry_date: Date.parse(expireTime) }
}

/** The exchanged token only impersonates the service account, whose own token has the smaller scope. */
const FULL_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

type Posted = { access_token?: string; accessToken?: string; expireTime?: string }

/** Returns a function that posts JSON. It names what Google must trust if Google refuses. */
function poster({ identity_subject: subject, service_account: account }: CredentialFields, fetch: Fetch) {
  return async (url: string, body: object, token?: string): Promise<Posted> => {
    const response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", ...(token !== undefined && { authorization: `Bearer ${token}` }) },
      body: JSON.stringify(body),
    })
    const text = await response.text()
    if (response.ok) return JSON.parse(text) as Posted
    const { code = `HTTP ${response.status}`, message } = saidIn(text, response.status)
    if (response.status === 429 || response.status >= 500)
      throw new TransientError(code, `${new URL(url).host}: ${message}`)
    const advice =
      token === undefined
        ? `its workload identity provider must trust Berth's issuer and the subject ${subject}`
        : `the subject ${subject} needs the role roles/iam.workloadIdentityUser on ${account}`
    throw new CredentialsError(code, `Google refused the identity token: ${advice} (docs/gcp.md). ${message}`)
  }
}

/** Verifies the key by requesting a token. @throws CloudError */
export async function proveKey(google: OAuth2Client, signal: AbortSignal): Promise<void> {
  try {
    await google.getAccessToken()
  } catch (error) {
    throw googleError(error, signal)
  }
}

/** The fields of a key file that are used. */
export interface Key {
  email: string
  key: string
  keyId?: string
}

/** Returns the key in a connection's key file. @throws CredentialsError, without any content of the file */
export function parseKey(credentials: CredentialFields): Key {
  try {
    const file = JSON.parse(credentials["keyfile_json"] ?? "") as Record<string, unknown>
    const { client_email: email, private_key: key, private_key_id: keyId } = file
    if (file["type"] === "service_account" && typeof email === "string" && typeof key === "string")
      return { email, key, ...(typeof keyId === "string" && { keyId }) }
  } catch {
    // The parser's message quotes a piece of the content.
  }
  throw new CredentialsError("MalformedKey", "keyfile_json is not a service account's key: create a JSON key")
}

/** Classifies a failed call that only reads. */
export function googleError(error: unknown, signal: AbortSignal): CloudError {
  const refused = innerCloudError(error)
  if (refused !== undefined) return refused
  return toReadError(error, signal, failureOf)
}

/** The libraries wrap the errors of Berth's fetch. */
function innerCloudError(error: unknown): CloudError | undefined {
  for (let inner = error; inner instanceof Error; inner = (inner as { error?: unknown }).error ?? inner.cause)
    if (inner instanceof CloudError) return inner
  return undefined
}

/** Google's errors for a key that is wrong, deleted or disabled, all with status 400. */
const KEY_REFUSED = /invalid_grant|invalid_client|account_disabled/

function failureOf(error: unknown): ReadFailure {
  const { message, status, code, body } = answerIn(error)
  const refusal = KEY_REFUSED.exec(message)?.[0]
  const advice = "Google rejected the service account's key: create a new one, and check that the account is enabled"
  if (refusal !== undefined) return { status: 401, code: refusal, message: advice }
  // OpenSSL can't read the key.
  if (typeof code === "string" && code.startsWith("ERR_OSSL"))
    return { status: 401, code, message: "private_key in keyfile_json can't be read: create a new key" }
  if (status === undefined) return { code: typeof code === "string" ? code : undefined, message }
  return { status, ...(body === undefined ? saidIn(message, status) : saidBy(body, status)) }
}

interface Answer {
  message: string
  /** HTTP status; absent if there was no answer. */
  status?: number | undefined
  code?: unknown
  /** Parsed body of the answer, if the library has parsed it. */
  body?: GoogleErrorBody | undefined
}

/** Returns the error with the original answer, which the SDK's errors wrap. */
function answerIn(error: unknown): Answer {
  for (let inner = error; inner instanceof Error; inner = inner.cause)
    if (typeof (inner as { status?: unknown }).status === "number") return { ...factsOf(inner), body: bodyOf(inner) }
  const { message, code, httpStatusCode: status } = error as Error & { code?: unknown; httpStatusCode?: number }
  return { message, code, status }
}

function factsOf(error: Error): Answer {
  const { message, status, code } = error as Error & Answer
  return { message, status, code }
}

/** Returns the body of the answer to a plain request of the sign-in library. */
function bodyOf(error: Error): GoogleErrorBody | undefined {
  const { response } = error as { response?: { data?: unknown } }
  const data = response?.data
  const isError = typeof data === "object" && data !== null && typeof (data as GoogleErrorBody).error === "object"
  return isError ? (data as GoogleErrorBody) : undefined
}

/** Returns Google's own code and message in the body of an answer (https://cloud.google.com/apis/design/errors). */
function saidIn(body: string, status: number): { code?: string | undefined; message: string } {
  try {
    return saidBy(JSON.parse(body) as GoogleErrorBody, status)
  } catch {
    // For example an HTML page: its text is not shown.
    return { message: `Google answered with HTTP ${status}` }
  }
}

function saidBy(
  { error, error_description }: GoogleErrorBody,
  status: number,
): { code?: string | undefined; message: string } {
  // The token endpoints answer in OAuth's form (https://www.rfc-editor.org/rfc/rfc6749#section-5.2).
  if (typeof error === "string") return { code: error, message: error_description ?? error }
  const reason = error?.details?.find((detail) => detail.reason !== undefined)?.reason ?? error?.errors?.[0]?.reason
  return { code: reason ?? error?.status, message: error?.message ?? `HTTP ${status}` }
}

interface GoogleErrorBody {
  error_description?: string
  error?:
    | string
    | {
        message?: string
        status?: string
        errors?: { reason?: string }[]
        details?: { reason?: string }[]
      }
}
