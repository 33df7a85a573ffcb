/** Resolves after a time; rejects with the signal's reason when it aborts. Works in Node.js and in browsers. */
export function delay(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason)
    const end = (): void => {
      signal?.removeEventListener("abort", abort)
      resolve()
    }
    const timer = setTimeout(end, milliseconds)
    const abort = (): void => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    signal?.addEventListener("abort", abort, { once: true })
  })
}
