import { setTimeout as sleep } from "node:timers/promises"
import type { KubeConfig } from "@kubernetes/client-node"
import type { Dispatcher } from "undici"
import { Connections } from "./connections.ts"
import { CredentialSource, type Credentials } from "./credentials.ts"
import { Deadline } from "./deadline.ts"
import { CLIENT_REASONS, errorFromAnswer, isTooManyRequests, isUnavailable, KubeError } from "./errors.ts"
import { type FlowKind, nextTurn, presentFlow } from "./flow.ts"
import { Limiter, type Permit } from "./limiter.ts"

export interface TransportOptions {
  /** Maximum number of concurrent requests without watches. Berth keeps as many connections open. Default 32. */
  maxConcurrent?: number
  /** User-Agent of requests, which audit logs show. */
  userAgent?: string
}

/** User that the API server must treat as the caller (needs the RBAC verb `impersonate`). */
export interface Impersonation {
  user: string
  groups?: string[]
  uid?: string
  extra?: Record<string, string[]>
}

export interface CallOptions {
  /** Ends the call, which rejects with the signal's reason. */
  signal?: AbortSignal | undefined
  /** Timeout of the whole call: the wait for a connection, retries and reading the answer. Default 30. */
  timeoutSeconds?: number | undefined
  /** Impersonates another user for this call. */
  as?: Impersonation | undefined
}

export interface KubeRequest extends CallOptions {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE"
  path: string
  /** Query parameters. Undefined ones are omitted. */
  query?: Record<string, string | number | boolean | undefined> | undefined
  /** Body, sent as JSON. */
  body?: unknown
  contentType?: string
  /** Media type to accept. Default JSON; a server may offer other forms, such as metadata only. */
  accept?: string
}

/** One exchange with the API server. A call with retries has several. */
export interface Exchange {
  method: KubeRequest["method"]
  /** HTTP status; undefined if no answer came. */
  code: number | undefined
  /** Seconds until the answer began. */
  seconds: number
}

const DEFAULT_TIMEOUT_SECONDS = 30
const MAX_ATTEMPTS = 5

/** Time that a call waited until it could be sent, because of the calls that were sent already. */
export interface Wait {
  kind: FlowKind
  seconds: number
}

/** Timeouts of undici in milliseconds; 0 is none. */
type Timeouts = { headersTimeout: number; bodyTimeout: number }
/** Requests other than watches have only the deadline. */
const NO_TIMEOUTS: Timeouts = { headersTimeout: 0, bodyTimeout: 0 }

/**
 * Sends requests over pooled connections, with current credentials, limited concurrency and a timeout for everything. The
 * callers of `runIn` share the concurrency fairly. It retries only where a second execution can do no harm.
 */
export class Transport {
  readonly #credentials: CredentialSource
  readonly #limiter: Limiter
  readonly #userAgent: string
  readonly #origin: string
  readonly #pathPrefix: string
  readonly #connections: Connections
  readonly #listeners = new Set<(exchange: Exchange) => void>()
  readonly #waitListeners = new Set<(wait: Wait) => void>()

  constructor(kubeConfig: KubeConfig, options: TransportOptions = {}) {
    const server = kubeConfig.getCurrentCluster()?.server
    if (!server) throw new Error("the kubeconfig names no cluster: set its current-context")
    const url = new URL(server)
    this.#origin = url.origin
    this.#pathPrefix = url.pathname.replace(/\/+$/, "")
    this.#credentials = new CredentialSource(kubeConfig)
    const maxConcurrent = options.maxConcurrent ?? 32
    this.#limiter = new Limiter(maxConcurrent)
    this.#connections = new Connections(kubeConfig, maxConcurrent)
    this.#userAgent = options.userAgent ?? "berth"
  }

  /** Resolves with the parsed JSON of a successful answer (text, if the server sends text). @throws KubeError */
  async send(request: KubeRequest): Promise<unknown> {
    const deadline = new Deadline(request, request.timeoutSeconds ?? DEFAULT_TIMEOUT_SECONDS)
    if (request.method === "GET") presentFlow().reads++
    try {
      const granted = this.#permit(deadline.signal)
      const permit = granted instanceof Promise ? await granted : granted
      try {
        return await this.#sendWithRetries(request, deadline)
      } finally {
        this.#limiter.release(permit)
        await nextTurn()
      }
    } catch (error) {
      throw deadline.explain(error)
    } finally {
      deadline.clear()
    }
  }

