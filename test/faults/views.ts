import { setTimeout as sleep } from "node:timers/promises"
import { keyOf } from "../../src/apis/meta.ts"
import type { KubeClient, WatchEvent } from "../../src/kube/client.ts"
import type { ApiObject } from "../../src/kube/resource.ts"

/** How a view is worse than the truth. */
export interface Blur {
  /** In [0, 1). */
  random: () => number
  /** For how long events are held back, at most, milliseconds. */
  delayMs: number
  /** Whether of several events of one object that were held back only the last is shown. */
  merges: boolean
  /** How often an event is shown again after later ones, as by an API server that is behind. Share of all. */
  travels: number
}

/** What the views of a test came to. */
export interface BlurCounts {
  events: number
  merged: number
  travelled: number
}

type Watch = KubeClient["watch"]

/** A client whose watches show what happens late, merged, or once more; all else goes through. */
export function blurred(client: KubeClient, blur: Blur, counts: BlurCounts): KubeClient {
  const watch: Watch = (resource, options = {}) => {
    const ending = new AbortController()
    const signal = AbortSignal.any([ending.signal, ...(options.signal === undefined ? [] : [options.signal])])
    return shownLate(client.watch(resource, { ...options, signal }), { blur, counts, ending })
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
  { blur, counts, ending }: { blur: Blur; counts: BlurCounts; ending: AbortController },
): AsyncGenerator<WatchEvent<T>> {
  const held = new Held(source)
  let earlier: WatchEvent<T> | undefined
  try {
    for (;;) {
      if (!(await held.some())) return
      await sleep(blur.random() * blur.delayMs)
      const all = held.take()
      const shown = blur.merges ? merged(all) : all
      counts.events += all.length
      counts.merged += all.length - shown.length
      for (const event of shown) {
        yield event
        yield* shownAgain(earlier, blur, counts)
        if (event.type !== "BOOKMARK") earlier = structuredClone(event)
      }
    }
  } finally {
    ending.abort()
  }
}

/** An event that was shown before, or nothing. */
function shownAgain<T extends ApiObject>(
  earlier: WatchEvent<T> | undefined,
  { random, travels }: Blur,
  counts: BlurCounts,
): WatchEvent<T>[] {
  if (earlier === undefined || random() >= travels) return []
  counts.travelled++
  return [earlier]
}

/** Events that have come and have not been shown. */
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

  /** Waits for one; false: there will be none. Throws what the source threw. */
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

/** The last event of each object, in the order in which they came. */
function merged<T extends ApiObject>(events: readonly WatchEvent<T>[]): WatchEvent<T>[] {
  const last = new Map(events.map((event) => [event.type === "BOOKMARK" ? "" : keyOf(event.object), event]))
  return events.filter((event) => last.get(event.type === "BOOKMARK" ? "" : keyOf(event.object)) === event)
}
