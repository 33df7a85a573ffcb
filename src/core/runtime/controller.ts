import { onAborted } from "../apis/abort.ts"
import { type Clock, systemClock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import { isConflict } from "../kube/errors.ts"
import { LeadershipLostError } from "../kube/lease.ts"
import type { Reflector } from "../kube/reflector.ts"
import type { ApiObject } from "../kube/resource.ts"
import type { Change, Store } from "../kube/store.ts"
import { Expectations } from "./expectations.ts"
import { KeyQueue, type KeyQueueOptions, type QueueMetrics } from "./queue.ts"

export interface ReconcileResult {
  /** Delay before this key is reconciled again, seconds, even if nothing changes. */
  requeueAfter?: number
}

export interface ReconcileContext {
  /** Aborted when leadership is lost, or when stopping takes too long. Then return without side effects. */
  signal: AbortSignal
  /**
   * Call this after each create, patch or replace of an object in `store` that a later reconcile reads. The next
   * reconcile then waits until the store shows the written object.
   */
  wrote<T extends ApiObject>(store: Store<T>, written: ApiObject): void
  /** Call this after each delete, like `wrote`. */
  deleted<T extends ApiObject>(store: Store<T>, object: ApiObject): void
}

/**
 * Makes the actual state match the object of this key. Reads the present state, never an event. Errors are retried with
 * growing delays, except a TerminalError.
 */
// biome-ignore lint/suspicious/noConfusingVoidType: a reconcile that wants nothing more returns nothing
export type Reconcile = (key: string, context: ReconcileContext) => Promise<ReconcileResult | void>

/** Error that a retry can't resolve; only a change of the object can. */
export class TerminalError extends Error {
  override readonly name = "TerminalError"
}

/** Source of a controller's keys. `watches` creates one. */
export interface Source {
  /** Calls `add` for each existing object and for each change. Returns a function that ends it. */
  subscribe(add: (key: string) => void): () => void
  whenSynced(signal: AbortSignal): Promise<void>
}

/** Creates a source that maps each change of a reflector's objects to keys. Default: the object's own key. */
export function watchSource<T extends ApiObject>(
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
  /** Name in logs, e.g. `job`. */
  name: string
  reconcile: Reconcile
  /** All caches that `reconcile` reads. The first reconcile waits until all of them have synced. */
  sources: Source[]
  logger: Logger
  /** Keys reconciled at the same time. Default 4. */
  workers?: number
  /** Longest wait until the caches show this key's last writes, seconds. Default 10. */
  settleSeconds?: number
}

/** Outcome of a reconcile. `requeue`: it could not start, or met another client's change, and is retried. */
export type ReconcileOutcome = "success" | "requeue_after" | "requeue" | "error" | "terminal_error"

/** Metrics that a controller reports. */
export interface ControllerMetrics extends QueueMetrics {
  reconciled(outcome: ReconcileOutcome, seconds: number): void
}

/** Signals and metrics of one run of a controller. */
export interface RunOptions {
  /** Signal for reconciles: aborted when leadership is lost, or when stopping takes too long. */
  abort: AbortSignal
  metrics?: ControllerMetrics | undefined
  /** Called when this controller's sources have synced. Resolves when those of all controllers have. */
  others?: () => Promise<void>
}

/** Calls `reconcile` for the keys of its sources, until it is stopped. Can run again after it has ended. */
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
   * Runs until `stop`. Then it takes no more keys, and resolves when the running reconciles have ended. Ends in the same
   * way at the first LeadershipLostError of a reconcile, and rejects with it.
   */
  async run(stop: AbortSignal, { abort, metrics, others = async () => undefined }: RunOptions): Promise<void> {
    const queue = new KeyQueue({ ...this.#options, ...(metrics && { metrics }) })
    const expectations = new Expectations(this.#clock)
    const ignore = onAborted(stop, () => queue.close())
    const unsubscribe = this.#options.sources.map((source) => source.subscribe((key) => queue.add(key)))
    try {
      await Promise.all(this.#options.sources.map((source) => source.whenSynced(stop)))
      await others()
      const work: Work = { expectations, abort, metrics }
      const workers = Array.from({ length: this.#options.workers ?? 4 }, () => this.#work(queue, work))
      await Promise.all(workers)
      if (work.lost !== undefined) throw work.lost
    } catch (error) {
      if (!stop.aborted) throw error
    } finally {
      for (const end of unsubscribe) end()
      ignore()
      queue.close()
    }
  }

  async #work(queue: KeyQueue, work: Work): Promise<void> {
    const { metrics } = work
    for (let key = await queue.next(); key !== undefined; key = await queue.next()) {
      const startedAt = this.#clock.monotonic()
      let outcome: ReconcileOutcome
      try {
        outcome = await this.#reconcileOnce(key, queue, work)
      } catch (error) {
        outcome = this.#failed(key, queue, { error, work })
      } finally {
        queue.done(key)
      }
      metrics?.reconciled(outcome, this.#clock.monotonic() - startedAt)
    }
  }

  async #reconcileOnce(key: string, queue: KeyQueue, { expectations, abort }: Work): Promise<ReconcileOutcome> {
    if (!(await this.#settled(key, expectations, abort))) {
      if (!abort.aborted)
        this.#options.logger.warn(this.#about(key), "the caches don't show the last write yet; retrying")
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
    const ignore = onAborted(abort, end)
    try {
      return !abort.aborted && (await expectations.settled(key, waiting.signal))
    } finally {
      cancel()
      ignore()
    }
  }

  #failed(key: string, queue: KeyQueue, { error, work }: { error: unknown; work: Work }): ReconcileOutcome {
    const { logger } = this.#options
    const about = { ...this.#about(key), err: error }
    if (error instanceof LeadershipLostError) {
      work.lost ??= error
      queue.close()
    }
    if (work.abort.aborted || work.lost !== undefined) {
      logger.debug(about, "reconcile aborted")
      return "requeue"
    }
    if (error instanceof TerminalError) {
      queue.forget(key)
      logger.error(about, "reconcile failed; it is retried only after a change of the object")
      return "terminal_error"
    }
    queue.addRateLimited(key)
    // A Conflict only means that the object has changed in the meantime.
    if (isConflict(error)) {
      logger.debug(about, "reconcile conflicted, retrying")
      return "requeue"
    }
    logger.warn({ ...about, failures: queue.failures(key) }, "reconcile failed, retrying")
    return "error"
  }

  #about(key: string): { controller: string; key: string } {
    return { controller: this.name, key }
  }
}

/** Inputs of a worker besides the queue. */
interface Work {
  expectations: Expectations
  abort: AbortSignal
  metrics: ControllerMetrics | undefined
  /** First error of a reconcile that found the leadership lost. */
  lost?: LeadershipLostError
}
