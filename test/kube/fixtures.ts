import { setTimeout as sleep } from "node:timers/promises"
import type { Logger } from "../../src/core/apis/logger.ts"

export const silentLogger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
}

/** Waits until the condition holds; throws an Error that names it after `seconds`. */
export async function eventually(what: string, condition: () => unknown, seconds = 60): Promise<void> {
  const deadline = performance.now() + seconds * 1000
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`)
    await sleep(20)
  }
}
