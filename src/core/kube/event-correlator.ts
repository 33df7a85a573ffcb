import { type Clock, secondsBetween } from "../apis/clock.ts"
import type { KubeEvent } from "./core.ts"

/** Event to write: a new one, or with `repeats` the new state of an earlier one. */
export interface Correlated {
  event: KubeEvent
  repeats: boolean
}

/**
 * Limits of client-go (EventCorrelator): events per object, and the number of similar messages before they become one.
 */
const BURST = 25
const SECONDS_PER_TOKEN = 300
const SIMILAR_LIMIT = 10
const SIMILAR_WINDOW_SECONDS = 600
/** Maximum entries per table. The oldest are removed first. */
const TABLE_SIZE = 4096

/**
 * Decides to create an event, to add it to the count of an earlier one, or to drop it. Of an object that has emitted too
 * many, it drops Normal events and combines Warnings. Pure except for the clock and its own tables.
 */
export class EventCorrelator {
  readonly #clock: Clock
  readonly #buckets = new Map<string, { tokens: number; at: number }>()
  readonly #similar = new Map<string, { messages: Set<string>; at: number }>()
  readonly #written = new Map<string, KubeEvent>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns undefined if the event must not be written. */
  correlate(event: KubeEvent): Correlated | undefined {
    const object = `${event.involvedObject.kind}/${event.involvedObject.namespace}/${event.involvedObject.name}/${event.involvedObject.uid}`
    const isGranted = this.#takeToken(object)
    if (!isGranted && event.type === "Normal") return undefined
    const kind = `${object}/${event.type}/${event.reason}`
    const combined = this.#tooManySimilar(kind, event.message) || !isGranted
    const key = combined ? kind : `${kind}/${event.message}`
    const message = combined ? `(combined from similar events): ${event.message}` : event.message
    const earlier = this.#written.get(key)
    // The API server has deleted the earlier event (events live for an hour) or will soon: create a new one.
    const repeats = earlier !== undefined && secondsBetween(earlier.lastTimestamp, event.lastTimestamp) < 3000
    const next: KubeEvent = repeats
      ? { ...earlier, message, count: earlier.count + 1, lastTimestamp: event.lastTimestamp }
      : { ...event, message }
    remember(this.#written, key, next)
    return { event: next, repeats }
  }

  #takeToken(object: string): boolean {
    const now = this.#clock.monotonic()
    const bucket = this.#buckets.get(object) ?? { tokens: BURST, at: now }
    const tokens = Math.min(BURST, bucket.tokens + (now - bucket.at) / SECONDS_PER_TOKEN)
    const granted = tokens >= 1
    remember(this.#buckets, object, { tokens: granted ? tokens - 1 : tokens, at: now })
    return granted
  }

  #tooManySimilar(kind: string, message: string): boolean {
    const now = this.#clock.monotonic()
    const known = this.#similar.get(kind)
    const current =
      known !== undefined && now - known.at < SIMILAR_WINDOW_SECONDS ? known : { messages: new Set<string>(), at: now }
    if (current.messages.size < SIMILAR_LIMIT) current.messages.add(message)
    remember(this.#similar, kind, { messages: current.messages, at: now })
    return !current.messages.has(message)
  }
}

function remember<V>(table: Map<string, V>, key: string, value: V): void {
  table.delete(key)
  table.set(key, value)
  if (table.size <= TABLE_SIZE) return
  for (const oldest of table.keys()) {
    table.delete(oldest)
    return
  }
}
