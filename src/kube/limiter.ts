/** First come, first served permits for at most `size` tasks at a time. */
export class Limiter {
  readonly #size: number
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(size: number) {
    if (!Number.isInteger(size) || size < 1)
      throw new RangeError(`concurrency is ${size}: give an integer of at least 1`)
    this.#size = size
  }

  /** Tasks that wait for a permit. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** Waits for a permit; call `release` once for each. Rejects with the signal's reason. */
  acquire(signal: AbortSignal): Promise<void> | undefined {
    if (this.#running < this.#size) {
      this.#running++
      return undefined
    }
    return new Promise((resolve, reject) => {
      const granted = (): void => {
        signal.removeEventListener("abort", aborted)
        resolve()
      }
      const aborted = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(granted), 1)
        reject(signal.reason as Error)
      }
      this.#waiting.push(granted)
      signal.addEventListener("abort", aborted, { once: true })
    })
  }

  /** Hands the permit to the longest waiting task. */
  release(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#running--
    else next()
  }
}
