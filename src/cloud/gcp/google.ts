import type { JWT } from "google-auth-library"
import type { CredentialFields } from "../../apis/credentials.ts"
import { CloudError, CredentialsError } from "../errors.ts"
import { type Fetch, guardedFetch } from "../guarded-fetch.ts"
import { type ReadFailure, readErrorOf } from "../read-errors.ts"

/** Google's hosts that are only read from, or give tokens. What a key file says of addresses is not looked at. */
const HOSTS = [
  "oauth2.googleapis.com",
  "storage.googleapis.com",
  "artifactregistry.googleapis.com",
  "cloudresourcemanager.googleapis.com",
  "cloudbilling.googleapis.com",
  "sts.googleapis.com",
]

const SCOPES = ["https://www.googleapis.com/auth/cloud-platform.read-only"]

export interface GoogleOptions {
  /** What tokens are good for; default: reading whatever the service account may read. */
  scopes?: readonly string[]
  /** What sends requests, whose hosts were checked; default: Node.js' own fetch. */
  send?: Fetch
}

/** Google, as one service account calls it until the signal is aborted. */
export async function googleAs(
  credentials: CredentialFields,
  { send, scopes = SCOPES }: GoogleOptions,
  signal: AbortSignal,
): Promise<JWT> {
  const { JWT } = await import("google-auth-library")
  const fetchImplementation = guardedFetch({ isOwn: (host) => HOSTS.includes(host), signal, send })
  // Made from the key alone: a client made from the whole file would believe the addresses in it.
  return new JWT({ ...keyOf(credentials), scopes: [...scopes], transporterOptions: { fetchImplementation } })
}

/** Proves the key, by getting a token for it. @throws CloudError */
export async function proveKey(google: JWT, signal: AbortSignal): Promise<void> {
  try {
    await google.authorize()
  } catch (error) {
    throw googleError(error, signal)
  }
}

/** What of a key file is used. */
export interface Key {
  email: string
  key: string
  keyId?: string
}

/** The key in a connection's key file. @throws CredentialsError, which shows nothing of the file */
export function keyOf(credentials: CredentialFields): Key {
  try {
    const file = JSON.parse(credentials["keyfile_json"] ?? "") as Record<string, unknown>
    const { client_email: email, private_key: key, private_key_id: keyId } = file
    if (file["type"] === "service_account" && typeof email === "string" && typeof key === "string")
      return { email, key, ...(typeof keyId === "string" && { keyId }) }
  } catch {
    // What the parser says has a piece of the content in it.
  }
  throw new CredentialsError("MalformedKey", "keyfile_json is not a service account's key: create a JSON key of one")
}

/** What a failed call that only reads means. */
export function googleError(error: unknown, signal: AbortSignal): CloudError {
  const refused = innerCloudError(error)
  if (refused !== undefined) return refused
  return readErrorOf(error, signal, failureOf)
}

/** The libraries wrap what our own fetch throws. */
function innerCloudError(error: unknown): CloudError | undefined {
  for (let inner = error; inner instanceof Error; inner = (inner as { error?: unknown }).error ?? inner.cause)
    if (inner instanceof CloudError) return inner
  return undefined
}

/** Google's answers to a key that is wrong, deleted or disabled, all with status 400. */
const KEY_REFUSED = /invalid_grant|invalid_client|account_disabled/

function failureOf(error: unknown): ReadFailure {
  const { message, status, code } = answerIn(error)
  const refusal = KEY_REFUSED.exec(message)?.[0]
  const advice = "Google refuses the service account's key: make a new one, and see that the account is enabled"
  if (refusal !== undefined) return { status: 401, code: refusal, message: advice }
  // Of the key itself: OpenSSL can't read it.
  if (typeof code === "string" && code.startsWith("ERR_OSSL"))
    return { status: 401, code, message: "private_key in keyfile_json can't be read: make a new key" }
  if (status === undefined) return { code: typeof code === "string" ? code : undefined, message }
  return { status, ...saidIn(message, status) }
}

interface Answer {
  message: string
  /** HTTP status; absent when there was no answer. */
  status?: number | undefined
  code?: unknown
}

/** The error that has the answer as it came, under those that the SDK made of it. */
function answerIn(error: unknown): Answer {
  for (let inner = error; inner instanceof Error; inner = inner.cause)
    if (typeof (inner as { status?: unknown }).status === "number") return inner
  const { message, code, httpStatusCode: status } = error as Error & { code?: unknown; httpStatusCode?: number }
  return { message, code, status }
}

/** Google's own words in the body of an answer (https://cloud.google.com/apis/design/errors). */
function saidIn(body: string, status: number): { code?: string | undefined; message: string } {
  try {
    const { error } = JSON.parse(body) as GoogleErrorBody
    const reason = error?.details?.find((detail) => detail.reason !== undefined)?.reason ?? error?.errors?.[0]?.reason
    return { code: reason ?? error?.status, message: error?.message ?? `HTTP ${status}` }
  } catch {
    // A page for people, say. It is nobody's message.
    return { message: `Google answered with HTTP ${status}` }
  }
}

interface GoogleErrorBody {
  error?: {
    message?: string
    status?: string
    errors?: { reason?: string }[]
    details?: { reason?: string }[]
  }
}
