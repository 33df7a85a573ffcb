import type { Flow } from "../../core/kube/flow.ts"
import { Limiter } from "../../core/kube/limiter.ts"

/** Work that is long enough to be felt by others, milliseconds. */
const LONG_MS = 1

/**
 * Turns of the processor. Between two, the event loop answers all that needs no turn. Persons, projects and callers get
 * turns fairly: work of one that keeps the processor for milliseconds delays another by one such piece at a time. After
 * long work its person waits as long as it took, so that one person has at most half of the processor.
 */
export class Processor {
  readonly #turns = new Limiter(1)
  readonly #now: () => number

  /** @param now monotonic time, milliseconds */
  constructor(now = (): number => performance.now()) {
    this.#now = now
  }

  /** Waits for a turn, which ends at the next round of the event loop. */
  async next(flow: Flow): Promise<void> {
    const turn = await this.#turns.acquire(flow)
    const beganAt = this.#now()
    let took = 0
    // Runs when the work waits for something, or has ended.
    process.nextTick(() => {
      took = this.#now() - beganAt
    })
    setImmediate(() => {
      if (took > LONG_MS) this.#turns.pause(turn, took)
      this.#turns.release(turn)
    })
  }
}
