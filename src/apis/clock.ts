/**
 * The one source of time for everything that decides by it, injected so that tests own it.
 * `now` is the calendar's time, for what is written and shown; `monotonic` (seconds, never jumps) is
 * for durations that must hold when somebody sets the calendar, such as a lease.
 */
export interface Clock {
  now(): Date
  monotonic(): number
  /** Calls `callback` once after `seconds`; the returned function cancels it. */
  setTimer(seconds: number, callback: () => void): () => void
}

/** setTimeout fires at once for longer delays than this (2^31 - 1 milliseconds). */
const LONGEST_TIMEOUT_MS = 2_147_483_647

/** The machine's own clock. Its timers keep the process alive only as long as they are set. */
export const systemClock: Clock = {
  now: () => new Date(),
  monotonic: () => performance.now() / 1000,
  setTimer(seconds, callback) {
    const timer = setTimeout(callback, Math.min(Math.max(0, seconds * 1000), LONGEST_TIMEOUT_MS))
    return () => clearTimeout(timer)
  },
}

/** RFC 3339 in UTC with whole seconds, as Kubernetes' metav1.Time writes times. */
export function timestamp(date: Date): string {
  return `${date.toISOString().slice(0, 19)}Z`
}

/** Seconds from one RFC 3339 time to another (or to a Date); negative when `to` is earlier. */
export function secondsBetween(from: string | Date, to: string | Date): number {
  return (new Date(to).getTime() - new Date(from).getTime()) / 1000
}
