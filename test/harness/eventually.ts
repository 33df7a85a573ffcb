import { setTimeout as sleep } from "node:timers/promises"

/** Timeout of what a suite needs before it starts, in milliseconds, so that no suite waits for ever. */
export const PATIENCE_MS = 120_000

const SHORTEST_PAUSE_MS = 20
/** Short enough for a state that lasts a second. */
const LONGEST_PAUSE_MS = 250

/** Repeats `check` until it no longer throws, and fails with its last error after `seconds`. */
export async function eventually<T>(check: () => Promise<T> | T, seconds = 60): Promise<T> {
  const began = performance.now()
  for (;;) {
    try {
      return await check()
    } catch (error) {
      if (performance.now() > began + seconds * 1000) throw error
    }
    await pause(began)
  }
}

/** Waits until the condition holds. What it throws ends the wait. @throws Error that names it after `seconds` */
export async function until(what: string, condition: () => unknown, seconds = 60): Promise<void> {
  const began = performance.now()
  while (!(await condition())) {
    if (performance.now() > began + seconds * 1000) throw new Error(`not within ${seconds} s: ${what}`)
    await pause(began)
  }
}

/**
 * Waits a tenth of the time that a wait has taken, within limits. Most looks are requests: one each 20 ms, for as long as
 * a VM boots, takes more CPU than the boot.
 */
function pause(began: number): Promise<void> {
  const pauseMs = (performance.now() - began) / 10
  return sleep(Math.min(Math.max(pauseMs, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS))
}
