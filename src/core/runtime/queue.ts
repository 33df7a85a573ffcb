import { type BackoffLimits, backoffSeconds } from "../apis/backoff.ts"
import { type Clock, systemClock } from "../apis/clock.ts"

/** Metrics that a queue reports. */
export interface QueueMetrics {
  /** Number of waiting keys. */
  depth(keys: number): void
  /** Time that a key has waited before a worker got it. */
  waited(seconds: number): void
  /** Time that the processing of a key took. */
  worked(seconds: number): void
  /** Reports the retry of a key after a failure. */
  retried(): void
}

export interface KeyQueueOptions {
  clock?: Clock
  /**
   * Returns a key's group. The keys of one group share one turn. Default: the namespace, so that no project starves
   * another. A waiting key stays in the group that it had when it was added.
   */
  groupOf?: (key: string) => string
  /**
   * Returns true for keys that overtake the others of their group. So running work need not wait for new work. Every
   * fourth turn is still for the others. Called each time that a key is added. Default: none.
   */
  isUrgent?: (key: string) => boolean
  /** Delay between the attempts at a failing key. Default 0.1 to 60 s. */
  backoff?: BackoffLimits
  metrics?: QueueMetrics
  /** Random number in [0, 1), for the jitter. */
  random?: () => number
}

/** Turns of a group for urgent keys before one turn for the others. */
const URGENT_TURNS = 3

/** Returns the namespace of `namespace/name`. Cluster-scoped keys form one group. */
export function keyNamespace(key: string): string {
  const slash = key.indexOf("/")
  return slash === -1 ? "" : key.slice(0, slash)
}

/** Waiting keys of one group. The insertion order is their order. */
class Line {
  readonly #urgent = new Map<string, number>()
  readonly #others = new Map<string, number>()
  #urgentTurns = 0

  get size(): number {
    return this.#urgent.size + this.#others.size
  }

  add(key: string, since: number, isUrgent: boolean): void {
    if (isUrgent) this.#urgent.set(key, since)
    else this.#others.set(key, since)
  }

  /** Makes a waiting key urgent. */
  promote(key: string): void {
    const since = this.#others.get(key)
    if (since === undefined) return
    this.#others.delete(key)
    this.#urgent.set(key, since)
  }

  take(): { key: string; since: number } | undefined {
    const isOthersTurn = this.#others.size > 0 && (this.#urgent.size === 0 || this.#urgentTurns >= URGENT_TURNS)
    const keys = isOthersTurn ? this.#others : this.#urgent
    const [first] = keys
    if (first === undefined) return undefined
    const [key, since] = first
    keys.delete(key)
    this.#urgentTurns = isOthersTurn ? 0 : this.#urgentTurns + 1
    return { key, since }
  }
}

/**
 * Keys to process, each at most once in the queue and never by two workers at the same time. A key that is added while
 * it is processed is queued again after `done`. Groups take turns. The contract is that of client-go's workqueue.
 */
export class KeyQueue {
  readonly #clock: Clock
  readonly #groupOf: (key: string) => string
  readonly #isUrgent: (key: string) => boolean
  readonly #backoff: BackoffLimits
  readonly #metrics: QueueMetrics | undefined
  readonly #random: () => number
  /** Insertion order is the order of turns. */
  readonly #groups = new Map<string, Line>()
  /** All waiting keys, each with its group's line: the group of a key may change while it waits. */
  readonly #waiting = new Map<string, Line>()
  readonly #processing = new Map<string, number>()
  /** Keys added while they were processed. */
  readonly #again = new Set<string>()
  readonly #delayed = new Map<string, { dueAt: number; cancel: () => void }>()
  readonly #failures = new Map<string, number>()
  readonly #idle: ((key: string | undefined) => void)[] = []
  #closed = false

  constructor(options: KeyQueueOptions = {}) {
    this.#clock = options.clock ?? systemClock
    this.#groupOf = options.groupOf ?? keyNamespace
    this.#isUrgent = options.isUrgent ?? (() => false)
    this.#backoff = options.backoff ?? { baseSeconds: 0.1, capSeconds: 60 }
    this.#metrics = options.metrics
    this.#random = options.random ?? Math.random
  }

