import type { Request, RequestHandler } from "express"
import { ipKeyGenerator, MemoryStore, type Options, rateLimit } from "express-rate-limit"
import type { Principal } from "../identity/principal.ts"
import { Problem, problemOf } from "./problem.ts"

const MINUTE_MS = 60_000

export interface RateLimitOptions {
  /** Names the quota in the RateLimit headers. */
  name: string
  /** 0: no limit. */
  requestsPerMinute: number
  principalOf: (req: Request) => Pick<Principal, "id">
}

/**
 * Limits requests per principal and minute, in this process (several replicas each count on their own). Announces
 * itself in the headers RateLimit and RateLimit-Policy (IETF draft 8) of every answer.
 */
export function principalRateLimit({ name, requestsPerMinute, principalOf }: RateLimitOptions): RequestHandler {
  if (requestsPerMinute === 0) return (_req, _res, next) => next()
  return rateLimit({
    windowMs: MINUTE_MS,
    limit: requestsPerMinute,
    identifier: name,
    standardHeaders: "draft-8",
    legacyHeaders: false,
    keyGenerator: (req) => principalOf(req).id,
    handler: (_req, _res, next) => {
      const detail = `More than ${requestsPerMinute} requests in a minute: wait as long as Retry-After says.`
      next(new Problem({ type: "rate-limited", status: 429, detail }))
    },
  })
}

/** Names the quota of failed authentications in the RateLimit headers. */
const POLICY = "failures"

/**
 * Counts failed authentications by client address, in this process. Who has failed too often gets 429 for each further
 * failure, and costs the API server nothing more; good credentials are admitted all the same, because an address may be
 * that of many: behind a proxy that is not trusted (setting `trustProxy`) it is everybody's.
 */
export class FailedAuthentications {
  readonly #perMinute: number
  readonly #store = new MemoryStore()

  /** @param perMinute most of one address (of an IPv6 network); 0: any number */
  constructor(perMinute: number) {
    this.#perMinute = perMinute
    // All that the store reads of its limiter's options.
    this.#store.init({ windowMs: MINUTE_MS } as Options)
  }

  /** Whether the request's address has failed too often. */
  readonly areTooMany = async (req: Request): Promise<boolean> => {
    if (this.#perMinute === 0) return false
    const seen = await this.#store.get(addressOf(req))
    return seen !== undefined && seen.totalHits >= this.#perMinute
  }

  /** Authentication whose failures count. */
  counting(authenticate: RequestHandler): RequestHandler {
    return async (req, res, next) => {
      try {
        await authenticate(req, res, next)
      } catch (error) {
        throw problemOf(error).status === 401 ? ((await this.#count(req)) ?? error) : error
      }
    }
  }

  /** What a failure beyond the limit is answered. */
  async #count(req: Request): Promise<Problem | undefined> {
    if (this.#perMinute === 0) return undefined
    const { totalHits, resetTime } = await this.#store.increment(addressOf(req))
    if (totalHits <= this.#perMinute) return undefined
    const seconds = Math.ceil(((resetTime?.getTime() ?? Date.now() + MINUTE_MS) - Date.now()) / 1000)
    const detail =
      "Too many requests without good credentials came from this address: wait as long as Retry-After says."
    const wait = String(Math.max(1, seconds))
    // As the limiter of requests announces itself (IETF draft 8).
    const headers = {
      "Retry-After": wait,
      RateLimit: `"${POLICY}"; r=0; t=${wait}`,
      "RateLimit-Policy": `"${POLICY}"; q=${this.#perMinute}; w=${MINUTE_MS / 1000}`,
    }
    return new Problem({ type: "rate-limited", status: 429, detail, headers })
  }
}

/** The client's address; of an IPv6 address its network, as one client has them all. */
function addressOf(req: Request): string {
  return ipKeyGenerator(req.ip ?? "")
}
