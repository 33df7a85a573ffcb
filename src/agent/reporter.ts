import type { Clock } from "../apis/clock.ts"
import type { Disk } from "./disk.ts"
import { type GatewayClient, RefusedError, retrySeconds } from "./gateway-client.ts"
import type { Logger } from "./logger.ts"
import { Bell } from "./pause.ts"
import type { ReportRequest } from "./protocol.ts"

const RETRY_SECONDS = { first: 1, most: 30 }

export interface ReporterOptions {
  disk: Disk
  client: GatewayClient
  clock: Clock
  logger: Logger
  onRefused: (error: RefusedError) => void
  /** The gateway wants the container stopped; may be called again. */
  onStop: () => void
  /** Called before each report that carries the finish. */
  beforeFinish: () => Promise<unknown>
}

/** Tells the gateway how the run stands: at intervals, and at once when something changed. */
export class Reporter {
  readonly #options: ReporterOptions
  readonly #bell = new Bell()
  readonly #stored = Promise.withResolvers<void>()
  /** Seconds between two reports. */
  heartbeatSeconds: number
  #withFinish = false

  constructor(options: ReporterOptions, heartbeatSeconds: number) {
    this.#options = options
    this.heartbeatSeconds = heartbeatSeconds
  }

  /** Something changed. */
  wake(): void {
    this.#bell.ring()
  }

  /** From now on the finish is part of each report: the log that belongs to it is sent. */
  releaseFinish(): void {
    this.#withFinish = true
    this.wake()
  }

  /** Resolves when the gateway has stored the finish. */
  get finishStored(): Promise<void> {
    return this.#stored.promise
  }

  /** Reports until the signal is aborted or the finish is stored. */
  async run(signal: AbortSignal): Promise<void> {
    const { disk, clock } = this.#options
    for (let tries = 0; !signal.aborted && !disk.state.finishStored; ) {
      const retryAfter = await this.#report(tries)
      tries = retryAfter === undefined ? 0 : tries + 1
      if (!disk.state.finishStored) await this.#bell.wait(clock, retryAfter ?? this.heartbeatSeconds, signal)
    }
    if (disk.state.finishStored) this.#stored.resolve()
  }

  /** Undefined when the report was answered, else the seconds to wait before the next. */
  async #report(tries: number): Promise<number | undefined> {
    const { disk, client, logger, onRefused, onStop, beforeFinish } = this.#options
    if (this.#withFinish) await beforeFinish()
    // Written before it is sent: a number is never used twice.
    disk.update({ sequence: disk.state.sequence + 1 })
    const report = this.#compose()
    try {
      const { desired } = await client.report(report)
      if (report.finish !== undefined) disk.update({ finishStored: true })
      if (desired === "stop") onStop()
      return undefined
    } catch (error) {
      if (error instanceof RefusedError) onRefused(error)
      logger.warn({ err: error }, "report not taken")
      return retrySeconds(error, tries, RETRY_SECONDS)
    }
  }

  #compose(): Omit<ReportRequest, "launch"> {
    const { sequence, attempt, startTime, lastExitCode, preemptionNotice, finish } = this.#options.disk.state
    return {
      sequence,
      attempt,
      retryCount: Math.max(0, attempt - 1),
      ...(startTime !== undefined && { startTime }),
      ...(lastExitCode !== undefined && { lastExitCode }),
      ...(preemptionNotice !== undefined && { preemptionNotice }),
      ...(this.#withFinish && finish !== undefined && { finish }),
    }
  }
}
