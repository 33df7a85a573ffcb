import { onAborted } from "../apis/abort.ts"
import { type Clock, systemClock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import { type LeaderElector, LeadershipLostError } from "../kube/lease.ts"
import type { Reflector } from "../kube/reflector.ts"
import type { Controller, ControllerMetrics } from "./controller.ts"

/** Part of a reflector that a manager runs. A Reflector of any kind has it. */
export type RunnableReflector = Pick<Reflector, "run" | "synced" | "whenSynced" | "idleSeconds"> & {
  readonly resource: { readonly plural: string }
}

export interface ManagerOptions {
  reflectors: RunnableReflector[]
  controllers: Controller[]
  logger: Logger
  /** Absent: the controllers run at once, which is safe only if there is never a second manager. */
  elector?: LeaderElector
  /** Other loops that only the leader runs, such as a garbage collection. Each runs until its signal. */
  leaderTasks?: ((signal: AbortSignal) => Promise<void>)[]
  /** Resolves when a new leader may act, or its signal is aborted. Awaited when the caches are filled. */
  cleared?: (signal: AbortSignal) => Promise<void>
  /** Returns the metrics of a controller by its name. */
  metricsOf?: (controller: string) => ControllerMetrics
  clock?: Clock
  /** Longest wait for running reconciles when stopping, seconds. Default 4: an operator must end within ten. */
  drainSeconds?: number
  /**
   * Time without data from the server after which a cache is not ready, seconds. Default 180: a bookmark comes each
   * minute.
   */
  idleTimeoutSeconds?: number
}

export interface Readiness {
  ready: boolean
  /** Reasons why it is not ready, for people. */
  reasons: string[]
  leading: boolean
}

/**
 * Runs the caches always, and the controllers only while leading. On stop, running reconciles finish (aborted after
 * `drainSeconds`), then the lease is released, then the caches end.
 */
export class Manager {
  readonly #options: ManagerOptions
  readonly #clock: Clock
  #leading = false

  constructor(options: ManagerOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
  }

  /** Runs until `stop`. Resolves when everything has ended. */
  async run(stop: AbortSignal): Promise<void> {
    const { reflectors, elector } = this.#options
    const caches = new AbortController()
    const running = Promise.all(reflectors.map((reflector) => reflector.run(caches.signal)))
    try {
      const neverLost = new AbortController().signal
      if (elector === undefined) await this.#lead(stop, neverLost)
      else await elector.run((end, lost) => this.#lead(end, lost), stop)
    } finally {
      caches.abort()
      await running
    }
  }

  /** Returns whether all caches are filled and in touch with the API server. A standby is ready, too. */
  readiness(): Readiness {
    const limit = this.#options.idleTimeoutSeconds ?? 180
    const reasons: string[] = []
    for (const { resource, synced, idleSeconds } of this.#options.reflectors.map(stateOf)) {
      if (!synced) reasons.push(`the cache of ${resource} is not filled yet`)
      else if (idleSeconds > limit)
        reasons.push(`${resource}: no data from the API server for ${Math.round(idleSeconds)} s`)
    }
    return { ready: reasons.length === 0, reasons, leading: this.#leading }
  }

  /** Runs the controllers. `lost`: another replica has the lease, so no further action is allowed. */
  async #lead(stop: AbortSignal, lost: AbortSignal): Promise<void> {
    const { controllers, leaderTasks = [], cleared, metricsOf, logger } = this.#options
    const failed = new AbortController()
    const end = AbortSignal.any([stop, failed.signal])
    const overdue = new AbortController()
    // Set when a controller finds the leadership lost before the elector does, e.g. after the process was suspended.
    const fenced = new AbortController()
    const abort = AbortSignal.any([lost, fenced.signal, overdue.signal])
    const cancelDrain = this.#afterDrain(end, () => overdue.abort(new Error("stopping took too long")))
    try {
      // All caches must be filled, not only those that requeue keys. A job placed before its project is cached gets no
      // credentials.
      if (!(await this.#filled(end))) return
      await cleared?.(end)
      if (end.aborted) return
      this.#leading = true
      // All start together: the launch controller's first list must not contain a Launch that the job controller
      // creates.
      const others = barrier(controllers.length, end)
      const parts = [
        ...controllers.map((controller) =>
          controller.run(end, { abort, metrics: metricsOf?.(controller.name), others }),
        ),
        ...leaderTasks.map((task) => task(end)),
      ]
      // An error of one part ends the others. The lease is kept until all have ended.
      for (const part of parts)
        part.catch((error: unknown) => {
          failed.abort(error)
          if (error instanceof LeadershipLostError) fenced.abort(error)
        })
      await Promise.allSettled(parts)
      if (failed.signal.aborted) throw failed.signal.reason
    } finally {
      this.#leading = false
      cancelDrain()
      logger.info({ controllers: controllers.map(({ name }) => name) }, "controllers stopped")
    }
  }

  /** Waits until every cache is filled. Returns false if `end` came first. */
  async #filled(end: AbortSignal): Promise<boolean> {
    try {
      await Promise.all(this.#options.reflectors.map((reflector) => reflector.whenSynced(end)))
      return true
    } catch (error) {
      if (end.aborted) return false
      throw error
    }
  }

  /** Calls `overdue` if draining takes too long. Draining begins with `end`. Returns a function that cancels. */
  #afterDrain(end: AbortSignal, overdue: () => void): () => void {
    let cancel = (): void => undefined
    const begin = (): void => {
      cancel = this.#clock.setTimer(this.#options.drainSeconds ?? 4, overdue)
    }
    const ignore = onAborted(end, begin)
    return () => {
      ignore()
      cancel()
    }
  }
}

function stateOf(reflector: RunnableReflector): { resource: string; synced: boolean; idleSeconds: number } {
  return { resource: reflector.resource.plural, synced: reflector.synced, idleSeconds: reflector.idleSeconds() }
}

/** Returns a function that resolves after `parties` calls, or when `end` is aborted. */
function barrier(parties: number, end: AbortSignal): () => Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  let missing = parties
  onAborted(end, resolve)
  return () => {
    missing -= 1
    if (missing === 0) resolve()
    return promise
  }
}
