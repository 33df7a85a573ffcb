import type { TokenCredential } from "@azure/identity"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CloudError } from "../../core/outbound/errors.ts"
import { type Fetch, guardedFetch } from "../../core/outbound/guarded-fetch.ts"
import { type ReadFailure, toReadError } from "../../core/outbound/read-errors.ts"
import { type IdentityTokens, identityToken } from "../identity-tokens.ts"
import { fetchClient } from "./http-client.ts"

/** Azure's public cloud. AZURE_AUTHORITY_HOST must not choose the host for signing in. */
const AUTHORITY = "https://login.microsoftonline.com"
const HOSTS = ["login.microsoftonline.com", "management.azure.com"]
/** One label before them: the name of a storage account or a registry. */
const DATA_HOSTS = /^[a-z0-9-]+(\.z[0-9]+)?\.(blob\.core\.windows\.net|blob\.storage\.azure\.net|azurecr\.io)$/

export interface AzureAccountOptions {
  /** Sends the requests, whose hosts are checked before. Default: Node.js' own fetch. */
  send?: Fetch
  /** Absent: only service principals with a client secret. */
  tokens?: IdentityTokens
}

/** A service principal, and the options of all clients of Azure's SDKs. */
export interface SignedIn {
  credential: TokenCredential
  clientOptions: ClientOptions
  /** For calls without an SDK: the same hosts, until the same signal is aborted. */
  fetch: Fetch
}

/** No retries: the error is reported, and the caller decides when to call again. */
const ONCE = { retryOptions: { maxRetries: 0 }, redirectOptions: { maxRetries: 0 } }

type ClientOptions = typeof ONCE & { httpClient: ReturnType<typeof fetchClient> }

/** Signs in to Azure as one service principal. All its calls end when the signal is aborted. */
export async function signedIn(
  credentials: CredentialFields,
  { send, tokens }: AzureAccountOptions,
  signal: AbortSignal,
): Promise<SignedIn> {
  const { ClientAssertionCredential, ClientSecretCredential } = await import("@azure/identity")
  const isOwn = (host: string) => HOSTS.includes(host) || DATA_HOSTS.test(host)
  const fetch = guardedFetch({ isOwn, signal, send })
  const clientOptions = { ...ONCE, httpClient: fetchClient(fetch) }
  const { tenant_id: tenant = "", client_id: client = "", client_secret: secret } = credentials
  const options = {
    ...clientOptions,
    authorityHost: AUTHORITY,
    // Azure's own authority needs no proof that it is one.
    disableInstanceDiscovery: true,
  }
  const credential =
    secret === undefined
      ? new ClientAssertionCredential(tenant, client, () => identityToken(tokens, "azure", credentials), options)
      : new ClientSecretCredential(tenant, client, secret, options)
  return { credential, clientOptions, fetch }
}

/** Classifies a failed call that only reads. */
export function azureError(error: unknown, signal: AbortSignal): CloudError {
  for (let inner = error; inner instanceof Error; inner = inner.cause) if (inner instanceof CloudError) return inner
  return toReadError(error, signal, failureOf)
}

interface SdkError extends Error {
  code?: string
  /** HTTP status, in the field of the SDKs. */
  statusCode?: number
  details?: { error?: { code?: string; message?: string }; errorCode?: string }
}

/** Names of the sign-in library's errors. */
const SIGN_IN_ERRORS = ["AuthenticationError", "AuthenticationRequiredError", "CredentialUnavailableError"]

function failureOf(error: unknown): ReadFailure {
  const { name, message, code, statusCode: status, details } = error as SdkError
  if (SIGN_IN_ERRORS.includes(name)) return signInFailure(error as Error)
  const text = details?.error?.message ?? message
  return { status, code: details?.error?.code ?? details?.errorCode ?? code, message: firstLine(text) }
}

/**
 * Classifies a sign-in error. Microsoft's answer to an unknown secret or application has its own code; without a code
 * there was no answer.
 */
function signInFailure(error: Error): ReadFailure {
  const [said, code] = /(AADSTS[0-9]+):[^\r\n]*/.exec(error.message) ?? []
  if (said === undefined) return { code: "SignInFailed", message: "Microsoft's sign-in did not answer" }
  return { status: TRANSIENT_SIGN_IN.includes(code ?? "") ? 503 : 401, code, message: said }
}

/** Throttled or overloaded (https://learn.microsoft.com/entra/identity-platform/reference-error-codes). */
const TRANSIENT_SIGN_IN = ["AADSTS90033", "AADSTS90055", "AADSTS50196", "AADSTS90006"]

function firstLine(text: string): string {
  return text.split(/\r?\n/)[0] ?? text
}