  /** Number of keys that wait to be processed, without delayed ones. */
  get length(): number {
    return this.#waiting.size
  }

  add(key: string): void {
    if (this.#closed) return
    if (this.#processing.has(key)) {
      this.#again.add(key)
      return
    }
    const isUrgent = this.#isUrgent(key)
    const waitsIn = this.#waiting.get(key)
    if (waitsIn !== undefined) {
      if (isUrgent) waitsIn.promote(key)
      return
    }
    const line = this.#lineOf(this.#groupOf(key))
    line.add(key, this.#clock.monotonic(), isUrgent)
    this.#waiting.set(key, line)
    this.#metrics?.depth(this.length)
    const worker = this.#idle.shift()
    if (worker !== undefined) worker(this.#take())
  }

  /** Queues a key after a delay. Of several delays for one key the earliest counts. */
  addAfter(key: string, seconds: number): void {
    if (this.#closed) return
    if (!(seconds > 0)) {
      this.add(key)
      return
    }
    const dueAt = this.#clock.monotonic() + seconds
    const earlier = this.#delayed.get(key)
    if (earlier !== undefined && earlier.dueAt <= dueAt) return
    earlier?.cancel()
    const cancel = this.#clock.setTimer(seconds, () => {
      this.#delayed.delete(key)
      this.add(key)
    })
    this.#delayed.set(key, { dueAt, cancel })
  }

  /** Queues a key that failed, after a delay that grows with each failure until `forget`. */
  addRateLimited(key: string): void {
    const failures = this.failures(key) + 1
    this.#failures.set(key, failures)
    this.#metrics?.retried()
    this.addAfter(key, backoffSeconds(failures, this.#backoff, this.#random))
  }

  /** Resets the failures of a key that has succeeded or is abandoned. */
  forget(key: string): void {
    this.#failures.delete(key)
  }

  /** Returns the number of failures in a row. */
  failures(key: string): number {
    return this.#failures.get(key) ?? 0
  }

  /** Resolves with the next key; undefined after `close`. Call `done` for each key. */
  next(): Promise<string | undefined> {
    if (this.#closed) return Promise.resolve(undefined)
    const key = this.#take()
    if (key !== undefined) return Promise.resolve(key)
    return new Promise((resolve) => this.#idle.push(resolve))
  }

  /** Marks the processing of a key as ended. The key is queued again if it was added in the meantime. */
  done(key: string): void {
    const startedAt = this.#processing.get(key)
    if (startedAt === undefined) throw new Error(`done("${key}") without next(): the key is not being processed`)
    this.#processing.delete(key)
    this.#metrics?.worked(this.#clock.monotonic() - startedAt)
    if (this.#again.delete(key)) this.add(key)
  }

  /** Takes no more keys, drops waiting ones (the next leader sees every object again) and releases the workers. */
  close(): void {
    this.#closed = true
    for (const { cancel } of this.#delayed.values()) cancel()
    this.#delayed.clear()
    this.#groups.clear()
    this.#waiting.clear()
    this.#again.clear()
    this.#metrics?.depth(0)
    for (const worker of this.#idle.splice(0)) worker(undefined)
  }

  #lineOf(group: string): Line {
    const known = this.#groups.get(group)
    if (known !== undefined) return known
    const line = new Line()
    this.#groups.set(group, line)
    return line
  }

  #take(): string | undefined {
    const [first] = this.#groups
    if (first === undefined) return undefined
    const [group, line] = first
    const taken = line.take()
    // Moves the group to the end: the other groups come first now.
    this.#groups.delete(group)
    if (line.size > 0) this.#groups.set(group, line)
    if (taken === undefined) return undefined
    const now = this.#clock.monotonic()
    this.#processing.set(taken.key, now)
    this.#waiting.delete(taken.key)
    this.#metrics?.depth(this.length)
    this.#metrics?.waited(now - taken.since)
    return taken.key
  }
}
