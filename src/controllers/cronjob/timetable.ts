import type { Clock } from "../../apis/clock.ts"
import type { Source } from "../../runtime/controller.ts"

interface Entry {
  key: string
  /** Milliseconds since 1970. */
  dueAt: number
}

/**
 * At most so long is slept at a time: timers measure durations, and a machine that was suspended, or whose calendar was
 * set, is to notice soon that a time of the calendar has come.
 */
const LONGEST_SLEEP_SECONDS = 30

/**
 * When each key is to be looked at next, by the calendar: one heap and one timer for all of them, and none when nothing
 * is due ever. A source of keys for one controller.
 */
export class Timetable implements Source {
  readonly #clock: Clock
  /** The earliest first. Entries that were put off or crossed out stay until they come up. */
  #heap: Entry[] = []
  readonly #due = new Map<string, number>()
  #add: ((key: string) => void) | undefined
  #timer: { dueAt: number; cancel: () => void } | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Keys that are due some time. */
  get size(): number {
    return this.#due.size
  }

  /** Sets when a key is due, in place of what was set before; undefined: never. */
  set(key: string, dueAt: Date | undefined): void {
    const time = dueAt?.getTime()
    if (this.#due.get(key) === time) return
    if (time === undefined) this.#due.delete(key)
    else {
      this.#due.set(key, time)
      this.#push({ key, dueAt: time })
    }
    this.#tidy()
    this.#arm()
  }

  /** Calls `add` for each key that comes due, once; what was set is forgotten at the end. */
  subscribe(add: (key: string) => void): () => void {
    if (this.#add !== undefined) throw new Error("a timetable has one subscriber at a time")
    this.#add = add
    return () => {
      this.#add = undefined
      this.#heap = []
      this.#due.clear()
      this.#arm()
    }
  }

  /** There is nothing to wait for. */
  async whenSynced(): Promise<void> {}

  #ring(): void {
    this.#timer = undefined
    const now = this.#clock.now().getTime()
    for (let first = this.#first(); first !== undefined && first.dueAt <= now; first = this.#first()) {
      this.#due.delete(first.key)
      this.#add?.(first.key)
    }
    this.#arm()
  }

  #arm(): void {
    const dueAt = this.#add === undefined ? undefined : this.#first()?.dueAt
    if (dueAt === this.#timer?.dueAt) return
    this.#timer?.cancel()
    this.#timer = undefined
    if (dueAt === undefined) return
    const seconds = Math.max(0, (dueAt - this.#clock.now().getTime()) / 1000)
    const cancel = this.#clock.setTimer(Math.min(seconds, LONGEST_SLEEP_SECONDS), () => this.#ring())
    this.#timer = { dueAt, cancel }
  }

  /** The earliest entry that still holds. */
  #first(): Entry | undefined {
    for (let first = this.#heap[0]; first !== undefined; first = this.#heap[0]) {
      if (this.#due.get(first.key) === first.dueAt) return first
      this.#pop()
    }
    return undefined
  }

  /** So that keys which are put off again and again don't fill the memory. */
  #tidy(): void {
    if (this.#heap.length <= 2 * this.#due.size + 64) return
    // Sorted, so a heap.
    this.#heap = [...this.#due].map(([key, dueAt]) => ({ key, dueAt })).sort((a, b) => a.dueAt - b.dueAt)
  }

  #push(entry: Entry): void {
    const heap = this.#heap
    let place = heap.push(entry) - 1
    while (place > 0) {
      const above = (place - 1) >> 1
      const parent = heap[above]
      if (parent === undefined || parent.dueAt <= entry.dueAt) break
      heap[place] = parent
      place = above
    }
    heap[place] = entry
  }

  #pop(): void {
    const heap = this.#heap
    const entry = heap.pop()
    if (entry === undefined || heap.length === 0) return
    let place = 0
    for (;;) {
      const left = 2 * place + 1
      const below = later(heap[left], heap[left + 1]) ? left + 1 : left
      const child = heap[below]
      if (child === undefined || child.dueAt >= entry.dueAt) break
      heap[place] = child
      place = below
    }
    heap[place] = entry
  }
}

function later(one: Entry | undefined, other: Entry | undefined): boolean {
  return one !== undefined && other !== undefined && one.dueAt > other.dueAt
}
