import type { Clock } from "../apis/clock.ts"

/** Timers are set for at most a day and then again: the longest one that there is lasts 24.8 days. */
const LONGEST_TIMER_SECONDS = 24 * 3600

/** Calls `callback` once after `seconds` of monotonic time, however many; the returned function cancels it. */
export function alarm(clock: Clock, seconds: number, callback: () => void): () => void {
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

/** Resolves after `seconds`, or as soon as the signal is aborted. */
export async function pause(clock: Clock, seconds: number, signal: AbortSignal): Promise<void> {
  await new Bell().wait(clock, seconds, signal)
}

/** Ends a wait early. A ring that nobody waits for is heard by the next wait. */
export class Bell {
  #rung = false
  #wake: () => void = () => {}

  ring(): void {
    this.#rung = true
    this.#wake()
  }

  /** Resolves after `seconds`, at a ring, or as soon as the signal is aborted. */
  async wait(clock: Clock, seconds: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#wake = resolve
    if (this.#rung || signal.aborted) resolve()
    const cancel = alarm(clock, seconds, resolve)
    signal.addEventListener("abort", this.#wake, { once: true })
    await promise
    cancel()
    signal.removeEventListener("abort", this.#wake)
    this.#rung = false
  }
}

/** Seconds before the n-th retry (from 0): doubled each time up to `most`, and half of it random. */
export function backoff(tries: number, first: number, most: number): number {
  const full = Math.min(most, first * 2 ** Math.min(tries, 30))
  return full / 2 + (Math.random() * full) / 2
}
