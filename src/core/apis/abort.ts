/**
 * Calls `callback` once the signal is aborted: at once, if it is. A signal may outlive what listens to it, so call the
 * returned function when the listener is no longer needed.
 */
export function onAborted(signal: AbortSignal, callback: () => void): () => void {
  if (signal.aborted) callback()
  else signal.addEventListener("abort", callback, { once: true })
  return () => signal.removeEventListener("abort", callback)
}

/** Resolves once the signal is aborted. */
export async function untilAborted(signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => onAborted(signal, resolve))
}

/** Settles like the promise, but rejects with the signal's reason if that is aborted first, though the work may run on. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  // A late failure of abandoned work has no reader.
  work.catch(() => undefined)
  const ignore = onAborted(signal, () => reject(signal.reason as Error))
  try {
    return await Promise.race([promise, work])
  } finally {
    ignore()
  }
}
