import type { Clock } from "../apis/clock.ts"

/** Delays that double from `baseSeconds` up to `capSeconds`. */
export interface BackoffLimits {
  baseSeconds: number
  capSeconds: number
}

/**
 * The delay after the n-th failure in a row (n from 1), in seconds: between half and the whole of the
 * doubled delay, so that many clients which failed together don't return together.
 */
export function backoffSeconds(failures: number, limits: BackoffLimits, random: () => number = Math.random): number {
  const whole = Math.min(limits.capSeconds, limits.baseSeconds * 2 ** Math.max(0, failures - 1))
  return whole * (0.5 + random() / 2)
}

/** Waits; rejects with the signal's reason when that comes first. */
export function pause(clock: Clock, seconds: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.reject(signal.reason as Error)
  return new Promise((resolve, reject) => {
    const aborted = (): void => {
      cancel()
      reject(signal.reason as Error)
    }
    const cancel = clock.setTimer(seconds, () => {
      signal.removeEventListener("abort", aborted)
      resolve()
    })
    signal.addEventListener("abort", aborted, { once: true })
  })
}
