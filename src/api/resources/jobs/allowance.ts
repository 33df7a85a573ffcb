import type { Clock } from "../../../core/apis/clock.ts"

/** Jobs that one request cancels at the same time. */
export const AT_ONCE = 32
/** Longest time of one request, seconds. It is less than the timeout of usual load balancers, which is 30 or 60 s. */
export const BUDGET_SECONDS = 25
/** Interval at which the caller's credentials are checked again, seconds. */
const CHECK_SECONDS = 1

export interface AllowanceOptions {
  clock: Clock
  /** Returns true once the client has disconnected. */
  isClosed: () => boolean
  isStillAuthenticated: () => Promise<boolean>
}

/** Limits of a request that cancels many objects: its time, its client, and its credentials. */
export class Allowance {
  readonly #options: AllowanceOptions
  readonly #until: number
  #checkedAt: number
  #isInvalid = false

  constructor(options: AllowanceOptions) {
    this.#options = options
    this.#checkedAt = options.clock.monotonic()
    this.#until = this.#checkedAt + BUDGET_SECONDS
  }

  /** True if the credentials were found invalid. */
  get isInvalid(): boolean {
    return this.#isInvalid
  }

  /** Returns true if nothing further may be cancelled. */
  async isOver(): Promise<boolean> {
    const { clock, isClosed, isStillAuthenticated } = this.#options
    const now = clock.monotonic()
    if (now - this.#checkedAt >= CHECK_SECONDS) {
      this.#checkedAt = now
      this.#isInvalid ||= !(await isStillAuthenticated())
    }
    return this.#isInvalid || isClosed() || now >= this.#until
  }
}

/** Does work on items, AT_ONCE at the same time, in their order. Ends early when `isOver` returns true. */
export async function onEach<Item>(
  items: readonly Item[],
  isOver: () => Promise<boolean>,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const queue = items.values()
  const worker = async (): Promise<void> => {
    for (const item of queue) {
      if (await isOver()) return
      await work(item)
    }
  }
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, worker))
}
