import type { Clock } from "../core/apis/clock.ts"

/** State of a lookup. */
export interface Lookup<Answer> {
  /** Absent until the first answer. */
  readonly answer?: Answer
  /** Time of the first call, monotonic seconds. */
  readonly since: number
  /** Resolves when there is a current answer. */
  readonly answered: Promise<void>
}

interface Entry<Answer> extends Lookup<Answer> {
  answer?: Answer
  answered: Promise<void>
  /** Time until which the answer is current, monotonic seconds. */
  until: number
}

export interface LookupsOptions<Answer> {
  clock: Clock
  /** Maximum number of calls at the same time. One project has at most a quarter of it. */
  atOnce: number
  /** Returns the time for which an answer is current, seconds. */
  secondsOf: (answer: Answer) => number
  /** Time after that for which it is still returned while a new one is read, seconds. Default 0. */
  staleSeconds?: number
  /** Returns false for an answer that is never returned once it is not current. Default: none. */
  mayBeStale?: (answer: Answer) => boolean
}

/** Share of the calls at the same time that one project may have: slow registries of one leave room for others. */
const PROJECT_SHARE = 1 / 4

/** Calls of one project. */
interface Queue {
  waiting: (() => Promise<void>)[]
  running: number
}

/**
 * Cache of answers that are read in the background. `get` returns the cached state and never waits. Projects take turns:
 * the calls of one don't wait for all calls of another.
 */
export class Lookups<Answer> {
  readonly #options: LookupsOptions<Answer>
  readonly #entries = new Map<string, Entry<Answer>>()
  /** Queues of projects with calls, in the order of their turns. */
  readonly #queues = new Map<string, Queue>()
  #running = 0

  constructor(options: LookupsOptions<Answer>) {
    this.#options = options
  }

  /**
   * Returns the state of a lookup, and starts it if it has no current answer.
   * @param namespace the project's
   * @param ask never rejects
   */
  get(namespace: string, key: string, ask: () => Promise<Answer>): Lookup<Answer> {
    this.#forgetOld()
    const { clock, mayBeStale } = this.#options
    const now = clock.monotonic()
    const known = this.#entries.get(key)
    const isDropped = known?.answer !== undefined && known.until <= now && mayBeStale?.(known.answer) === false
    const entry = known === undefined || isDropped ? { since: now, until: now, answered: Promise.resolve() } : known
    this.#entries.set(key, entry)
    if (entry.until <= now) this.#ask(namespace, entry, ask)
    return entry
  }

  #ask(namespace: string, entry: Entry<Answer>, ask: () => Promise<Answer>): void {
    const { clock, secondsOf } = this.#options
    const { promise, resolve } = Promise.withResolvers<void>()
    entry.until = Number.POSITIVE_INFINITY
    entry.answered = promise
    const queue = this.#queues.get(namespace) ?? { waiting: [], running: 0 }
    this.#queues.set(namespace, queue)
    queue.waiting.push(async () => {
      entry.answer = await ask()
      entry.until = clock.monotonic() + secondsOf(entry.answer)
      resolve()
    })
    this.#next()
  }

  #next(): void {
    const { atOnce } = this.#options
    if (this.#running >= atOnce) return
    const most = Math.max(1, Math.floor(atOnce * PROJECT_SHARE))
    const turn = [...this.#queues].find(([, { waiting, running }]) => waiting.length > 0 && running < most)
    const work = turn?.[1].waiting.shift()
    if (turn === undefined || work === undefined) return
    const [namespace, queue] = turn
    // The project's next turn comes after those of all others.
    this.#queues.delete(namespace)
    this.#queues.set(namespace, queue)
    this.#running++
    queue.running++
    void work().finally(() => {
      this.#running--
      queue.running--
      if (queue.running === 0 && queue.waiting.length === 0) this.#queues.delete(namespace)
      this.#next()
    })
  }

  #forgetOld(): void {
    const { clock, staleSeconds = 0 } = this.#options
    const now = clock.monotonic()
    for (const [key, { until }] of this.#entries) if (until + staleSeconds <= now) this.#entries.delete(key)
  }
}
