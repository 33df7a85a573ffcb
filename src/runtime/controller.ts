import { type Clock, systemClock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import { isConflict } from "../kube/errors.ts"
import type { Reflector } from "../kube/reflector.ts"
import type { ApiObject } from "../kube/resource.ts"
import type { Change, Store } from "../kube/store.ts"
import { Expectations } from "./expectations.ts"
import { KeyQueue, type KeyQueueOptions, type QueueMetrics } from "./queue.ts"

export interface ReconcileResult {
  /** Look at this key again after so many seconds, even if nothing changes. */
  requeueAfter?: number
}

export interface ReconcileContext {
  /** Aborted when leadership is lost, or when stopping takes too long: give up without side effects. */
  signal: AbortSignal
  /**
   * Say it after each create, patch or replace of something that a later reconcile of this key reads
   * from `store`: that one starts only when the store shows it.
   */
  wrote<T extends ApiObject>(store: Store<T>, written: ApiObject): void
  /** The same after a delete. */
  deleted<T extends ApiObject>(store: Store<T>, object: ApiObject): void
}

/**
 * Brings the world closer to what the object of this key asks for. It reads the present state, never
 * an event. What it throws is retried with growing delays, a TerminalError is not.
 */
// biome-ignore lint/suspicious/noConfusingVoidType: a reconcile that wants nothing more returns nothing
export type Reconcile = (key: string, context: ReconcileContext) => Promise<ReconcileResult | void>

/** An error that trying again can't mend; only a change of the object can. */
export class TerminalError extends Error {
  override readonly name = "TerminalError"
}

/** Where a controller's keys come from. Made by `watches`. */
export interface Source {
  /** Calls `add` for what is there and for each change; returns how to end it. */
  subscribe(add: (key: string) => void): () => void
  whenSynced(signal: AbortSignal): Promise<void>
}

/** Maps each change of a reflector's objects to keys to reconcile; default: the object's own key. */
export function watches<T extends ApiObject>(
  reflector: Reflector<T>,
  keysOf: (change: Change<T>) => Iterable<string> = (change) => [change.key],
): Source {
  return {
    subscribe: (add) =>
      reflector.onChange((change) => {
        for (const key of keysOf(change)) add(key)
      }),
    whenSynced: (signal) => reflector.whenSynced(signal),
  }
}

export interface ControllerOptions extends Omit<KeyQueueOptions, "metrics"> {
  /** For logs, e.g. `job`. */
  name: string
  reconcile: Reconcile
  /** All caches that `reconcile` reads; it is first called when each of them has synced. */
  sources: Source[]
  logger: Logger
  /** Keys reconciled at the same time. Default 4. */
  workers?: number
  /** How long a reconcile waits for the caches to show this key's last writes. Default 10. */
  settleSeconds?: number
}

/** How a reconcile ended. `requeue`: it could not begin, or met a change of somebody else's, and is tried again. */
export type ReconcileOutcome = "success" | "requeue_after" | "requeue" | "error" | "terminal_error"

/** What a controller tells its metrics. */
export interface ControllerMetrics extends QueueMetrics {
  reconciled(outcome: ReconcileOutcome, seconds: number): void
}

/** Signals and metrics of one run of a controller. */
export interface RunOptions {
  /** Signal that reconciles see: aborted when leadership is lost, or when stopping takes too long. */
  abort: AbortSignal
  metrics?: ControllerMetrics | undefined
  /** Called when this controller's sources have synced; resolves when those of all controllers have. */
  others?: () => Promise<void>
}

/** Keeps calling `reconcile` for the keys that its sources name. Can be run again after it has ended. */
export class Controller {
  readonly name: string
  readonly #options: ControllerOptions
  readonly #clock: Clock

  constructor(options: ControllerOptions) {
    this.name = options.name
    this.#options = options
    this.#clock = options.clock ?? systemClock
  }

  /**
   * Runs until `stop`: then it takes no more keys and resolves when the running reconciles have ended.
   */
  async run(stop: AbortSignal, { abort, metrics, others = async () => undefined }: RunOptions): Promise<void> {
    const queue = new KeyQueue({ ...this.#options, ...(metrics && { metrics }) })
    const expectations = new Expectations(this.#clock)
    const close = (): void => queue.close()
    if (stop.aborted) close()
    stop.addEventListener("abort", close, { once: true })
    const unsubscribe = this.#options.sources.map((source) => source.subscribe((key) => queue.add(key)))
    try {
      await Promise.all(this.#options.sources.map((source) => source.whenSynced(stop)))
      await others()
      const workers = Array.from({ length: this.#options.workers ?? 4 }, () =>
        this.#work(queue, { expectations, abort, metrics }),
      )
      await Promise.all(workers)
    } catch (error) {
      if (!stop.aborted) throw error
    } finally {
      for (const end of unsubscribe) end()
      stop.removeEventListener("abort", close)
      queue.close()
    }
  }

  async #work(queue: KeyQueue, { expectations, abort, metrics }: Work): Promise<void> {
    for (let key = await queue.next(); key !== undefined; key = await queue.next()) {
      const startedAt = this.#clock.monotonic()
      let outcome: ReconcileOutcome
      try {
        outcome = await this.#reconcileOnce(key, queue, { expectations, abort })
      } catch (error) {
        outcome = this.#failed(key, queue, { error, abort })
      } finally {
        queue.done(key)
      }
      metrics?.reconciled(outcome, this.#clock.monotonic() - startedAt)
    }
  }

  async #reconcileOnce(
    key: string,
    queue: KeyQueue,
    { expectations, abort }: Omit<Work, "metrics">,
  ): Promise<ReconcileOutcome> {
    if (!(await this.#settled(key, expectations, abort))) {
      if (!abort.aborted) this.#options.logger.warn(this.#about(key), "the caches don't show the last write yet: later")
      queue.addRateLimited(key)
      return "requeue"
    }
    const result = await this.#options.reconcile(key, {
      signal: abort,
      wrote: (store, written) => expectations.wrote(key, store, written),
      deleted: (store, object) => expectations.deleted(key, store, object),
    })
    queue.forget(key)
    if (result?.requeueAfter === undefined) return "success"
    queue.addAfter(key, result.requeueAfter)
    return "requeue_after"
  }

  async #settled(key: string, expectations: Expectations, abort: AbortSignal): Promise<boolean> {
    const waiting = new AbortController()
    const end = (): void => waiting.abort()
    const cancel = this.#clock.setTimer(this.#options.settleSeconds ?? 10, end)
    abort.addEventListener("abort", end, { once: true })
    try {
      return !abort.aborted && (await expectations.settled(key, waiting.signal))
    } finally {
      cancel()
      abort.removeEventListener("abort", end)
    }
  }

  #failed(key: string, queue: KeyQueue, { error, abort }: { error: unknown; abort: AbortSignal }): ReconcileOutcome {
    const { logger } = this.#options
    const about = { ...this.#about(key), err: error }
    if (abort.aborted) {
      logger.debug(about, "reconcile aborted")
      return "requeue"
    }
    if (error instanceof TerminalError) {
      queue.forget(key)
      logger.error(about, "reconcile failed for good: only a change of the object can help")
      return "terminal_error"
    }
    queue.addRateLimited(key)
    // A Conflict only means that the object has changed meanwhile.
    if (isConflict(error)) {
      logger.debug(about, "reconcile conflicted, trying again")
      return "requeue"
    }
    logger.warn({ ...about, failures: queue.failures(key) }, "reconcile failed, trying again")
    return "error"
  }

  #about(key: string): { controller: string; key: string } {
    return { controller: this.name, key }
  }
}

/** What a worker needs beside the queue. */
interface Work {
  expectations: Expectations
  abort: AbortSignal
  metrics: ControllerMetrics | undefined
}
