import type { Request, RequestHandler } from "express"
import { rateLimit } from "express-rate-limit"
import type { Principal } from "../identity/principal.ts"
import { Problem } from "./problem.ts"

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
    windowMs: 60_000,
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
