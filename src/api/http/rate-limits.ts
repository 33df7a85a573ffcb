import type { Request, RequestHandler, Response } from "express"
import { ipKeyGenerator, MemoryStore, type Options, rateLimit } from "express-rate-limit"
import type { Principal } from "../../core/identity/principal.ts"
import { Problem, toProblem } from "./problem.ts"

const MINUTE_MS = 60_000

export interface RateLimitOptions {
  /** Name of the quota in the RateLimit headers. */
  name: string
  /** Largest number of requests. 0: no limit. */
  requestsPerMinute: number
  principalOf: (req: Request) => Pick<Principal, "id">
}

/** Bytes of a body that count as much as one more request. */
const BYTES_PER_REQUEST = 16 * 1024

/**
 * Limits requests per principal and minute. Each replica counts on its own. Every response shows the limit in the
 * headers RateLimit and RateLimit-Policy (IETF draft 8).
 */
export class PrincipalLimit {
  /** Counts a request. */
  readonly countRequest: RequestHandler
  readonly #options: RateLimitOptions
  readonly #store = new MemoryStore()

  constructor(options: RateLimitOptions) {
    this.#options = options
    const { name, requestsPerMinute, principalOf } = options
    if (requestsPerMinute === 0) {
      this.countRequest = (_req, _res, next) => next()
      return
    }
    this.countRequest = rateLimit({
      windowMs: MINUTE_MS,
      limit: requestsPerMinute,
      identifier: name,
      standardHeaders: "draft-8",
      legacyHeaders: false,
      store: this.#store,
      keyGenerator: (req) => principalOf(req).id,
      handler: (_req, _res, next) => {
        const detail = `More than ${requestsPerMinute} requests in a minute: wait for the seconds in Retry-After.`
        next(new Problem({ type: "rate-limited", status: 429, detail }))
      },
    })
  }

  /** Counts a body as one request for each 16 KiB, because its check takes time. @throws Problem 429 */
  readonly countBody = (req: Request, bytes: number): Promise<void> =>
    this.countMore(
      req,
      Math.floor(bytes / BYTES_PER_REQUEST),
      `each ${BYTES_PER_REQUEST} bytes of a body count as one more`,
    )

  /**
   * Counts a request as `more` further ones, because of its work.
   * @param rule such as `each 10 names count as one more`
   * @throws Problem 429
   */
  readonly countMore = async (req: Request, more: number, rule: string): Promise<void> => {
    const { name, requestsPerMinute, principalOf } = this.#options
    if (requestsPerMinute === 0) return
    const { id } = principalOf(req)
    for (let counted = 0; counted < more; counted++) {
      const { totalHits, resetTime } = await this.#store.increment(id)
      if (totalHits <= requestsPerMinute) continue
      const detail = `More than ${requestsPerMinute} requests in a minute; ${rule}. Wait for the seconds in Retry-After.`
      throw tooMany({ name, perMinute: requestsPerMinute, resetTime }, detail)
    }
  }
}

/** Returns the problem 429 with the same headers as express-rate-limit (IETF draft 8). */
function tooMany(
  { name, perMinute, resetTime }: { name: string; perMinute: number; resetTime: Date | undefined },
  detail: string,
): Problem {
  const seconds = Math.ceil(((resetTime?.getTime() ?? Date.now() + MINUTE_MS) - Date.now()) / 1000)
  const wait = String(Math.max(1, seconds))
  const headers = {
    "Retry-After": wait,
    RateLimit: `"${name}"; r=0; t=${wait}`,
    "RateLimit-Policy": `"${name}"; q=${perMinute}; w=${MINUTE_MS / 1000}`,
  }
  return new Problem({ type: "rate-limited", status: 429, detail, headers })
}

/** Words of a 429. */
interface Refusal {
  detail: string
  retryAfterSeconds: number
}

/** Counts what each principal has open at the same time. */
export class ConcurrencyLimit {
  readonly #most: number
  readonly #open = new Map<string, number>()