  /**
   * Yields the body of a successful answer as it arrives, for watches. Fails after `idleTimeoutSeconds` without data, and
   * after `request.timeoutSeconds` in total. No retries. @throws KubeError
   */
  async *stream(request: KubeRequest, idleTimeoutSeconds: number): AsyncGenerator<Uint8Array, void, void> {
    const deadline = new Deadline(request, request.timeoutSeconds ?? DEFAULT_TIMEOUT_SECONDS)
    let body: Dispatcher.ResponseData["body"] | undefined
    try {
      const answer = await this.#dispatch(request, deadline, {
        headersTimeout: DEFAULT_TIMEOUT_SECONDS * 1000,
        bodyTimeout: idleTimeoutSeconds * 1000,
      })
      body = answer.body
      if (answer.statusCode >= 300) throw await failure(request, answer)
      for await (const chunk of body) yield chunk as Uint8Array
    } catch (error) {
      throw deadline.explain(asKubeError(request, error))
    } finally {
      // Destroying an unfinished body closes its connection, which can't be used again.
      body?.on("error", () => undefined).destroy()
      deadline.clear()
    }
  }

  /** Calls the listener after each exchange. The returned function removes it. */
  onExchange(listener: (exchange: Exchange) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Calls the listener after each wait for a permit. The returned function removes it. */
  onWait(listener: (wait: Wait) => void): () => void {
    this.#waitListeners.add(listener)
    return () => this.#waitListeners.delete(listener)
  }

  /** Number of calls of a kind that wait for a permit. */
  waiting(kind: FlowKind): number {
    return this.#limiter.waiting(kind)
  }

  /** Waits for the running requests, then closes all connections. Watches must have been aborted. */
  async close(): Promise<void> {
    await this.#connections.close()
  }

  #permit(signal: AbortSignal): Permit | Promise<Permit> {
    const flow = presentFlow()
    const permit = this.#limiter.acquire(flow, signal)
    if (!(permit instanceof Promise)) return permit
    const began = performance.now()
    return permit.finally(() => {
      const wait = { kind: flow.kind, seconds: (performance.now() - began) / 1000 }
      for (const listener of this.#waitListeners) listener(wait)
    })
  }

  async #sendWithRetries(request: KubeRequest, deadline: Deadline): Promise<unknown> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#sendOnce(request, deadline)
      } catch (error) {
        const failed = asKubeError(request, error)
        if (!(failed instanceof KubeError)) throw failed
        const delay = retryDelaySeconds(failed, request.method, attempt)
        if (delay === undefined || delay >= deadline.secondsLeft()) throw failed
        if (failed.code === 401) this.#credentials.invalidate()
        // The permit is kept during the delay, so that a server that sheds load gets fewer requests.
        await sleep(delay * 1000, undefined, { signal: deadline.signal })
      }
    }
  }

  async #sendOnce(request: KubeRequest, deadline: Deadline): Promise<unknown> {
    const answer = await this.#dispatch(request, deadline, NO_TIMEOUTS)
    if (answer.statusCode >= 300) throw await failure(request, answer)
    const text = await answer.body.text()
    if (!String(answer.headers["content-type"]).startsWith("application/json")) return text
    return JSON.parse(text) as unknown
  }

  async #dispatch(request: KubeRequest, deadline: Deadline, timeouts: Timeouts): Promise<Dispatcher.ResponseData> {
    deadline.signal.throwIfAborted()
    let credentials = this.#credentials.get()
    if (credentials instanceof Promise) credentials = await credentials
    const connections = this.#connections.get(credentials)
    const dispatcher = timeouts === NO_TIMEOUTS ? connections.requests : connections.streams
    const startedAt = performance.now()
    let code: number | undefined
    try {
      const answer = await dispatcher.request({
        origin: this.#origin,
        path: this.#pathPrefix + request.path + queryString(request.query),
        method: request.method,
        headers: this.#headers(request, credentials),
        body: request.body === undefined ? null : JSON.stringify(request.body),
        signal: deadline.signal,
        ...timeouts,
      })
      code = answer.statusCode
      return answer
    } finally {
      const exchange = { method: request.method, code, seconds: (performance.now() - startedAt) / 1000 }
      for (const listener of this.#listeners) listener(exchange)
    }
  }

  #headers(request: KubeRequest, credentials: Credentials): string[] {
    const headers = [
      "accept",
      request.accept ?? "application/json",
      "user-agent",
      this.#userAgent,
      ...credentials.headers,
    ]
    if (request.body !== undefined) headers.push("content-type", request.contentType ?? "application/json")
    if (request.as !== undefined) headers.push(...impersonationHeaders(request.as))
    return headers
  }
}

