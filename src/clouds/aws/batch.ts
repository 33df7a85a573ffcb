import type { Clock } from "../../core/apis/clock.ts"

export interface BatchOptions<Item, Answer> {
  /** One call for many items; answers in the order of the items. If it throws, every item gets that error. */
  call(items: readonly Item[]): Promise<readonly (Answer | Error)[]>
  /** Maximum number of items in one call. */
  most: number
  /** Time that the first item waits for others. */
  gatherSeconds: number
  clock: Clock
}

/** Combines many requests of about the same time into one call. */
export class Batch<Item, Answer> {
  readonly #options: BatchOptions<Item, Answer>
  #waiting: { item: Item; resolve: (answer: Answer) => void; reject: (error: unknown) => void }[] = []

  constructor(options: BatchOptions<Item, Answer>) {
    this.#options = options
  }

  /** Resolves or rejects with the item's own part of the answer. */
  ask(item: Item): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    this.#waiting.push({ item, resolve, reject })
    if (this.#waiting.length === this.#options.most) void this.#flush()
    else if (this.#waiting.length === 1) {
      this.#options.clock.setTimer(this.#options.gatherSeconds, () => void this.#flush())
    }
    return promise
  }

  async #flush(): Promise<void> {
    const asked = this.#waiting
    this.#waiting = []
    if (asked.length === 0) return
    try {
      const answers = await this.#options.call(asked.map(({ item }) => item))
      for (const [index, { resolve, reject }] of asked.entries()) {
        const answer = answers[index]
        if (answer instanceof Error) reject(answer)
        else resolve(answer as Answer)
      }
    } catch (error) {
      for (const { reject } of asked) reject(error)
    }
  }
}
