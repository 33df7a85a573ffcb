import type { Clock } from "../../core/apis/clock.ts"

/** Parts of a minute over which the messages of a project are spread. */
const SLICES = 10

/** Messages that the webhooks of a project may send at once, and the time in which they may send that many. */
export interface Slice {
  messages: number
  seconds: number
}

/** Returns the slice of a limit. A minute of slices has the limit's messages, so a receiver never gets them all at once. */
export function toSlice(messagesPerMinute: number): Slice {
  const messages = Math.ceil(messagesPerMinute / SLICES)
  return { messages, seconds: (60 * messages) / messagesPerMinute }
}

/**
 * Turns to send of one project: all of its webhooks share them, for first attempts and retries. Webhooks that wait take
 * turns, so one with many messages delays each other one by one message at a time.
 */
export class Pace {
  readonly #slice: Slice
  readonly #clock: Pick<Clock, "monotonic" | "setTimer">
  /** Monotonic times of the turns of the latest slice, in their order. */
  readonly #taken: number[] = []
  /** Workers that wait, by the webhook's uid. The insertion order is the order of turns. */
  readonly #waiting = new Map<string, ((isTurn: boolean) => void)[]>()
  #cancel: (() => void) | undefined

  constructor(messagesPerMinute: number, clock: Pick<Clock, "monotonic" | "setTimer">) {
    this.#slice = toSlice(messagesPerMinute)
    this.#clock = clock
  }

  /** Waits for a turn of a webhook. Returns false if the webhook left instead. */
  turn(webhook: string): Promise<boolean> {
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const its = this.#waiting.get(webhook)
    if (its === undefined) this.#waiting.set(webhook, [resolve])
    else its.push(resolve)
    this.#give()
    return promise
  }

  /** Returns true while a webhook waits for a turn. */
  isWaiting(webhook: string): boolean {
    return this.#waiting.has(webhook)
  }

  /** Ends the wait of a webhook that sends nothing more. */
  leave(webhook: string): void {
    const its = this.#waiting.get(webhook) ?? []
    this.#waiting.delete(webhook)
    for (const resolve of its) resolve(false)
    if (this.#waiting.size === 0) this.#sleep(undefined)
  }

  #give(): void {
    const { messages, seconds } = this.#slice
    const now = this.#clock.monotonic()
    while (this.#taken[0] !== undefined && this.#taken[0] <= now - seconds) this.#taken.shift()
    while (this.#taken.length < messages) {
      const [next] = this.#waiting
      if (next === undefined) break
      const [webhook, [first, ...others]] = next
      // The webhook's next turn comes after one of each other webhook.
      this.#waiting.delete(webhook)
      if (others.length > 0) this.#waiting.set(webhook, others)
      this.#taken.push(now)
      first?.(true)
    }
    const [oldest] = this.#taken
    this.#sleep(this.#waiting.size === 0 || oldest === undefined ? undefined : oldest + seconds - now)
  }

  /** @param seconds time until the next turn; undefined: nothing waits */
  #sleep(seconds: number | undefined): void {
    this.#cancel?.()
    this.#cancel = undefined
    if (seconds === undefined) return
    this.#cancel = this.#clock.setTimer(seconds, () => {
      this.#cancel = undefined
      this.#give()
    })
  }
}
