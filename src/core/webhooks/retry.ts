import { secondsBetween } from "../apis/clock.ts"

/** Times of the retries, seconds. */
export interface RetrySettings {
  /** Delay after the first failure. */
  firstSeconds: number
  /** Factor of each further delay. */
  factor: number
  longestSeconds: number
  /** Part of a delay by which it differs at random. */
  jitter: number
  /** Time after the first attempt at which Berth gives up. */
  giveUpSeconds: number
}

export const RETRY_DEFAULTS: RetrySettings = {
  firstSeconds: 5,
  factor: 3,
  longestSeconds: 24 * 3600,
  jitter: 0.2,
  giveUpSeconds: 3 * 24 * 3600,
}

/**
 * Returns the time until a stored next attempt, seconds. A wrong clock may have written its time, so it is never longer
 * than the longest delay after this number of attempts.
 */
export function retryDelay(
  { attempts, nextAttemptTime }: { attempts: number; nextAttemptTime?: string },
  now: Date,
  settings: RetrySettings = RETRY_DEFAULTS,
): number {
  if (nextAttemptTime === undefined) return 0
  const longest = delayAfter(attempts, settings) * (1 + settings.jitter)
  return Math.min(Math.max(0, secondsBetween(now, nextAttemptTime)), longest)
}

function delayAfter(attempts: number, { firstSeconds, factor, longestSeconds }: RetrySettings): number {
  return Math.min(firstSeconds * factor ** (attempts - 1), longestSeconds)
}

/**
 * Returns the delay before the next attempt; undefined if Berth gives up.
 * @param attempts failed attempts, at least one
 * @param random number in [0, 1)
 */
export function retryAfter(
  { attempts, firstAttemptTime }: { attempts: number; firstAttemptTime: string },
  now: Date,
  { settings = RETRY_DEFAULTS, random }: { settings?: RetrySettings; random: number },
): number | undefined {
  if (secondsBetween(firstAttemptTime, now) >= settings.giveUpSeconds) return undefined
  return delayAfter(attempts, settings) * (1 + settings.jitter * (2 * random - 1))
}
