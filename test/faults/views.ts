import { setTimeout as sleep } from "node:timers/promises"
import { keyOf } from "../../src/core/apis/meta.ts"
import type { KubeClient, WatchEvent } from "../../src/core/kube/client.ts"
import type { ApiObject } from "../../src/core/kube/resource.ts"

/** Delays and repetitions of watch events. */
export interface DelayedWatch {
  /** In [0, 1). */
  random: () => number
  /** Maximum delay of events in milliseconds. */
  delayMs: number
  /** True if only the last of several delayed events of an object is shown. */
  merges: boolean
  /** Share of events that are shown again after later ones, as by an API server that is behind. */
  travels: number
}

/** Counts of what the watches of a test did. */
export interface DelayCounts {
  events: number
  merged: number
  travelled: number
}

type Watch = KubeClient["watch"]

/** Returns a client whose watches are delayed, merge events, or repeat them. Other calls pass unchanged. */
export function withDelayedWatches(client: KubeClient, delays: DelayedWatch, counts: DelayCounts): KubeClient {
  const watch: Watch = (resource, options = {}) => {
    const ending = new AbortController()
    const signal = AbortSignal.any([ending.signal, ...(options.signal === undefined ? [] : [options.signal])])
    return shownLate(client.watch(resource, { ...options, signal }), { delays, counts, ending })
  }
  return new Proxy(client, {
    get: (target, property) => {
      if (property === "watch") return watch
      const value: unknown = Reflect.get(target, property)
      return typeof value === "function" ? value.bind(target) : value
    },
  })
}

async function* shownLate<T extends ApiObject>(
  source: AsyncIterable<WatchEvent<T>>,
  { delays, counts, ending }: { delays: DelayedWatch; counts: DelayCounts; ending: AbortController },
): AsyncGenerator<WatchEvent<T>> {
  const held = new Held(source)
  let earlier: WatchEvent<T> | undefined
  try {
    for (;;) {
      if (!(await held.some())) return
      await sleep(delays.random() * delays.delayMs)
      const all = held.take()
      const shown = delays.merges ? merged(all) : all
      counts.events += all.length
      counts.merged += all.length - shown.length
      for (const event of shown) {
        yield event
        yield* shownAgain(earlier, delays, counts)
        if (event.type !== "BOOKMARK") earlier = structuredClone(event)
      }
    }
  } finally {
    ending.abort()
  }
}

/** Returns an event that was shown before, or nothing. */
function shownAgain<T extends ApiObject>(
  earlier: WatchEvent<T> | undefined,
  { random, travels }: DelayedWatch,
  counts: DelayCounts,
): WatchEvent<T>[] {
  if (earlier === undefined || random() >= travels) return []
  counts.travelled++
  return [earlier]
}

/** Events that have arrived and have not been shown. */
class Held<T extends ApiObject> {
  #events: WatchEvent<T>[] = []
  #news = Promise.withResolvers<void>()
  #ended: { error?: unknown } | undefined

  constructor(source: AsyncIterable<WatchEvent<T>>) {
    void this.#collect(source)
  }

  async #collect(source: AsyncIterable<WatchEvent<T>>): Promise<void> {
    try {
      for await (const event of source) {
        this.#events.push(event)
        this.#news.resolve()
      }
      this.#ended = {}
    } catch (error) {
      this.#ended = { error }
    }
    this.#news.resolve()
  }

  /** Waits for one; false: none will come. Throws the source's error. */
  async some(): Promise<boolean> {
    await this.#news.promise
    if (this.#events.length > 0) return true
    if (this.#ended !== undefined && "error" in this.#ended) throw this.#ended.error
    return false
  }

  take(): WatchEvent<T>[] {
    const events = this.#events
    this.#events = []
    if (this.#ended === undefined) this.#news = Promise.withResolvers()
    return events
  }
}

/** Returns the last event of each object, in the order of their arrival. */
function merged<T extends ApiObject>(events: readonly WatchEvent<T>[]): WatchEvent<T>[] {
  const last = new Map(events.map((event) => [event.type === "BOOKMARK" ? "" : keyOf(event.object), event]))
  return events.filter((event) => last.get(event.type === "BOOKMARK" ? "" : keyOf(event.object)) === event)
}
