import { type Clock, systemClock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { LeaderElector } from "../kube/lease.ts"
import type { Reflector } from "../kube/reflector.ts"
import type { Controller, ControllerMetrics } from "./controller.ts"

/** The part of a reflector that a manager runs; a Reflector of any kind is one. */
export type RunnableReflector = Pick<Reflector, "run" | "synced" | "whenSynced" | "silentSeconds"> & {
  readonly resource: { readonly plural: string }
}

export interface ManagerOptions {
  reflectors: RunnableReflector[]
  controllers: Controller[]
  logger: Logger
  /** Without one the controllers run at once: only where there is never a second manager. */
  elector?: LeaderElector
  /** Other loops that only the leader runs, e.g. a sweep; each runs until its signal. */
  leaderTasks?: ((signal: AbortSignal) => Promise<void>)[]
  /** Gives a controller, by its name, whom it tells of its work. */
  metricsOf?: (controller: string) => ControllerMetrics
  clock?: Clock
  /** How long running reconciles may take to finish when stopping. Default 4: all of an operator ends within ten. */
  drainSeconds?: number
  /** A cache whose server was silent for longer is not ready. Default 180: a bookmark comes each minute. */
  silenceSeconds?: number
}

export interface Readiness {
  ready: boolean
  /** Why not, for people. */
  reasons: string[]
  leading: boolean
}

/**
 * Runs the caches always and the controllers only while leading. When stopped: no new keys, running
 * reconciles finish (aborted after `drainSeconds`), then the lease is released, then the caches end.
 */
export class Manager {
  readonly #options: ManagerOptions
  readonly #clock: Clock
  #leading = false

  constructor(options: ManagerOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
  }

  /** Runs until `stop`, and resolves when all has ended. */
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

  /** Whether all caches are filled and in touch with the API server; a standby is ready, too. */
  readiness(): Readiness {
    const limit = this.#options.silenceSeconds ?? 180
    const reasons: string[] = []
    for (const { resource, synced, silentSeconds } of this.#options.reflectors.map(stateOf)) {
      if (!synced) reasons.push(`the cache of ${resource} is not filled yet`)
      else if (silentSeconds > limit)
        reasons.push(`${resource}: no word from the API server for ${Math.round(silentSeconds)} s`)
    }
    return { ready: reasons.length === 0, reasons, leading: this.#leading }
  }

  /** `lost`: the lease is another's now, so that each further act would be one too many. */
  async #lead(stop: AbortSignal, lost: AbortSignal): Promise<void> {
    const { controllers, leaderTasks = [], metricsOf, logger } = this.#options
    const failed = new AbortController()
    const end = AbortSignal.any([stop, failed.signal])
    const overdue = new AbortController()
    const abort = AbortSignal.any([lost, overdue.signal])
    const cancelDrain = this.#afterDrain(end, () => overdue.abort(new Error("stopping took too long")))
    this.#leading = true
    try {
      // All caches, not only those that wake a controller: a job placed before its project is cached gets no credentials.
      if (!(await this.#filled(end))) return
      // Together: a Launch that the job controller makes must not be on the list with which the launch controller begins.
      const others = barrier(controllers.length, end)
      const parts = [
        ...controllers.map((controller) =>
          controller.run(end, { abort, metrics: metricsOf?.(controller.name), others }),
        ),
        ...leaderTasks.map((task) => task(end)),
      ]
      // One that fails ends the others, and all are waited for: none may run on without the lease.
      for (const part of parts) part.catch((error: unknown) => failed.abort(error))
      await Promise.allSettled(parts)
      if (failed.signal.aborted) throw failed.signal.reason
    } finally {
      this.#leading = false
      cancelDrain()
      logger.info({ controllers: controllers.map(({ name }) => name) }, "controllers stopped")
    }
  }

  /** Waits until every cache is filled. Returns false when `end` came before. */
  async #filled(end: AbortSignal): Promise<boolean> {
    try {
      await Promise.all(this.#options.reflectors.map((reflector) => reflector.whenSynced(end)))
      return true
    } catch (error) {
      if (end.aborted) return false
      throw error
    }
  }

  /** Calls `overdue` when draining, which begins with `end`, takes too long; returns how to cancel. */
  #afterDrain(end: AbortSignal, overdue: () => void): () => void {
    let cancel = (): void => undefined
    const begin = (): void => {
      cancel = this.#clock.setTimer(this.#options.drainSeconds ?? 4, overdue)
    }
    if (end.aborted) begin()
    else end.addEventListener("abort", begin, { once: true })
    return () => {
      end.removeEventListener("abort", begin)
      cancel()
    }
  }
}

function stateOf(reflector: RunnableReflector): { resource: string; synced: boolean; silentSeconds: number } {
  return { resource: reflector.resource.plural, synced: reflector.synced, silentSeconds: reflector.silentSeconds() }
}

/** Returns a function that resolves when it has been called so many times, or when `end` is aborted. */
function barrier(parties: number, end: AbortSignal): () => Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  let missing = parties
  end.addEventListener("abort", () => resolve(), { once: true })
  return () => {
    missing -= 1
    if (missing === 0) resolve()
    return promise
  }
}