  constructor(most: number) {
    this.#most = most
  }

  /** Counts one more until the response is closed. @throws Problem 429 over the limit */
  hold(id: string, res: Response, { detail, retryAfterSeconds }: Refusal): void {
    if (res.closed) return
    const open = this.#open.get(id) ?? 0
    if (open >= this.#most) {
      throw new Problem({
        type: "rate-limited",
        status: 429,
        detail,
        headers: { "Retry-After": String(retryAfterSeconds) },
      })
    }
    this.#open.set(id, open + 1)
    res.once("close", () => this.#release(id))
  }

  #release(id: string): void {
    const open = (this.#open.get(id) ?? 0) - 1
    if (open > 0) this.#open.set(id, open)
    else this.#open.delete(id)
  }
}

export interface MinuteLimitOptions {
  /** Name of the quota in the RateLimit headers. */
  name: string
  /** Largest count of a key. 0: no limit. */
  perMinute: number
  /** Subject of the message of the 429, such as "Too many failures from this address". */
  subject: string
}

/** Counts by key and minute, in this process. */
export class MinuteLimit {
  readonly #options: MinuteLimitOptions
  readonly #store = new MemoryStore()

  constructor(options: MinuteLimitOptions) {
    this.#options = options
    // The store reads only windowMs of its limiter's options.
    this.#store.init({ windowMs: MINUTE_MS } as Options)
  }

  /** Adds one to the count of a key. Returns the problem 429 if the count is over the limit. */
  async count(key: string): Promise<Problem | undefined> {
    const { name, perMinute, subject } = this.#options
    if (perMinute === 0) return undefined
    const { totalHits, resetTime } = await this.#store.increment(key)
    if (totalHits <= perMinute) return undefined
    const detail = `${subject}: more than ${perMinute} in a minute. Wait for the seconds in Retry-After.`
    return tooMany({ name, perMinute, resetTime }, detail)
  }

  /** Returns true if the next count of this key would be over the limit. */
  async isReached(key: string): Promise<boolean> {
    const { perMinute } = this.#options
    if (perMinute === 0) return false
    const seen = await this.#store.get(key)
    return seen !== undefined && seen.totalHits >= perMinute
  }
}

export interface FailureLimitOptions {
  /** Largest number of failures of one address, or of one IPv6 network. 0: no limit. */
  perMinute: number
  /** HTTP statuses of the errors that count. */
  statuses: readonly number[]
  /** Name of the failures, a plural noun. */
  failures: string
}

/**
 * Counts failures by client address, in this process. An address with too many failures gets 429 for each further
 * failure. Its valid requests still succeed, because many clients may share an address. Examples are the clients of an
 * untrusted proxy (setting `trustProxy`) and all VMs of a network.
 */
export class FailureLimit {
  readonly #statuses: readonly number[]
  readonly #limit: MinuteLimit

  constructor({ perMinute, statuses, failures }: FailureLimitOptions) {
    this.#statuses = statuses
    this.#limit = new MinuteLimit({ name: "failures", perMinute, subject: `Too many ${failures} from this address` })
  }

  /** Returns true if the request's address has too many failures. */
  readonly areTooMany = (req: Request): Promise<boolean> => this.#limit.isReached(clientAddress(req))

  /** Wraps a handler to count its failures. */
  counting(handler: RequestHandler): RequestHandler {
    return async (req, res, next) => {
      try {
        await handler(req, res, next)
      } catch (error) {
        throw await this.answerTo(error, req)
      }
    }
  }

  /** Counts a failure. Returns the error to send: the failure's own, or the limit's 429. */
  async answerTo(error: unknown, req: Request): Promise<unknown> {
    if (!this.#statuses.includes(toProblem(error).status)) return error
    return (await this.#limit.count(clientAddress(req))) ?? error
  }
}

/** Returns the client's address, or the network of an IPv6 address, because one client has all of its addresses. */
export function clientAddress(req: Request): string {
  return ipKeyGenerator(req.ip ?? "")
}
