import type { Clock } from "../apis/clock.ts"
import { type GatewayClient, RefusedError } from "./gateway-client.ts"
import type { Logger } from "./logger.ts"
import { Bell, backoff } from "./pause.ts"
import { LOG_CHUNK_BYTES } from "./protocol.ts"
import type { Spool } from "./spool.ts"

/** Output is collected for so long before it is sent, seconds: a request for each line would be many. */
const COLLECT_SECONDS = 0.5

const RETRY_SECONDS = { first: 1, most: 30 }

/** Answers that bring nothing forward before the gateway counts as refusing the log. */
const FRUITLESS_TRIES = 3

export interface ShipperOptions {
  spool: Spool
  client: GatewayClient
  clock: Clock
  logger: Logger
  onRefused: (error: RefusedError) => void
}

/** Sends the spool to the gateway, in order, each byte until it is stored. */
export class Shipper {
  readonly #options: ShipperOptions
  readonly #bell = new Bell()
  /** What the gateway has stored, as it said last. */
  #stored = 0
  #full = false
  #draining: Promise<boolean> | undefined

  constructor(options: ShipperOptions) {
    this.#options = options
  }

  /** There is something new in the spool. */
  wake(): void {
    this.#bell.ring()
  }

  /** Ships until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options
    let tries = 0
    while (!signal.aborted) {
      if (await this.drain()) {
        tries = 0
        await this.#bell.wait(clock, Number.POSITIVE_INFINITY, signal)
        await new Bell().wait(clock, COLLECT_SECONDS, signal)
      } else {
        await new Bell().wait(clock, backoff(tries++, RETRY_SECONDS.first, RETRY_SECONDS.most), signal)
      }
    }
  }

  /** Sends all that is in the spool now; false when the gateway did not take it all. */
  async drain(): Promise<boolean> {
    // One at a time: pieces must come in order.
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = undefined
    })
    return await this.#draining
  }

  async #drain(): Promise<boolean> {
    const { spool, client, logger, onRefused } = this.#options
    try {
      for (let fruitless = 0; !this.#full && this.#stored < spool.length; ) {
        const offset = this.#stored
        const answer = await client.sendLog(offset, await spool.read(offset, LOG_CHUNK_BYTES))
        this.#stored = answer.length
        this.#full = answer.full
        // A store that lost what it had is served again from where it stands, but not for ever.
        fruitless = answer.length > offset ? 0 : fruitless + 1
        if (fruitless === FRUITLESS_TRIES) return false
      }
      return true
    } catch (error) {
      if (error instanceof RefusedError) onRefused(error)
      logger.warn({ err: error }, "log not sent")
      return false
    }
  }
}
