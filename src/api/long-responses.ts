import type { Clock } from "../core/apis/clock.ts"

/** Parts of responses that stay open: followed logs and events. */

/** Interval at which the credentials of a long response are checked again. */
const RECHECK_SECONDS = 1

/** Resolves when the caller's credentials are no longer valid, or the signal aborts. */
export async function untilRefused(mayGoOn: () => Promise<boolean>, clock: Clock, signal: AbortSignal): Promise<void> {
  do await timeOrAbort(RECHECK_SECONDS, clock, signal)
  while (!signal.aborted && (await mayGoOn()))
}

/** Waits for a time, or until the signal aborts. */
export async function timeOrAbort(seconds: number, clock: Clock, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  const { promise, resolve } = Promise.withResolvers<void>()
  const cancel = clock.setTimer(seconds, resolve)
  const stop = (): void => resolve()
  signal.addEventListener("abort", stop, { once: true })
  await promise
  cancel()
  signal.removeEventListener("abort", stop)
}