/**
 * Returns the delay before the same request may be sent again, in seconds; undefined: never. `random` is in [0, 1). A
 * rejection before execution (401 once, 429) may be retried for every method. 503 may be retried if a second execution
 * changes nothing, so never for a POST. Lost connections may be retried only for reads: the replay of a successful PUT
 * or DELETE would look like a failure.
 */
export function retryDelaySeconds(
  error: KubeError,
  method: KubeRequest["method"],
  attempt: number,
  random: () => number = Math.random,
): number | undefined {
  if (attempt >= MAX_ATTEMPTS) return undefined
  if (error.code === 401) return attempt === 1 ? 0 : undefined
  const repeatable = isTooManyRequests(error) || (isUnavailable(error) && mayRepeat(error, method))
  if (!repeatable) return undefined
  const backoff = 0.1 * 2 ** (attempt - 1)
  // Jitter is only added, because Retry-After is a lower bound.
  const wait = Math.max(error.retryAfterSeconds ?? 0, backoff)
  return wait * (1 + random() * 0.5)
}

function mayRepeat(error: KubeError, method: KubeRequest["method"]): boolean {
  if (error.reason === CLIENT_REASONS.timeout) return false
  if (method === "GET") return true
  return error.code === 503 && method !== "POST"
}

async function failure(request: KubeRequest, answer: Dispatcher.ResponseData): Promise<KubeError> {
  const text = await answer.body.text()
  const retryAfter = answer.headers["retry-after"]
  return errorFromAnswer({
    method: request.method,
    path: request.path,
    code: answer.statusCode,
    body: parsedOrUndefined(text),
    retryAfter: Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
  })
}

function parsedOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // A load balancer's page or a plain text: the status code is enough.
    return undefined
  }
}

/** Errors before anything was sent. So the outcome of a write is known: it had no effect. */
const NEVER_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]

/** Converts errors of the connection to KubeError. Other errors (an exec plugin's, a defect of ours) stay the same. */
function asKubeError(request: KubeRequest, error: unknown): unknown {
  if (error instanceof KubeError) return error
  const outcomeUnknown = request.method !== "GET"
  const call = `${request.method} ${request.path}`
  if (error instanceof SyntaxError) {
    const message = `${call}: the answer is not complete JSON`
    return new KubeError({ code: 0, reason: CLIENT_REASONS.invalidResponse, message, outcomeUnknown })
  }
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return error
  return new KubeError({
    code: 0,
    reason: CLIENT_REASONS.network,
    message: `${call}: ${error.message || error.code}`,
    outcomeUnknown: outcomeUnknown && !NEVER_SENT.includes(error.code),
    cause: error,
  })
}

function queryString(query: KubeRequest["query"]): string {
  if (query === undefined) return ""
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined) parameters.set(name, String(value))
  return parameters.size === 0 ? "" : `?${parameters}`
}

/** Returns the headers of an impersonated call. Source: kubernetes.io, "Authenticating", user impersonation. */
function impersonationHeaders(as: Impersonation): string[] {
  const headers = ["impersonate-user", as.user]
  for (const group of as.groups ?? []) headers.push("impersonate-group", group)
  if (as.uid !== undefined) headers.push("impersonate-uid", as.uid)
  for (const [key, values] of Object.entries(as.extra ?? {})) {
    for (const value of values) headers.push(`impersonate-extra-${encodeURIComponent(key.toLowerCase())}`, value)
  }
  return headers
}
