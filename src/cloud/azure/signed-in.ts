import type { TokenCredential } from "@azure/identity"
import type { CredentialFields } from "../../apis/credentials.ts"
import { CloudError } from "../errors.ts"
import { type Fetch, guardedFetch } from "../guarded-fetch.ts"
import { type ReadFailure, readErrorOf } from "../read-errors.ts"
import { fetchClient } from "./http-client.ts"

/** Azure's public cloud; what signs in must not be chosen by AZURE_AUTHORITY_HOST. */
const AUTHORITY = "https://login.microsoftonline.com"
const HOSTS = ["login.microsoftonline.com", "management.azure.com"]
/** One label before them: the name of a storage account or a registry. */
const DATA_HOSTS = /^[a-z0-9-]+(\.z[0-9]+)?\.(blob\.core\.windows\.net|blob\.storage\.azure\.net|azurecr\.io)$/

export interface AzureAccountOptions {
  /** What sends requests, whose hosts were checked; default: Node.js' own fetch. */
  send?: Fetch
}

/** A service principal, and what every client of Azure's SDKs is made with. */
export interface SignedIn {
  credential: TokenCredential
  clientOptions: ClientOptions
  /** For what no SDK does: the same hosts, until the same signal is aborted. */
  fetch: Fetch
}

/** Nothing is sent twice: a failure is told, and the next question asked when somebody asks again. */
const ONCE = { retryOptions: { maxRetries: 0 }, redirectOptions: { maxRetries: 0 } }

type ClientOptions = typeof ONCE & { httpClient: ReturnType<typeof fetchClient> }

/** Azure, as one service principal calls it until the signal is aborted. */
export async function signedIn(
  credentials: CredentialFields,
  { send }: AzureAccountOptions,
  signal: AbortSignal,
): Promise<SignedIn> {
  const { ClientSecretCredential } = await import("@azure/identity")
  const isOwn = (host: string) => HOSTS.includes(host) || DATA_HOSTS.test(host)
  const fetch = guardedFetch({ isOwn, signal, send })
  const clientOptions = { ...ONCE, httpClient: fetchClient(fetch) }
  const { tenant_id: tenant = "", client_id: client = "", client_secret: secret = "" } = credentials
  const credential = new ClientSecretCredential(tenant, client, secret, {
    ...clientOptions,
    authorityHost: AUTHORITY,
    // Azure's own authority needs no proof that it is one.
    disableInstanceDiscovery: true,
  })
  return { credential, clientOptions, fetch }
}

/** What a failed call that only reads means. */
export function azureError(error: unknown, signal: AbortSignal): CloudError {
  for (let inner = error; inner instanceof Error; inner = inner.cause) if (inner instanceof CloudError) return inner
  return readErrorOf(error, signal, failureOf)
}

interface SdkError extends Error {
  code?: string
  /** HTTP status, as the SDKs of the APIs have it. */
  statusCode?: number
  details?: { error?: { code?: string; message?: string }; errorCode?: string }
}

/** What the library that signs in says it by. */
const SIGN_IN_ERRORS = ["AuthenticationError", "AuthenticationRequiredError", "CredentialUnavailableError"]

function failureOf(error: unknown): ReadFailure {
  const { name, message, code, statusCode: status, details } = error as SdkError
  if (SIGN_IN_ERRORS.includes(name)) return signInFailure(error as Error)
  const text = details?.error?.message ?? message
  return { status, code: details?.error?.code ?? details?.errorCode ?? code, message: firstLine(text) }
}

/** A secret or an application that Microsoft does not know has a code of its own; without one nobody was asked. */
function signInFailure(error: Error): ReadFailure {
  const [said, code] = /(AADSTS[0-9]+):[^\r\n]*/.exec(error.message) ?? []
  if (said === undefined) return { code: "SignInFailed", message: "Microsoft's sign-in could not be asked" }
  return { status: TRANSIENT_SIGN_IN.includes(code ?? "") ? 503 : 401, code, message: said }
}

/** Too much or too busy (https://learn.microsoft.com/entra/identity-platform/reference-error-codes). */
const TRANSIENT_SIGN_IN = ["AADSTS90033", "AADSTS90055", "AADSTS50196", "AADSTS90006"]

function firstLine(text: string): string {
  return text.split(/\r?\n/)[0] ?? text
}
