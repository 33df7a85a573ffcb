/** Facts about a request that failed, or was rejected. */
export interface Attempt {
  method: string
  /** True if the request carries an Idempotency-Key. */
  hasKey: boolean
  /** Status of the response; undefined if there was none. */
  status: number | undefined
  retryAfter: string | null
  /** Attempts so far, this one included. */
  count: number
  /** Time since the first attempt, seconds. */
  spentSeconds: number
}

/** Longest time that one request is retried for, seconds. */
export const PATIENCE_SECONDS = 120
/** Most attempts after responses without a Retry-After, and without any response. A person waits for the latter. */
const MOST_ATTEMPTS = { answered: 6, unanswered: 4 }
const LONGEST_BACKOFF_SECONDS = 8

/** Statuses that a later attempt may change. 502 and 504 are those of proxies. */
const TEMPORARY = [429, 502, 503, 504]

/**
 * Returns the delay before the next attempt, seconds; undefined if the failure is final. A delay is never shorter than
 * the response's Retry-After. A POST without an Idempotency-Key is never repeated, since it could happen twice.
 * @param random a number from 0 to 1, for the jitter
 */
export function retryDelay(attempt: Attempt, now: Date, random: number): number | undefined {
  const { method, hasKey, status, count, spentSeconds } = attempt
  if (method === "POST" && !hasKey) return undefined
  if (status !== undefined && !TEMPORARY.includes(status)) return undefined
  const wanted = retryAfterSeconds(attempt.retryAfter, now)
  const most = status === undefined ? MOST_ATTEMPTS.unanswered : MOST_ATTEMPTS.answered
  if (wanted === undefined && count >= most) return undefined
  const backoff = Math.min(LONGEST_BACKOFF_SECONDS, 0.5 * 2 ** (count - 1)) * (0.5 + random / 2)
  const delay = Math.max(wanted ?? 0, backoff)
  return spentSeconds + delay > PATIENCE_SECONDS ? undefined : delay
}

/** Returns the seconds of a Retry-After header, which is a number or a date; undefined without a valid one. */
export function retryAfterSeconds(header: string | null, now: Date): number | undefined {
  if (header === null) return undefined
  if (/^\d+$/.test(header.trim())) return Number(header)
  const time = Date.parse(header)
  return Number.isNaN(time) ? undefined : Math.max(0, (time - now.getTime()) / 1000)
}
