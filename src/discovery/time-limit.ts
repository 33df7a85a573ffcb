import type { Clock } from "../apis/clock.ts"
import { TransientError } from "../cloud/errors.ts"

/** Waits for something, but no longer than the time limit. */
export type Race = <T>(work: Promise<T>) => Promise<T>

/**
 * Does something that may take so many seconds. Its signal is aborted then, and `race` rejects then, whether what it waits
 * for takes notice of the signal or not.
 * @throws TransientError (TimedOut) when the time is over
 */
export async function within<T>(
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
    // What was given up because of the limit says only that it was given up.
    throw limit.signal.aborted ? timedOut : error
  } finally {
    cancel()
    limit.abort(timedOut)
  }
}
