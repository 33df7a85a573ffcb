import type { Clock } from "../apis/clock.ts"

interface Entry<T> {
  answer: Promise<T>
  /** Monotonic seconds; absent while it is asked for. */
  until?: number
}

/** Answers that may be given again for a while. Who asks while somebody already does, waits for the same answer. */
export class RecentAnswers<T> {
  readonly #clock: Clock
  readonly #seconds: number
  readonly #entries = new Map<string, Entry<T>>()

  constructor(clock: Clock, seconds: number) {
    this.#clock = clock
    this.#seconds = seconds
  }

  /** The answer of now, or a recent one that was worth keeping. */
  get(key: string, ask: () => Promise<T>, isKept: (answer: T) => boolean): Promise<T> {
    this.#forgetOld()
    const known = this.#entries.get(key)
    if (known !== undefined) return known.answer
    const entry: Entry<T> = { answer: this.#asked(key, ask, isKept) }
    this.#entries.set(key, entry)
    return entry.answer
  }

  async #asked(key: string, ask: () => Promise<T>, isKept: (answer: T) => boolean): Promise<T> {
    let kept = false
    // After the entry is there, whatever `ask` does at once.
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
