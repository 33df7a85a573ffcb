import { setTimeout as delay } from "node:timers/promises"
import { unavailable } from "../http/problem.ts"
import { KeyedMutex } from "./idempotency.ts"

/** Attempts to change an object that other replicas and controllers change at the same time. */
const ATTEMPTS = 8

/** Longest delay before the second attempt, milliseconds. Later attempts wait longer. */
const SPREAD_MS = 20

/** Longest time that a change waits for others of the same object, milliseconds. */
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
      for (let conflicts = 0; conflicts < ATTEMPTS && !patience.aborted; conflicts++) {
        // The delay is random, so that two replicas don't conflict again.
        if (conflicts > 0) await delay(Math.random() * SPREAD_MS * conflicts)
        const result = await attempt()
        if (result !== undefined) return result
      }
      throw unavailable(`The ${noun} is changed by many requests at once: try again.`)
    })
  }
}
