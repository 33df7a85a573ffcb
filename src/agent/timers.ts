import type { Clock } from "../core/apis/clock.ts"

/** Longest single timer, seconds. setTimeout's limit is 24.8 days, so longer timers are set repeatedly. */
const LONGEST_TIMER_SECONDS = 24 * 3600

/** Calls `callback` once after any number of `seconds` of monotonic time. The returned function cancels the timer. */
export function timer(clock: Clock, seconds: number, callback: () => void): () => void {
  const end = clock.monotonic() + seconds
  let cancel = (): void => {}
  const arm = (): void => {
    const left = end - clock.monotonic()
    if (left <= 0) callback()
    else cancel = clock.setTimer(Math.min(left, LONGEST_TIMER_SECONDS), arm)
  }
  cancel = clock.setTimer(Math.min(Math.max(0, seconds), LONGEST_TIMER_SECONDS), arm)
  return () => cancel()
}

/** Resolves after `seconds`, or when the signal is aborted. (`pause` of core/apis/backoff.ts rejects then.) */
export async function waitUnlessAborted(clock: Clock, seconds: number, signal: AbortSignal): Promise<void> {
  await new AsyncSignal().wait(clock, seconds, signal)
}

/** Ends a wait early. A notification without a wait ends the next wait. */
export class AsyncSignal {
  #notified = false
  #wake: () => void = () => {}

  notify(): void {
    this.#notified = true
    this.#wake()
  }

  /** Resolves after `seconds`, at a notification, or when the signal is aborted. */
  async wait(clock: Clock, seconds: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#wake = resolve
    if (this.#notified || signal.aborted) resolve()
    const cancel = timer(clock, seconds, resolve)
    signal.addEventListener("abort", this.#wake, { once: true })
    await promise
    cancel()
    signal.removeEventListener("abort", this.#wake)
    this.#notified = false
  }
}
