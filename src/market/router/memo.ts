import type { Catalogue } from "./catalogue.ts"

/** Number of results that are kept for each catalogue. */
const MOST = 100

/**
 * Returns a memo of results for a catalogue, by a key of everything else that a result depends on. Jobs of an array or of a
 * cronjob have the same requirements. The machines of a catalogue are thousands of objects. A busy process no longer has
 * them in its CPU's caches, and looking at all of them takes milliseconds.
 */
export function memo<T>(): (catalogue: Catalogue, key: readonly unknown[], compute: () => T) => T {
  const all = new WeakMap<Catalogue, Map<string, T>>()
  return (catalogue, key, compute) => {
    const results = all.get(catalogue) ?? new Map<string, T>()
    all.set(catalogue, results)
    const text = JSON.stringify(key)
    if (results.has(text)) return results.get(text) as T
    const result = compute()
    results.set(text, result)
    const [oldest] = results.keys()
    if (results.size > MOST && oldest !== undefined) results.delete(oldest)
    return result
  }
}
