import { setTimeout as delay } from "node:timers/promises"
import { unavailable } from "../http/problem.ts"
import { KeyedMutex } from "./idempotency.ts"

/** Longest delay before the second attempt, milliseconds. It doubles with each conflict. */
const FIRST_DELAY_MS = 20

/** Longest delay before any attempt, milliseconds. */
const LONGEST_DELAY_MS = 1000

/** Longest time for the attempts of a change, and for its wait for others of the same object, milliseconds. */
const PATIENCE_MS = 10_000

/**
 * Changes objects, one change of an object at a time. So parallel requests to this replica never conflict with each
 * other. A conflict with another replica or a controller is tried again.
 */
export class Changes {
  readonly #mutex = new KeyedMutex()

  /**
   * @param attempt changes the object; returns undefined on a conflict
   * @throws Problem 503 if others change the object all the time
   */
  run<Result extends object>(
    { noun, key }: { noun: string; key: string },
    attempt: () => Promise<Result | undefined>,
  ): Promise<Result> {
    const patience = AbortSignal.timeout(PATIENCE_MS)
    return this.#mutex.runExclusive(key, async () => {
      for (let longest = FIRST_DELAY_MS; !patience.aborted; longest = Math.min(2 * longest, LONGEST_DELAY_MS)) {
        const result = await attempt()
        if (result !== undefined) return result
        // The delay is random, so that two replicas don't conflict again. A replica with many changes waiting makes the
        // next one at once: beside it, short delays on a slow server lose each time.
        await delay(Math.random() * longest)
      }
      throw unavailable(`The ${noun} is changed by many requests at once: try again.`)
    })
  }
}
