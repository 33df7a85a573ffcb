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
      const detail = `More than ${requestsPerMinute} requests in a minute: wait for the seconds in Retry-After.`
      next(new Problem({ type: "rate-limited", status: 429, detail }))
    },
  })
}

export interface MinuteLimitOptions {
  /** Names the quota in the RateLimit headers. */
  name: string
  /** 0: no limit. */
  perMinute: number
  /** What there were too many of, the subject of the refusal's first sentence. */
  subject: string
}

/** Counts by key and minute, in this process. */
export class MinuteLimit {
  readonly #options: MinuteLimitOptions
  readonly #store = new MemoryStore()

  constructor(options: MinuteLimitOptions) {
    this.#options = options
    // All that the store reads of its limiter's options.
    this.#store.init({ windowMs: MINUTE_MS } as Options)
  }

  /** Counts one. Returns the 429 to answer with when the key is beyond the limit. */
  async count(key: string): Promise<Problem | undefined> {
    const { perMinute } = this.#options
    if (perMinute === 0) return undefined
    const { totalHits, resetTime } = await this.#store.increment(key)
    return totalHits <= perMinute ? undefined : this.#tooMany(resetTime)
  }

  /** Returns true when the next one of this key would be beyond the limit. */
  async isReached(key: string): Promise<boolean> {
    const { perMinute } = this.#options
    if (perMinute === 0) return false
    const seen = await this.#store.get(key)
    return seen !== undefined && seen.totalHits >= perMinute
  }

  #tooMany(resetTime: Date | undefined): Problem {
    const { name, perMinute, subject } = this.#options
    const seconds = Math.ceil(((resetTime?.getTime() ?? Date.now() + MINUTE_MS) - Date.now()) / 1000)
    const wait = String(Math.max(1, seconds))
    // As the limiter of requests announces itself (IETF draft 8).
    const headers = {
      "Retry-After": wait,
      RateLimit: `"${name}"; r=0; t=${wait}`,
      "RateLimit-Policy": `"${name}"; q=${perMinute}; w=${MINUTE_MS / 1000}`,
    }
    const detail = `${subject}: more than ${perMinute} in a minute. Wait for the seconds in Retry-After.`
    return new Problem({ type: "rate-limited", status: 429, detail, headers })
  }
}

export interface FailureLimitOptions {
  /** Most of one address (of an IPv6 network); 0: any number. */
  perMinute: number
  /** HTTP statuses of the errors that count. */
  statuses: readonly number[]
  /** What they are, as a plural noun. */
  failures: string
}

/**
 * Counts failures by client address, in this process. An address with too many failures gets 429 for each further
 * failure. What does not fail is taken all the same, because an address may be that of many clients: behind a proxy
 * that is not trusted (setting `trustProxy`) it is everyone's, and all VMs of a network may have one.
 */
export class FailureLimit {
  readonly #statuses: readonly number[]
  readonly #limit: MinuteLimit

  constructor({ perMinute, statuses, failures }: FailureLimitOptions) {
    this.#statuses = statuses
    this.#limit = new MinuteLimit({ name: "failures", perMinute, subject: `Too many ${failures} from this address` })
  }

  /** Whether the request's address has failed too often. */
  readonly areTooMany = (req: Request): Promise<boolean> => this.#limit.isReached(addressOf(req))

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

  /** Counts a failure. Returns what it is answered: its error, or the limit's 429. */
  async answerTo(error: unknown, req: Request): Promise<unknown> {
    if (!this.#statuses.includes(problemOf(error).status)) return error
    return (await this.#limit.count(addressOf(req))) ?? error
  }
}

/** The client's address; of an IPv6 address its network, as one client has them all. */
function addressOf(req: Request): string {
  return ipKeyGenerator(req.ip ?? "")
}
