import type { Clock } from "../../src/core/apis/clock.ts"

/** The machine's clock, which a test may move forward: due timers fire at once. */
export class ShiftedClock implements Clock {
  #offset = 0
  #wrongBy = 0
  readonly #timers = new Set<() => void>()

  /** Seconds that this clock is ahead of the machine's clock. */
  get ahead(): number {
    return this.#offset
  }

  now(): Date {
    return new Date(Date.now() + (this.#offset + this.#wrongBy) * 1000)
  }

  monotonic(): number {
    return performance.now() / 1000 + this.#offset
  }

  setTimer(seconds: number, callback: () => void): () => void {
    const dueAt = this.monotonic() + seconds
    let timeout: NodeJS.Timeout | undefined
    const cancel = (): void => {
      clearTimeout(timeout)
      this.#timers.delete(check)
    }
    const check = (): void => {
      clearTimeout(timeout)
      const left = dueAt - this.monotonic()
      if (left > 0) {
        timeout = setTimeout(check, Math.min(left * 1000, 2 ** 31 - 1))
        return
      }
      cancel()
      callback()
    }
    this.#timers.add(check)
    check()
    return cancel
  }

  /** Sets the calendar so many seconds ahead of the right time. Durations stay. */
  setWrong(seconds: number): void {
    this.#wrongBy = seconds
  }

  /** Moves the clock forward. */
  advance(seconds: number): void {
    this.#offset += seconds
    for (const check of [...this.#timers]) check()
  }
}
