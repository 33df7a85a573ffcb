import type { Clock } from "../../src/core/apis/clock.ts"

/** A clock that moves only when a test moves it. Its monotonic time and its calendar start at zero (1970). */
export class ManualClock implements Clock {
  #seconds = 0
  #wallOffset = 0
  readonly #timers = new Set<{ dueAt: number; callback: () => void }>()

  /** Number of pending timers. */
  get timers(): number {
    return this.#timers.size
  }

  now(): Date {
    return new Date((this.#seconds + this.#wallOffset) * 1000)
  }

  monotonic(): number {
    return this.#seconds
  }

  setTimer(seconds: number, callback: () => void): () => void {
    const timer = { dueAt: this.#seconds + seconds, callback }
    this.#timers.add(timer)
    return () => this.#timers.delete(timer)
  }

  /** Advances both times, and calls due timers in order. */
  advance(seconds: number): void {
    const target = this.#seconds + seconds
    for (;;) {
      const due = [...this.#timers].filter(({ dueAt }) => dueAt <= target).sort((a, b) => a.dueAt - b.dueAt)[0]
      if (due === undefined) break
      this.#timers.delete(due)
      this.#seconds = Math.max(this.#seconds, due.dueAt)
      due.callback()
    }
    this.#seconds = target
  }

  /** Sets only the calendar, like a suspended machine or an administrator does. */
  setCalendar(seconds: number): void {
    this.#wallOffset += seconds
  }
}
