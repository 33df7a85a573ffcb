/**
 * Source of time for every decision, injected so that tests control it.
 * `now` is the wall clock, for times that are stored and shown. `monotonic` (seconds, never jumps) is for durations,
 * such as a lease, that must hold when the wall clock is changed.
 */
export interface Clock {
  now(): Date
  monotonic(): number
  /** Calls `callback` once after `seconds`; the returned function cancels it. */
  setTimer(seconds: number, callback: () => void): () => void
}

/** setTimeout fires at once for longer delays than this (2^31 - 1 milliseconds). */
const LONGEST_TIMEOUT_MS = 2_147_483_647

/** System clock. A pending timer keeps the process alive. */
export const systemClock: Clock = {
  now: () => new Date(),
  monotonic: () => performance.now() / 1000,
  setTimer(seconds, callback) {
    const timer = setTimeout(callback, Math.min(Math.max(0, seconds * 1000), LONGEST_TIMEOUT_MS))
    return () => clearTimeout(timer)
  },
}

/** Returns RFC 3339 in UTC with whole seconds, like metav1.Time of Kubernetes. */
export function timestamp(date: Date): string {
  return `${date.toISOString().slice(0, 19)}Z`
}

/** Returns the seconds from one RFC 3339 time to another (or to a Date); negative if `to` is earlier. */
export function secondsBetween(from: string | Date, to: string | Date): number {
  return (new Date(to).getTime() - new Date(from).getTime()) / 1000
}
