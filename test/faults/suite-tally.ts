import { afterAll } from "vitest"
import { Tally } from "./tally.ts"

/**
 * Returns the tally of the suite that calls this, and closes it at the suite's end.
 * @param name name of the tally's file
 */
export function suiteTally(name: string, title: string): Tally {
  const tally = new Tally(name, title)
  // biome-ignore lint/correctness/noEmptyPattern: vitest accepts no other pattern for an unused context
  afterAll(({}, suite) => tally.close(suite))
  return tally
}
