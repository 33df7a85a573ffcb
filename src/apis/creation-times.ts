import type { Clock } from "./clock.ts"

/**
 * Gives the times of ANNOTATIONS.createdAt, with microseconds, each later than the one before: what one process makes
 * one after the other sorts so.
 */
export class CreationTimes {
  readonly #clock: Clock
  #lastMicroseconds = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Now, RFC 3339 with six decimals. */
  next(): string {
    const microseconds = Math.max(this.#clock.now().getTime() * 1000, this.#lastMicroseconds + 1)
    this.#lastMicroseconds = microseconds
    const fraction = String(microseconds % 1_000_000).padStart(6, "0")
    return new Date(Math.floor(microseconds / 1000)).toISOString().replace(/\.\d{3}Z$/, `.${fraction}Z`)
  }
}
