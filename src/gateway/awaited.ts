import type { RequestHandler } from "express"
import type { Clock } from "../apis/clock.ts"
import { unavailable } from "../http/problem.ts"
import type { Installation } from "../identity/installation.ts"
import type { Logger } from "../telemetry/logger.ts"
import type { GatewayOptions } from "./gateway.ts"
import { gatewayRouter } from "./router.ts"

/** How often is looked for an installation that isn't there yet, seconds. */
const LOOK_SECONDS = 2

export interface AwaitedGatewayOptions extends Omit<GatewayOptions, "bootstrapKey"> {
  /** What the operator makes at its first start; undefined before. */
  readInstallation: () => Promise<Installation | undefined>
  /** Whether the cache of Launches has been read: before, each message of an agent would cost a read of its own. */
  isSynced: () => boolean
  clock: Clock
  logger: Logger
}

/** The agents' gateway, of a program that may be started before the operator has ever been. */
export class AwaitedGateway {
  readonly #options: AwaitedGatewayOptions
  #router: RequestHandler | undefined
  #fault = "no installation has been looked for yet"

  constructor(options: AwaitedGatewayOptions) {
    this.#options = options
  }

  /**
   * Answers 503 until there is an installation, as no agent can be known before, and until the Launches are read: after a
   * restart all agents come back at once.
   */
  readonly handle: RequestHandler = (req, res, next) => {
    if (this.#router === undefined) next(unavailable("The gateway waits for the operator's first start.", LOOK_SECONDS))
    else if (!this.#options.isSynced()) next(unavailable("The gateway has not read its Launches yet.", LOOK_SECONDS))
    else this.#router(req, res, next)
  }

  /** Why no agent is let in yet; undefined once they are. */
  fault(): string | undefined {
    return this.#router === undefined ? this.#fault : undefined
  }

  /** Looks until there is an installation, or the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && !(await this.#open())) await this.#pause(signal)
  }

  async #open(): Promise<boolean> {
    const { readInstallation, isSynced: _, logger, ...options } = this.#options
    try {
      const installation = await readInstallation()
      if (installation !== undefined) {
        this.#router = gatewayRouter({ ...options, logger, bootstrapKey: installation.bootstrapKey })
        return true
      }
      this.#blame("the operator has not made the Secret berth-installation yet: it does at its first start")
    } catch (error) {
      this.#blame(`the Secret berth-installation can't be read: ${error instanceof Error ? error.message : error}`)
    }
    return false
  }

  #blame(fault: string): void {
    if (fault !== this.#fault) this.#options.logger.warn({ fault }, "no agent is let in yet")
    this.#fault = fault
  }

  async #pause(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const stop = (): void => resolve()
    signal.addEventListener("abort", stop, { once: true })
    const cancel = this.#options.clock.setTimer(LOOK_SECONDS, resolve)
    await promise
    cancel()
    signal.removeEventListener("abort", stop)
  }
}
