import { setTimeout as sleep } from "node:timers/promises"

/** Timeout of what a suite needs before it starts, in milliseconds, so that no suite waits for ever. */
export const PATIENCE_MS = 120_000

/** Repeats `check` until it no longer throws, and fails with its last error after `seconds`. */
export async function eventually<T>(check: () => Promise<T> | T, seconds = 60): Promise<T> {
  const deadline = performance.now() + seconds * 1000
  for (;;) {
    try {
      return await check()
    } catch (error) {
      if (performance.now() > deadline) throw error
    }
    await sleep(50)
  }
}

/** Waits until the condition holds. What it throws ends the wait. @throws Error that names it after `seconds` */
export async function until(what: string, condition: () => unknown, seconds = 60): Promise<void> {
  const deadline = performance.now() + seconds * 1000
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`)
    await sleep(20)
  }
}
