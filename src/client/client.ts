import createFetchClient, { type Client } from "openapi-fetch"
import { delay } from "./delay.ts"
import { ApiError, describeCause, NoApi, toApiError, Unreachable } from "./errors.ts"
import { type Attempt, retryDelay } from "./retry.ts"
import type { components, paths } from "./schema.d.ts"

export type Schemas = components["schemas"]
export type JobRecord = Schemas["JobRecord"]
export type JobSubmission = Schemas["JobSubmission"]
export type JobPlan = Schemas["JobPlan"]
export type ArrayPlan = Schemas["ArrayPlan"]
export type CronJobPlan = Schemas["CronJobPlan"]
export type JobStatus = JobRecord["status"]

/** Proof of who calls: an API key of a project, or the token of a person. */
export type Credential = { key: string } | { token: string }

/** Reason and length of a pause before a request is repeated. */
export interface RetryNote {
  /** Reason in one line, such as `the API answered 503`. */
  reason: string
  seconds: number
}

export interface ClientOptions {
  /** URL up to and including `/1`, such as `https://berth.example.com/projects/acme/1`. */
  baseUrl: string
  /**
   * Returns the present credential. Before each attempt it is asked again, so that tokens may be renewed.
   * @param rejected token that the API has rejected: a clock may be wrong, or the request took longer than the token lived
   */
  credential: (rejected?: string) => Promise<Credential | undefined>
  userAgent?: string
  /** Ends all requests. */
  signal?: AbortSignal
  onRetry?: (note: RetryNote) => void
  onRequest?: (request: Request) => void
}

/** Result of a call of `BerthClient.api`. */
interface Answer<Data> {
  data?: Data
  error?: unknown
  response: Response
}

/** Client of the REST API. Requests are retried as far as that is safe, and any other failure is an ApiError. */
export class BerthClient {
  /** Typed calls by method and path; `fetched` returns their data. */
  readonly api: Client<paths>
  readonly #options: ClientOptions

  constructor(options: ClientOptions) {
    this.#options = options
    this.api = createFetchClient<paths>({ baseUrl: options.baseUrl, fetch: (request) => this.send(request) })
  }

  get baseUrl(): string {
    return this.#options.baseUrl
  }

  /**
   * Sends a request with the credential, and repeats it after a temporary failure, and once after a 401 if the credential
   * can be renewed. Each POST gets an Idempotency-Key, so a repetition creates nothing twice. @throws ApiError, Unreachable
   */
  async send(request: Request): Promise<Response> {
    if (request.method === "POST" && !request.headers.has("idempotency-key"))
      request.headers.set("idempotency-key", randomKey())
    const begun = performance.now()
    for (let count = 1; ; count++) {
      const outcome = await this.#attempt(request)
      if (outcome instanceof Response && outcome.ok) return requireApiAnswer(outcome, this.baseUrl)
      const spentSeconds = (performance.now() - begun) / 1000
      const seconds = delayAfter(outcome, request, { count, spentSeconds })
      if (seconds === undefined)
        throw outcome instanceof Response ? await toApiError(outcome) : unreachable(request, outcome)
      if (outcome instanceof Response) await outcome.body?.cancel()
      const reason = outcome instanceof Response ? `the API answered ${outcome.status}` : describeCause(outcome)
      this.#options.onRetry?.({ reason, seconds })
      await delay(seconds * 1000, this.#signals(request).signal)
    }
  }

  /** Sends the request, and again if a rejected token can be renewed. Returns as #fetch does. */
  async #attempt(request: Request): Promise<unknown> {
    const { credential } = this.#options
    const proof = await credential()
    const outcome = await this.#fetch(request, proof)
    const token = tokenIn(proof)
    if (!(outcome instanceof Response) || outcome.status !== 401 || token === undefined) return outcome
    const renewed = await credential(token)
    if (tokenIn(renewed) === token) return outcome
    await outcome.body?.cancel()
    return await this.#fetch(request, renewed)
  }

  /** Returns the response, or the error without one. @throws if a signal has aborted */
  async #fetch(request: Request, proof: Credential | undefined): Promise<unknown> {
    const { userAgent } = this.#options
    const copy = request.clone()
    const token = tokenIn(proof)
    if (proof !== undefined && "key" in proof) copy.headers.set("x-service-api-key", proof.key)
    if (token !== undefined) copy.headers.set("authorization", `Bearer ${token}`)
    if (userAgent !== undefined) copy.headers.set("user-agent", userAgent)
    const { signal } = this.#signals(request)
    this.#options.onRequest?.(copy)
    try {
      // A redirect could carry the credential to another host.
      return await fetch(copy, { signal, redirect: "error" })
    } catch (error) {
      signal.throwIfAborted()
      return error
    }
  }

  #signals(request: Request): { signal: AbortSignal } {
    const { signal } = this.#options
    return { signal: signal === undefined ? request.signal : AbortSignal.any([signal, request.signal]) }
  }
}

function tokenIn(proof: Credential | undefined): string | undefined {
  return proof !== undefined && "token" in proof ? proof.token : undefined
}

/** Returns a key for one creation. `crypto.randomUUID` is missing in browsers on pages without HTTPS. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")
}

/** Returns the delay before a request is repeated, seconds; undefined if its failure is final. */
function delayAfter(
  outcome: unknown,
  { method, headers }: Request,
  spent: Pick<Attempt, "count" | "spentSeconds">,
): number | undefined {
  const response = outcome instanceof Response ? outcome : undefined
  const attempt = {
    method,
    hasKey: headers.has("idempotency-key"),
    status: response?.status,
    retryAfter: response?.headers.get("retry-after") ?? null,
    ...spent,
  }
  return retryDelay(attempt, new Date(), Math.random())
}

/** Returns the response. @throws NoApi for a page: no operation answers with one */
function requireApiAnswer(response: Response, baseUrl: string): Response {
  if (!response.headers.get("content-type")?.startsWith("text/html")) return response
  throw new NoApi(`${baseUrl} answered with a page for browsers, and is no API of Berth`)
}

function unreachable(request: Request, error: unknown): Unreachable {
  return new Unreachable(`${new URL(request.url).origin} can't be reached: ${describeCause(error)}`, { cause: error })
}

/** Returns the body of a successful call. The client has thrown for any other. */
export async function readBody<Data>(call: Promise<Answer<Data>>): Promise<Data> {
  const { data, response } = await call
  if (data === undefined) throw new ApiError(response, {})
  return data
}

/** Page of a list. */
interface Page {
  total: number
  offset: number
}

/** Largest page that every list of the API returns. */
const PAGE_SIZE = 100

/**
 * Returns the items of all pages, one by one.
 * @param read reads the page that begins at an offset
 * @param itemsOf returns the items of a page
 */
export async function* everyItem<P extends Page, Item>(
  read: (page: { offset: number; limit: number }) => Promise<P>,
  itemsOf: (page: P) => readonly Item[],
  limit = Number.POSITIVE_INFINITY,
): AsyncGenerator<Item, void, void> {
  for (let offset = 0; offset < limit; ) {
    const page = await read({ offset, limit: Math.min(PAGE_SIZE, limit - offset) })
    const items = itemsOf(page)
    yield* items
    offset += items.length
    if (items.length === 0 || offset >= page.total) return
  }
}

/** Returns the items of all pages. @see everyItem */
export async function allItems<P extends Page, Item>(...of: Parameters<typeof everyItem<P, Item>>): Promise<Item[]> {
  const items: Item[] = []
  for await (const item of everyItem(...of)) items.push(item)
  return items
}
