import { CloudError } from "../core/outbound/errors.ts"

/** Default maximum number of places that are queried in parallel. */
const AT_ONCE = 16

/** The name of a queried place, for people, and its pages. */
export interface PageSource<T> {
  place: string
  pages: AsyncIterable<T>
}

/**
 * Yields the pages of many places as they arrive. A place that fails does not stop the others. Its error is thrown at
 * the end, with the names of all places that failed.
 * @throws CloudError of the class of the first failure
 */
export async function* merged<T>(sources: readonly PageSource<T>[], atOnce = AT_ONCE): AsyncGenerator<T> {
  const failures: { place: string; error: unknown }[] = []
  const waiting = [...sources]
  const pending = new Map<AsyncIterator<T>, Promise<Arrival<T>>>()
  const places = new Map<AsyncIterator<T>, string>()
  const open = (): void => {
    for (let next = waiting.shift(); next !== undefined; next = pending.size < atOnce ? waiting.shift() : undefined) {
      const iterator = next.pages[Symbol.asyncIterator]()
      places.set(iterator, next.place)
      pending.set(iterator, arrival(iterator))
    }
  }
  try {
    for (open(); pending.size > 0; ) {
      const { iterator, result, error } = await Promise.race(pending.values())
      if (result?.done === false) {
        pending.set(iterator, arrival(iterator))
        yield result.value
        continue
      }
      pending.delete(iterator)
      if (result === undefined) failures.push({ place: places.get(iterator) ?? "", error })
      open()
    }
  } finally {
    // A caller that stops early does not wait for pending pages.
    for (const iterator of pending.keys()) void iterator.return?.().catch(() => undefined)
  }
  throwFailures(failures)
}

interface Arrival<T> {
  iterator: AsyncIterator<T>
  /** Absent after a failure. */
  result?: IteratorResult<T>
  error?: unknown
}

async function arrival<T>(iterator: AsyncIterator<T>): Promise<Arrival<T>> {
  try {
    return { iterator, result: await iterator.next() }
  } catch (error) {
    return { iterator, error }
  }
}

function throwFailures(failures: readonly { place: string; error: unknown }[]): void {
  const [first] = failures
  if (first === undefined) return
  const unexpected = failures.find(({ error }) => !(error instanceof CloudError))
  if (unexpected !== undefined) throw unexpected.error
  const error = first.error as CloudError
  const Kind = error.constructor as new (code: string, message: string, options: ErrorOptions) => CloudError
  throw new Kind(error.code, `${failures.map(({ place }) => place).join(", ")}: ${error.message}`, { cause: error })
}
