import type { Clock } from "../../core/apis/clock.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { RegionError } from "../../core/outbound/errors.ts"
import { ByCredentials } from "../by-credentials.ts"
import type { Identity } from "../cloud.ts"
import type { IdentityTokens } from "../identity-tokens.ts"
import { decode, encode, hostOf, type Json, methodOf } from "./api.ts"
import { type Effect, toCloudError } from "./errors.ts"
import { type SendRpc, sendRpc } from "./rpc.ts"
import { SignIn } from "./sign-in.ts"

export interface ClientOptions {
  /** Sends the calls. Default: to Nebius. */
  send?: SendRpc
  tokens?: IdentityTokens
  /** Timeout of one call, seconds. Default 60. */
  callSeconds?: number
  clock?: Clock
}

export interface CallOptions {
  /** Default: read. */
  effect?: Effect
  /** Called right before the call is sent; its error is passed on. */
  fence?: (() => void) | undefined
  /** Method whose host is called: an operation is where it began (https://github.com/nebius/api#api-endpoints). */
  hostOf?: string
  /** Calls with the same key are executed once (https://github.com/nebius/api#idempotency). */
  idempotencyKey?: string
}

/** A project of Nebius: it is in one region, and belongs to a tenant. */
export interface Project {
  id: string
  region: string
  tenant: string
}

const CALL_SECONDS = 60
/** https://grpc.io/docs/guides/status-codes/ */
const UNAUTHENTICATED = 16
/** Nebius' maximum. */
const PAGE_SIZE = 1000
/** Maximum number of accounts whose tokens and projects are cached. */
const MOST_ACCOUNTS = 100

/** Nebius' API, called as one service account. */
export class Nebius {
  readonly #credentials: CredentialFields
  readonly #options: ClientOptions
  readonly #send: SendRpc
  readonly #signIn: SignIn
  readonly #kept = new Map<string, Promise<unknown>>()

  constructor(credentials: CredentialFields, options: ClientOptions) {
    this.#credentials = credentials
    this.#options = options
    this.#send = options.send ?? sendRpc
    this.#signIn = new SignIn(credentials, { send: this.#send, tokens: options.tokens, clock: options.clock })
  }

  /**
   * Makes one call. @param name method, such as `compute.v1.InstanceService/Create`
   * @throws CloudError, classified by the call's effect
   */
  async call(name: string, request: Json, options: CallOptions = {}): Promise<Json> {
    const { effect = "read", fence, idempotencyKey, hostOf: place = name } = options
    const method = methodOf(name)
    const message = encode(method.input, request)
    const rpc = { host: hostOf(methodOf(place)), path: `/${method.parent.typeName}/${method.name}`, message }
    const timeoutSeconds = this.#options.callSeconds ?? CALL_SECONDS
    for (let isSecond = false; ; isSecond = true) {
      const token = await this.#signIn.token()
      const headers = {
        authorization: `Bearer ${token}`,
        ...(idempotencyKey !== undefined && { "x-idempotency-key": idempotencyKey }),
      }
      fence?.()
      try {
        return decode(method.output, await this.#send({ ...rpc, headers, timeoutSeconds }))
      } catch (error) {
        if (isSecond || (error as { code?: unknown }).code !== UNAUTHENTICATED) throw toCloudError(error, effect)
        // The token was revoked before its end.
        await this.#signIn.forget(token)
      }
    }
  }

  /** Returns the items of all pages of a list. */
  async list(name: string, request: Json): Promise<Json[]> {
    const items: Json[] = []
    for (let pageToken = ""; ; ) {
      const page = await this.call(name, { ...request, pageSize: String(PAGE_SIZE), ...(pageToken && { pageToken }) })
      items.push(...((page["items"] ?? []) as Json[]))
      pageToken = String(page["nextPageToken"] ?? "")
      if (pageToken === "") return items
    }
  }

  /** Returns what `make` returned for this key, unless that failed. For facts that don't change. */
  keep<T>(key: string, make: () => Promise<T>): Promise<T> {
    const known = this.#kept.get(key) as Promise<T> | undefined
    if (known !== undefined) return known
    const made = make()
    this.#kept.set(key, made)
    made.catch(() => this.#kept.delete(key))
    return made
  }

  /** Forgets facts that turned out to be no longer true: those whose keys begin so. */
  forget(prefix: string): void {
    for (const key of this.#kept.keys()) if (key.startsWith(prefix)) this.#kept.delete(key)
  }

  /** Returns the projects of the connection. */
  projects(): Promise<Project[]> {
    return this.keep("projects", () => Promise.all(projectIds(this.#credentials).map((id) => this.#project(id))))
  }

  /** Returns the tenant: quotas and bills are its own. */
  async identity(): Promise<Identity> {
    const [project] = await this.projects()
    return { account: project?.tenant ?? "" }
  }

  /** @throws RegionError if the connection has no project in the region */
  async projectIn(region: string): Promise<Project> {
    const projects = await this.projects()
    const found = projects.find((project) => project.region === region)
    if (found !== undefined) return found
    const has = projects.map(({ id, region: of }) => `${id} in ${of}`).join(", ")
    const message = `the connection has no project in ${region}, only ${has}: add one to \`projects\``
    throw new RegionError("NoProject", message)
  }

  async #project(id: string): Promise<Project> {
    const { metadata, spec, status } = (await this.call("iam.v1.ProjectService/Get", { id })) as {
      metadata?: { parentId?: string }
      spec?: { region?: string }
      status?: { region?: string }
    }
    return { id, region: status?.region || spec?.region || "", tenant: metadata?.parentId ?? "" }
  }
}

/** Returns the projects that credentials name, separated by commas. */
function projectIds({ projects = "" }: CredentialFields): string[] {
  return projects.split(",").map((id) => id.trim())
}

/** Returns the client of these credentials. */
export type ClientOf = (credentials: CredentialFields) => Nebius

/** Returns clients by their credentials. Recently used ones are kept, with their tokens and projects. */
export function clientsOf(options: ClientOptions = {}): ClientOf {
  const clients = new ByCredentials<Nebius>(MOST_ACCOUNTS)
  return (credentials) => clients.get(credentials, () => new Nebius(credentials, options))
}
