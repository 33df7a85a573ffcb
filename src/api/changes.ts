import { setTimeout as delay } from "node:timers/promises"
import { backoffSeconds } from "../core/apis/backoff.ts"
import { unavailable } from "./http/problem.ts"
import { KeyedMutex } from "./idempotency.ts"

/** Delays between attempts. They are random, so that two replicas don't conflict again. */
const RETRY = { baseSeconds: 0.02, capSeconds: 1 }

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
      for (let conflicts = 1; !patience.aborted; conflicts++) {
        const result = await attempt()
        if (result !== undefined) return result
        // A replica with many changes waiting makes the next one at once: beside it, a few short delays lose each time.
        await delay(backoffSeconds(conflicts, RETRY) * 1000)
      }
      throw unavailable(`The ${noun} is changed by many requests at once: try again.`)
    })
  }
}
