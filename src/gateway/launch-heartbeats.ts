import type { Logger } from "../apis/logger.ts"

/**
 * Maximum number of writes at a time. Reports with news must not wait behind thousands of heartbeats that are due after
 * a restart.
 */
const AT_ONCE = 16

/**
 * Writes heartbeats into Launches, for an operator of a former version: a few at a time, while agents get their answer
 * at once. The oldest comes first, so that every heartbeat is written even if the API server is slow. For each Launch
 * only the latest write waits.
 */
export class LaunchHeartbeats {
  readonly #logger: Logger
  readonly #waiting = new Map<string, () => Promise<unknown>>()
  #writing = 0
  #fails = false

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** Queues a write. A failed write is not retried, because the agent's next heartbeat is due as well. */
  add(launch: string, write: () => Promise<unknown>): void {
    // A Launch that waits already keeps its place.
    this.#waiting.set(launch, write)
    this.#next()
  }

  #next(): void {
    const [first] = this.#waiting
    if (first === undefined || this.#writing >= AT_ONCE) return
    const [launch, write] = first
    this.#waiting.delete(launch)
    void this.#write(write)
  }

  async #write(write: () => Promise<unknown>): Promise<void> {
    this.#writing++
    try {
      await write()
      this.#fails = false
    } catch (error) {
      if (!this.#fails)
        this.#logger.warn({ err: error }, "failed to write a heartbeat; the agent's next one is written")
      this.#fails = true
    } finally {
      this.#writing--
      this.#next()
    }
  }
}
