import type { Logger } from "../apis/logger.ts"

/** Writes at a time: news must not wait behind thousands of heartbeats that are all due after a restart. */
const AT_ONCE = 16

/**
 * Writes mere heartbeats, while their agents are answered at once: a few at a time, the longest waiting first, so that
 * each comes to its turn however slow the API server is. Of each Launch only the latest waits.
 */
export class Heartbeats {
  readonly #logger: Logger
  readonly #waiting = new Map<string, () => Promise<unknown>>()
  #writing = 0
  #fails = false

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** A heartbeat that fails to be written is not tried again: the agent's next one is due as well. */
  add(launch: string, write: () => Promise<unknown>): void {
    // One that waits already keeps its place.
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
      if (!this.#fails) this.#logger.warn({ err: error }, "heartbeats are not written for the moment")
      this.#fails = true
    } finally {
      this.#writing--
      this.#next()
    }
  }
}
