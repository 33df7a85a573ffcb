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
  const clientOptions = { ...ONCE, httpClient: fetchClient(guardedFetch({ isOwn, signal, send })) }
  const { tenant_id: tenant = "", client_id: client = "", client_secret: secret = "" } = credentials
  const credential = new ClientSecretCredential(tenant, client, secret, {
    ...clientOptions,
    authorityHost: AUTHORITY,
    // Azure's own authority needs no proof that it is one.
    disableInstanceDiscovery: true,
  })
  return { credential, clientOptions }
}

/** What a failed call that only reads means. */
export function azureError(error: unknown, signal: AbortSignal): CloudError {
  for (let inner = error; inner instanceof Error; inner = inner.cause) if (inner instanceof CloudError) return inner
  return readErrorOf(error, signal, failureOf)
}

interface SdkError extends Error {
  code?: string
  statusCode?: number
  details?: { error?: { code?: string; message?: string }; errorCode?: string }
  errorResponse?: { error?: string; errorDescription?: string }
}

function failureOf(error: unknown): ReadFailure {
  const { name, message, code, statusCode: status, details, errorResponse } = error as SdkError
  // Of signing in. Microsoft's description goes on with trace ids and times in lines of their own.
  if (name === "AuthenticationError" || name === "CredentialUnavailableError" || errorResponse !== undefined) {
    const said = errorResponse?.errorDescription ?? message
    const known = /AADSTS[0-9]+/.exec(said)?.[0] ?? errorResponse?.error ?? "AuthenticationFailed"
    return { status: isOfUs(status) ? 401 : status, code: known, message: said.split(/\r?\n/)[0] ?? known }
  }
  const text = details?.error?.message ?? message
  return { status, code: details?.error?.code ?? details?.errorCode ?? code, message: text.split(/\r?\n/)[0] ?? text }
}

/** 400 is what Microsoft says to a secret or an application that it does not know. */
function isOfUs(status: number | undefined): boolean {
  return status !== undefined && status >= 400 && status < 500 && status !== 429
}
