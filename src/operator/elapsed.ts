import { type Clock, secondsBetween } from "../core/apis/clock.ts"

/** Event whose age is measured. */
interface Measured {
  /** Distinguishes events of one key, e.g. the uid of the object. */
  id: string
  /** Time of the event, by any clock; undefined before the event. */
  since: string | undefined
  /** Age of the event at its first sight, seconds, by a clock other than this process's. Default: by the calendar. */
  reported?: number | undefined
}

interface Watched {
  id: string
  /** Monotonic time of the first sight after the event, and the age that the event had then. Absent before the event. */
  begun?: { at: number; age: number }
  /** True if this process saw the object before the event. */
  isWitnessed: boolean
}

/**
 * Measures how long ago events were, so that a change of the calendar's clock ends no job. The monotonic clock counts
 * from the first sight of an event. Of an event before this process's time, the smaller age counts: the measured one, or
 * that of the calendar.
 */
export class ElapsedTimes {
  readonly #clock: Clock
  readonly #watched = new Map<string, Watched>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns the seconds since the event; undefined before it. Call it at each reconcile, also before the event. */
  seconds(key: string, { id, since, reported }: Measured): number | undefined {
    const known = this.#watched.get(key)
    const watched = known?.id === id ? known : { id, isWitnessed: since === undefined }
    this.#watched.set(key, watched)
    if (since === undefined) return undefined
    const at = this.#clock.monotonic()
    const byCalendar = secondsBetween(since, this.#clock.now())
    watched.begun ??= { at, age: watched.isWitnessed ? 0 : Math.max(0, reported ?? byCalendar) }
    const measured = watched.begun.age + at - watched.begun.at
    // A negative age proves that the calendar is wrong.
    return watched.isWitnessed || byCalendar < 0 ? measured : Math.min(measured, byCalendar)
  }

  forget(key: string): void {
    this.#watched.delete(key)
  }
}

/** Returns the time until a state has lasted, seconds. A wrong clock wrote a time that is far in the future. */
export function settlesIn(since: string, now: Date, { settleSeconds }: { settleSeconds: number }): number {
  const age = secondsBetween(since, now)
  return age < -settleSeconds ? 0 : Math.min(settleSeconds, Math.max(0, settleSeconds - age))
}
