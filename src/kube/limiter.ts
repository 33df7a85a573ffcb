/** Permits for at most `size` tasks at a time, first come, first served. */
export class Limiter {
  readonly #size: number
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(size: number) {
    if (!Number.isInteger(size) || size < 1)
      throw new RangeError(`concurrency is ${size}: give an integer of at least 1`)
    this.#size = size
  }

  /** Number of tasks that wait for a permit. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** Waits for a permit. Call `release` once for each. Rejects with the signal's reason. */
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

  /** Gives the permit to the task that has waited longest. */
  release(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#running--
    else next()
  }
}
