import type { Clock } from "../core/apis/clock.ts"

interface Entry<T> {
  answer: Promise<T>
  /** Time until which the answer is cached, monotonic seconds. Absent while it is being read. */
  until?: number
}

/** Cache of answers for a short time. Concurrent callers share one call. */
export class RecentAnswers<T> {
  readonly #clock: Clock
  readonly #seconds: number
  readonly #entries = new Map<string, Entry<T>>()

  constructor(clock: Clock, seconds: number) {
    this.#clock = clock
    this.#seconds = seconds
  }

  /** Returns a cached answer, or calls `ask`. `isKept` decides if the answer is cached. */
  get(key: string, ask: () => Promise<T>, isKept: (answer: T) => boolean): Promise<T> {
    this.#forgetOld()
    const known = this.#entries.get(key)
    if (known !== undefined) return known.answer
    const entry: Entry<T> = { answer: this.#read(key, ask, isKept) }
    this.#entries.set(key, entry)
    return entry.answer
  }

  async #read(key: string, ask: () => Promise<T>, isKept: (answer: T) => boolean): Promise<T> {
    let kept = false
    // Run after the entry is stored, even if `ask` throws immediately.
    await Promise.resolve()
    try {
      const answer = await ask()
      kept = isKept(answer)
      return answer
    } finally {
      const entry = this.#entries.get(key)
      if (kept && entry !== undefined) entry.until = this.#clock.monotonic() + this.#seconds
      else this.#entries.delete(key)
    }
  }

  #forgetOld(): void {
    const now = this.#clock.monotonic()
    for (const [key, { until }] of this.#entries) if (until !== undefined && until <= now) this.#entries.delete(key)
  }
}
