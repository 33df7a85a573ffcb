import type { Clock } from "../apis/clock.ts"

/** Returns a function that reads a value again after this time, in seconds. It doesn't keep a failure. */
export function keptFor<Value>(seconds: number, clock: Clock, read: () => Promise<Value>): () => Promise<Value> {
  let known: { readAt: number; value: Promise<Value> } | undefined
  return () => {
    const now = clock.monotonic()
    if (known !== undefined && now - known.readAt < seconds) return known.value
    const latest = { readAt: now, value: read() }
    known = latest
    latest.value.catch(() => {
      if (known === latest) known = undefined
    })
    return latest.value
  }
}
