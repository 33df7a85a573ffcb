import type { Clock } from "../core/apis/clock.ts"
import { TransientError } from "../core/outbound/errors.ts"

/** Waits for a promise, but no longer than the time limit. */
export type Race = <T>(work: Promise<T>) => Promise<T>

/**
 * Runs work with a time limit. At the limit its signal is aborted and `race` rejects, even if the awaited promise
 * ignores the signal.
 * @throws TransientError (TimedOut) at the limit
 */
export async function withTimeLimit<T>(
  clock: Clock,
  seconds: number,
  work: (signal: AbortSignal, race: Race) => Promise<T>,
): Promise<T> {
  const limit = new AbortController()
  const timedOut = new TransientError("TimedOut", `it gave no complete answer within ${seconds} seconds`)
  const over = Promise.withResolvers<never>()
  over.promise.catch(() => undefined)
  const cancel = clock.setTimer(seconds, () => {
    limit.abort(timedOut)
    over.reject(timedOut)
  })
  try {
    return await work(limit.signal, (waited) => Promise.race([waited, over.promise]))
  } catch (error) {
    // An error after the limit only reports the abort.
    throw limit.signal.aborted ? timedOut : error
  } finally {
    cancel()
    limit.abort(timedOut)
  }
}
