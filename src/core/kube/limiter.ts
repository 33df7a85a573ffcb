import { onAborted } from "../apis/abort.ts"
import type { Flow, FlowKind } from "./flow.ts"

/** A task that waits for a permit. */
interface Waiter {
  grant: () => void
}

/**
 * Part of the tree of flows: all work, a kind of it, then each level of the path. Work on the same level gets permits in
 * turns, however much of it waits.
 */
class Share {
  readonly parent: Share | undefined
  readonly key: string
  /** Most permits at the same time. */
  readonly most: number
  readonly children = new Map<string, Share>()
  readonly waiters: Waiter[] = []
  running = 0
  /** Number of waiters here and below. */
  waiting = 0
  /** Number of the grant that was last, of all grants. */
  servedAt = 0
  /** True during a pause, in which no permit is granted here. */
  isPaused = false

  constructor(most: number, key = "", parent?: Share) {
    this.most = most
    this.key = key
    this.parent = parent
  }

  get isFull(): boolean {
    return this.isPaused || this.running >= this.most
  }
}

/** A permit that is held. */
export type Permit = Share

/**
 * Permits for at most `size` tasks at a time. A free permit is for the part that holds the fewest, and among equals for the
 * one that waited longest: first of the kinds of work, then of the levels of their paths. `requests` leave some permits to
 * the other kinds, and one path among them has at most half of all: more of its calls at once would delay those of others
 * at the server.
 */
export class Limiter {
  readonly #all: Share
  readonly #reserve: number
  #grants = 0

  constructor(size: number) {
    if (!Number.isInteger(size) || size < 1)
      throw new RangeError(`concurrency is ${size}: give an integer of at least 1`)
    this.#all = new Share(size)
    // Of 32 permits, requests have at most 28, and those of one person at most 16.
    this.#reserve = Math.floor(size / 8)
  }

  /** Number of tasks of a kind that wait for a permit. */
  waiting(kind: FlowKind): number {
    return this.#all.children.get(kind)?.waiting ?? 0
  }

  /**
   * Waits for a permit, which `release` gives back, once. Rejects with the reason of a signal. The paths of a kind have the
   * same length.
   */
  acquire(flow: Flow, signal?: AbortSignal): Permit | Promise<Permit> {
    const share = this.#shareOf(flow)
    if (lineageOf(share).every(({ isFull }) => !isFull)) {
      this.#take(share)
      return share
    }
    return new Promise((resolve, reject) => {
      const waiter = {
        grant: (): void => {
          ignore?.()
          resolve(share)
        },
      }
      const aborted = (): void => {
        share.waiters.splice(share.waiters.indexOf(waiter), 1)
        this.#count(share, "waiting", -1)
        this.#forget(share)
        reject(signal?.reason as Error)
      }
      share.waiters.push(waiter)
      this.#count(share, "waiting", 1)
      const ignore = signal && onAborted(signal, aborted)
    })
  }

  /** Gives a permit back, and to the next tasks. */
  release(permit: Permit): void {
    this.#count(permit, "running", -1)
    this.#forget(permit)
    this.#grant()
  }

  /** Grants no further permit to the permit's outermost path for some milliseconds. Call it before `release`. */
  pause(permit: Permit, ms: number): void {
    const person = lineageOf(permit).at(-3)
    if (person === undefined) return
    person.isPaused = true
    setTimeout(() => {
      person.isPaused = false
      this.#forget(person)
      this.#grant()
    }, ms)
  }

  #grant(): void {
    for (let next = nextOf(this.#all); next !== undefined; next = nextOf(this.#all)) {
      const waiter = next.waiters.shift()
      this.#count(next, "waiting", -1)
      this.#take(next)
      waiter?.grant()
    }
  }

  #shareOf({ kind, path }: Flow): Share {
    let share = this.#all
    const levels = [kind, ...path]
    for (const [depth, key] of levels.entries()) {
      let child = share.children.get(key)
      if (child === undefined) {
        child = new Share(this.#mostAt(kind, depth), key, share)
        share.children.set(key, child)
      }
      share = child
    }
    return share
  }

  /** Returns the most permits of a part of a kind: at depth 0 the kind itself, at depth 1 one person. */
  #mostAt(kind: FlowKind, depth: number): number {
    const { most } = this.#all
    if (kind !== "requests") return most
    return depth === 0 ? most - this.#reserve : Math.max(1, Math.floor(most / 2))
  }

  #take(share: Share): void {
    this.#grants++
    for (const one of lineageOf(share)) one.servedAt = this.#grants
    this.#count(share, "running", 1)
  }

  #count(share: Share, what: "running" | "waiting", change: number): void {
    for (const one of lineageOf(share)) one[what] += change
  }

  /** Drops the parts without work, so that former callers take no memory. The kinds stay. */
  #forget(share: Share): void {
    for (const { parent, key, running, waiting, isPaused } of lineageOf(share)) {
      if (running > 0 || waiting > 0 || isPaused || parent === undefined || parent === this.#all) return
      parent.children.delete(key)
    }
  }
}

/** Returns a part and all that it belongs to, the innermost first. */
function lineageOf(share: Share): Share[] {
  const lineage: Share[] = []
  for (let one: Share | undefined = share; one !== undefined; one = one.parent) lineage.push(one)
  return lineage
}

/** Returns the part whose first waiter gets the next permit; undefined if none may have one. */
function nextOf(share: Share): Share | undefined {
  if (share.waiting === 0 || share.isFull) return undefined
  if (share.waiters.length > 0) return share
  const children = [...share.children.values()].filter(({ waiting }) => waiting > 0)
  children.sort((a, b) => a.running - b.running || a.servedAt - b.servedAt)
  for (const child of children) {
    const next = nextOf(child)
    if (next !== undefined) return next
  }
  return undefined
}
