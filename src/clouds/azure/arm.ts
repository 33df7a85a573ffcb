import type { ComputeManagementClient } from "@azure/arm-compute"
import type { NetworkManagementClient } from "@azure/arm-network"
import type { TokenCredential } from "@azure/identity"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { type Fetch, guardedFetch } from "../../core/outbound/guarded-fetch.ts"
import type { IdentityTokens } from "../identity-tokens.ts"
import { callError, type Effect, tokenError } from "./errors.ts"
import { signedIn } from "./signed-in.ts"

const HOST = "management.azure.com"
const SCOPE = `https://${HOST}/.default`
const CALL_SECONDS = 60

export interface ArmOptions {
  /** Sends the requests, whose hosts are checked before. Default: Node.js' own fetch. */
  send?: Fetch
  /** Timeout of one call, seconds. Default 60. */
  callSeconds?: number
  /** Absent: only service principals with a client secret. */
  tokens?: IdentityTokens
}

export interface Clients {
  compute: ComputeManagementClient
  network: NetworkManagementClient
}

/** Options of each SDK call. */
export interface CallOptions {
  abortSignal: AbortSignal
}

/** A call of a part of Azure Resource Manager for which no SDK is used. */
export interface PlainCall {
  method: "GET" | "PUT"
  /** Path after the host, with the query if there is one. */
  path: string
  apiVersion: string
  body?: unknown
}

interface Loaded {
  clients: Clients
  credential: TokenCredential
  fetch: Fetch
}

/** One subscription's Azure Resource Manager, called only as one service principal. */
export class Arm {
  readonly subscription: string
  readonly #credentials: CredentialFields
  readonly #options: ArmOptions
  #loading: Promise<Loaded> | undefined

  /** Makes no calls. */
  constructor(credentials: CredentialFields, options: ArmOptions) {
    this.subscription = credentials["subscription_id"] ?? ""
    this.#credentials = credentials
    this.#options = options
  }

  /**
   * Makes one call. @param fence called right before it is sent; its error is passed on
   * @throws CloudError, classified by the call's effect
   */
  async call<T>(
    effect: Effect,
    make: (clients: Clients, options: CallOptions) => Promise<T>,
    fence: () => void = () => undefined,
  ): Promise<T> {
    const { clients } = await this.#ready()
    fence()
    try {
      return await make(clients, { abortSignal: this.#deadline() })
    } catch (error) {
      throw callError(error, effect)
    }
  }

  /** Makes one call without an SDK, and returns the answer. @throws CloudError as `call` does */
  async request(effect: Effect, call: PlainCall, fence: () => void = () => undefined): Promise<unknown> {
    const { fetch, credential } = await this.#ready()
    const token = await credential.getToken(SCOPE).catch((error: unknown) => {
      throw tokenError(error)
    })
    fence()
    try {
      return await plain(fetch, call, token?.token ?? "", this.#deadline())
    } catch (error) {
      throw callError(error, effect)
    }
  }

  #deadline(): AbortSignal {
    return AbortSignal.timeout((this.#options.callSeconds ?? CALL_SECONDS) * 1000)
  }

  /** Signs in first: an error to get a token proves that the call was not made. */
  async #ready(): Promise<Loaded> {
    this.#loading ??= load(this.#credentials, this.subscription, this.#options)
    const loaded = await this.#loading
    await loaded.credential.getToken(SCOPE, { abortSignal: this.#deadline() }).catch((error: unknown) => {
      throw tokenError(error)
    })
    return loaded
  }
}

/** Loads the SDKs on first use. They take a second, which an installation without Azure must not pay. */
async function load(
  credentials: CredentialFields,
  subscription: string,
  { send, tokens }: ArmOptions,
): Promise<Loaded> {
  const [{ ComputeManagementClient }, { NetworkManagementClient }] = await Promise.all([
    import("@azure/arm-compute"),
    import("@azure/arm-network"),
  ])
  const never = new AbortController().signal
  const { credential, clientOptions } = await signedIn(
    credentials,
    { ...(send && { send }), ...(tokens && { tokens }) },
    never,
  )
  const clients = {
    compute: new ComputeManagementClient(credential, subscription, clientOptions),
    network: new NetworkManagementClient(credential, subscription, clientOptions),
  }
  return { clients, credential, fetch: guardedFetch({ isOwn: (host) => host === HOST, signal: never, send }) }
}

async function plain(fetch: Fetch, call: PlainCall, token: string, signal: AbortSignal): Promise<unknown> {
  const { method, path, apiVersion, body } = call
  const version = `${path.includes("?") ? "&" : "?"}api-version=${apiVersion}`
  const response = await fetch(`https://${HOST}${path}${version}`, {
    method,
    signal,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  const answer: unknown = response.headers.get("content-type")?.includes("json") === true ? JSON.parse(text) : undefined
  if (response.ok) return answer
  throw Object.assign(new Error(`HTTP ${response.status}`), { statusCode: response.status, details: answer })
}
