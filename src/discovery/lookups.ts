import type { Clock } from "../apis/clock.ts"

/** What is known of something that was asked about. */
export interface Lookup<Answer> {
  /** Absent while it is asked for the first time. */
  readonly answer?: Answer
  /** When it was first asked for, monotonic seconds. */
  readonly since: number
  /** Resolves when an answer is there that holds. */
  readonly answered: Promise<void>
}

interface Entry<Answer> extends Lookup<Answer> {
  answer?: Answer
  answered: Promise<void>
  /** Monotonic seconds. */
  until: number
}

export interface LookupsOptions<Answer> {
  clock: Clock
  /** Questions that are asked at the same time. */
  atOnce: number
  /** How long an answer holds, seconds. */
  secondsOf: (answer: Answer) => number
  /** So long after that it is still given, while it is asked for anew, seconds. Default 0. */
  staleSeconds?: number
}

/** Answers that come by themselves: who asks gets what is known, and has it asked where nothing is. Never waits. */
export class Lookups<Answer> {
  readonly #options: LookupsOptions<Answer>
  readonly #entries = new Map<string, Entry<Answer>>()
  readonly #waiting: (() => Promise<void>)[] = []
  #running = 0

  constructor(options: LookupsOptions<Answer>) {
    this.#options = options
  }

  /** @param ask never rejects */
  get(key: string, ask: () => Promise<Answer>): Lookup<Answer> {
    this.#forgetOld()
    const now = this.#options.clock.monotonic()
    const entry = this.#entries.get(key) ?? { since: now, until: now, answered: Promise.resolve() }
    this.#entries.set(key, entry)
    if (entry.until <= now) this.#ask(entry, ask)
    return entry
  }

  #ask(entry: Entry<Answer>, ask: () => Promise<Answer>): void {
    const { clock, secondsOf } = this.#options
    const { promise, resolve } = Promise.withResolvers<void>()
    entry.until = Number.POSITIVE_INFINITY
    entry.answered = promise
    this.#waiting.push(async () => {
      entry.answer = await ask()
      entry.until = clock.monotonic() + secondsOf(entry.answer)
      resolve()
    })
    this.#next()
  }

  #next(): void {
    if (this.#running >= this.#options.atOnce) return
    const work = this.#waiting.shift()
    if (work === undefined) return
    this.#running++
    void work().finally(() => {
      this.#running--
      this.#next()
    })
  }

  #forgetOld(): void {
    const { clock, staleSeconds = 0 } = this.#options
    const now = clock.monotonic()
    for (const [key, { until }] of this.#entries) if (until + staleSeconds <= now) this.#entries.delete(key)
  }
}
