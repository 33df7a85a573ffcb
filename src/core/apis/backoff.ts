import { unlessAborted } from "./abort.ts"
import type { Clock } from "./clock.ts"

/** Delays that double from `baseSeconds` up to `capSeconds`. */
export interface BackoffLimits {
  baseSeconds: number
  capSeconds: number
}

/**
 * Returns the delay after the n-th failure in a row (n from 1), seconds. It is random between half and the whole of the
 * doubled delay, so many clients that failed together do not return together.
 */
export function backoffSeconds(failures: number, limits: BackoffLimits, random: () => number = Math.random): number {
  const whole = Math.min(limits.capSeconds, limits.baseSeconds * 2 ** Math.max(0, failures - 1))
  return whole * (0.5 + random() / 2)
}

/** Waits. Rejects with the signal's reason if the signal is aborted first. */
export async function pause(clock: Clock, seconds: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const cancel = clock.setTimer(seconds, resolve)
  await unlessAborted(promise, signal).finally(cancel)
}
