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

/** Names the quota of failures in the RateLimit headers. */
const POLICY = "failures"

export interface FailureLimitOptions {
  /** Most of one address (of an IPv6 network); 0: any number. */
  perMinute: number
  /** HTTP statuses of the errors that count. */
  statuses: readonly number[]
  /** What they are, in words that go with "too many". */
  failures: string
}

/**
 * Counts failures by client address, in this process. Who has failed too often gets 429 for each further failure; what
 * does not fail is taken all the same, because an address may be that of many: behind a proxy that is not trusted
 * (setting `trustProxy`) it is everybody's, and all VMs of a network may have one.
 */
export class FailureLimit {
  readonly #options: FailureLimitOptions
  readonly #store = new MemoryStore()

  constructor(options: FailureLimitOptions) {
    this.#options = options
    // All that the store reads of its limiter's options.
    this.#store.init({ windowMs: MINUTE_MS } as Options)
  }

  /** Whether the request's address has failed too often. */
  readonly areTooMany = async (req: Request): Promise<boolean> => {
    return (await this.#refusalOf(req)) !== undefined
  }

  /** Lets nobody through whose address has failed too often: for what costs something before it can be judged. */
  async refuseSuspect(req: Request): Promise<void> {
    const refusal = await this.#refusalOf(req)
    if (refusal !== undefined) throw refusal
  }

  /** A handler whose failures count. */
  counting(handler: RequestHandler): RequestHandler {
    return async (req, res, next) => {
      try {
        await handler(req, res, next)
      } catch (error) {
        throw await this.answerTo(error, req)
      }
    }
  }

  /** What a request that failed is answered: its error, or, beyond the limit, that there were too many. */
  async answerTo(error: unknown, req: Request): Promise<unknown> {
    const { perMinute, statuses } = this.#options
    if (perMinute === 0 || !statuses.includes(problemOf(error).status)) return error
    const { totalHits, resetTime } = await this.#store.increment(addressOf(req))
    return totalHits <= perMinute ? error : this.#tooMany(resetTime)
  }

  async #refusalOf(req: Request): Promise<Problem | undefined> {
    const { perMinute } = this.#options
    if (perMinute === 0) return undefined
    const seen = await this.#store.get(addressOf(req))
    return seen === undefined || seen.totalHits < perMinute ? undefined : this.#tooMany(seen.resetTime)
  }

  #tooMany(resetTime: Date | undefined): Problem {
    const { perMinute, failures } = this.#options
    const seconds = Math.ceil(((resetTime?.getTime() ?? Date.now() + MINUTE_MS) - Date.now()) / 1000)
    const detail = `Too many ${failures} came from this address: wait as long as Retry-After says.`
    const wait = String(Math.max(1, seconds))
    // As the limiter of requests announces itself (IETF draft 8).
    const headers = {
      "Retry-After": wait,
      RateLimit: `"${POLICY}"; r=0; t=${wait}`,
      "RateLimit-Policy": `"${POLICY}"; q=${perMinute}; w=${MINUTE_MS / 1000}`,
    }
    return new Problem({ type: "rate-limited", status: 429, detail, headers })
  }
}

/** The client's address; of an IPv6 address its network, as one client has them all. */
function addressOf(req: Request): string {
  return ipKeyGenerator(req.ip ?? "")
}
