import { presentFlow } from "../kube/flow.ts"
import { Limiter } from "../kube/limiter.ts"

/**
 * Turns of work that keeps the processor for milliseconds, in which nothing else is answered. One piece of work has the
 * turn at a time, and between two the event loop answers all that waits. Persons, projects and callers get turns fairly.
 */
export class Processor {
  readonly #turns = new Limiter(1)

  /** Does the work at its turn. Rejects with the signal's reason if that comes first. */
  async run<Result>(work: () => Result, signal: AbortSignal): Promise<Result> {
    const permit = await this.#turns.acquire(presentFlow(), signal)
    try {
      return work()
    } finally {
      setImmediate(() => this.#turns.release(permit))
    }
  }
}

/** Does a piece of work at its turn. */
export type Turn = <Result>(work: () => Result) => Promise<Result>
