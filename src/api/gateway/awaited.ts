import type { RequestHandler } from "express"
import type { Clock } from "../../core/apis/clock.ts"
import type { Installation } from "../../core/identity/installation.ts"
import type { Logger } from "../../core/telemetry/logger.ts"
import { unavailable } from "../http/problem.ts"
import { Gateway, type GatewayOptions } from "./gateway.ts"
import type { HostsOptions } from "./hosts.ts"
import type { ReadLeader } from "./owner.ts"
import { gatewayRouter } from "./router.ts"

/** Delay between two reads of an installation that does not exist yet, seconds. */
const LOOK_SECONDS = 2

export interface AwaitedGatewayOptions
  extends Omit<GatewayOptions, "bootstrapKey">,
    Pick<HostsOptions, "machines" | "whyForbidden"> {
  /** Reads the installation, which the operator creates at its first start; undefined before. */
  readInstallation: () => Promise<Installation | undefined>
  /** Returns true once the caches of Launches and Machines are filled. Before that, each message would cost a read. */
  isSynced: () => boolean
  readLeader: ReadLeader
  clock: Clock
  logger: Logger
}

/** Gateway for agents, in a program that may start before the operator has ever run. */
export class AwaitedGateway {
  readonly #options: AwaitedGatewayOptions
  #open: { router: RequestHandler; gateway: Gateway } | undefined
  #fault = "the Secret berth-installation has not been read yet"

  constructor(options: AwaitedGatewayOptions) {
    this.#options = options
  }

  /**
   * Answers 503 until the installation can be read, because no agent can be authenticated before. It also answers 503
   * until the Launches are cached, because all agents reconnect at once after a restart.
   */
  readonly handle: RequestHandler = (req, res, next) => {
    if (this.#open === undefined) next(unavailable("The gateway waits for the operator's first start.", LOOK_SECONDS))
    else if (!this.#options.isSynced()) next(unavailable("The gateway has not read its Launches yet.", LOOK_SECONDS))
    else this.#open.router(req, res, next)
  }

  /** Returns the gateway once it can take messages. */
  get current(): Gateway | undefined {
    return this.#options.isSynced() ? this.#open?.gateway : undefined
  }

  /** Returns the reason why agents get 503; undefined once the installation is read. */
  fault(): string | undefined {
    return this.#open === undefined ? this.#fault : undefined
  }

  /** Reads the installation until it exists, or the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && !(await this.#tryToOpen())) await this.#pause(signal)
  }

  async #tryToOpen(): Promise<boolean> {
    const { readInstallation, isSynced: _, logger, ...options } = this.#options
    try {
      const installation = await readInstallation()
      if (installation !== undefined) {
        const opened = { ...options, logger, bootstrapKey: installation.bootstrapKey }
        const gateway = new Gateway(opened)
        this.#open = { router: gatewayRouter(opened, gateway), gateway }
        return true
      }
      this.#blame("the operator has not created the Secret berth-installation yet: it does so at its first start")
    } catch (error) {
      this.#blame(`the Secret berth-installation can't be read: ${error instanceof Error ? error.message : error}`)
    }
    return false
  }

  #blame(fault: string): void {
    if (fault !== this.#fault) this.#options.logger.warn({ fault }, "the gateway answers agents with 503")
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
