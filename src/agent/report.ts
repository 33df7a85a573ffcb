import { backoffSeconds } from "../core/apis/backoff.ts"
import { type Clock, secondsBetween } from "../core/apis/clock.ts"
import type { Finish } from "../core/apis/launch.ts"
import type { Logger } from "../core/apis/logger.ts"
import { LOG_CHUNK_BYTES, type LogsResponse, type ReportRequest } from "../core/protocol/protocol.ts"
import type { Disk } from "./disk.ts"
import type { GatewayClient } from "./gateway-client.ts"
import { RefusedError, retrySeconds } from "./gateway-connection.ts"
import { cutMessage } from "./run.ts"
import { gapLine, type Spool } from "./spool.ts"
import { AsyncSignal } from "./timers.ts"
import { UsageDelivery } from "./usage/delivery.ts"
import type { Meter } from "./usage/meter.ts"

const RETRY_SECONDS = { baseSeconds: 1, capSeconds: 30 }

export interface ReporterOptions {
  disk: Disk
  meter: Pick<Meter, "points" | "stored">
  client: GatewayClient
  clock: Clock
  logger: Logger
  onRefused: (error: RefusedError) => void
  /** Called when the gateway wants the container stopped; may be called again. */
  onStop: () => void
  /** Called with the open sessions of each answer. Returns the longest time until the next report, seconds. */
  onSessions: (ids: readonly string[]) => number
  /** Called before each report with the finish. Returns what its message says about the log, if anything. */
  beforeFinish: () => Promise<string | undefined>
}

/** Reports the state of the run to the gateway, at intervals and immediately after a change. */
export class Reporter {
  readonly #options: ReporterOptions
  readonly #signal = new AsyncSignal()
  readonly #stored = Promise.withResolvers<void>()
  /** Seconds between two reports. */
  heartbeatSeconds: number
  readonly #usage: UsageDelivery
  #withFinish = false

  constructor(options: ReporterOptions, heartbeatSeconds: number) {
    this.#options = options
    this.#usage = new UsageDelivery(options.meter, options.clock)
    this.heartbeatSeconds = heartbeatSeconds
  }

  /** Sends a report soon, because the state has changed. */
  wake(): void {
    this.#signal.notify()
  }

  /** Adds the finish to each report from now on. Call it after the log is sent. */
  releaseFinish(): void {
    this.#withFinish = true
    this.wake()
  }

  /** Resolves when the gateway has stored the finish. */
  get finishStored(): Promise<void> {
    return this.#stored.promise
  }

  /** Reports until the signal is aborted or the finish is stored. Those of a VM that is kept go on. */
  async run(signal: AbortSignal): Promise<void> {
    const { disk, clock } = this.#options
    const isDone = (): boolean => {
      if (disk.state.finishStored) this.#stored.resolve()
      return disk.state.finishStored && disk.state.finish?.keptUntil === undefined
    }
    for (let tries = 0; !isDone() && !signal.aborted; ) {
      const retryAfter = await this.#report(tries)
      tries = retryAfter === undefined ? 0 : tries + 1
      if (!isDone()) await this.#signal.wait(clock, retryAfter ?? this.heartbeatSeconds, signal)
    }
  }

  /** Returns undefined if the report was answered, else the delay before the next one, seconds. */
  async #report(tries: number): Promise<number | undefined> {
    const { disk, client, logger, onRefused, onStop, onSessions, beforeFinish } = this.#options
    const isFinishDue = this.#withFinish && !disk.state.finishStored
    const note = isFinishDue ? await beforeFinish() : undefined
    // Written before the report is sent, so that a number is never used twice.
    disk.update({ sequence: disk.state.sequence + 1 })
    const report = this.#compose(isFinishDue, note)
    try {
      const answer = await client.report(report)
      this.heartbeatSeconds = Math.min(answer.heartbeatSeconds, onSessions(answer.sessions ?? []))
      this.#usage.answered(report, answer)
      if (report.finish !== undefined) disk.update({ finishStored: true })
      if (answer.desired === "stop") onStop()
      return undefined
    } catch (error) {
      if (error instanceof RefusedError) onRefused(error)
      logger.warn({ err: error }, "failed to send a report; retrying")
      return retrySeconds(error, tries, RETRY_SECONDS)
    }
  }

  #compose(isFinishDue: boolean, note: string | undefined): Omit<ReportRequest, "launch"> {
    const { disk, clock } = this.#options
    const { sequence, attempt, startTime, lastExitCode, preemptionNotice, finish } = disk.state
    return {
      sequence,
      attempt,
      retryCount: Math.max(0, attempt - 1),
      ...(startTime !== undefined && { startTime }),
      ...(lastExitCode !== undefined && { lastExitCode }),
      ...(preemptionNotice !== undefined && { preemptionNotice }),
      ...(isFinishDue && finish !== undefined && { finish: reported(withNote(finish, note), clock.now()) }),
      ...this.#usage.next(isFinishDue),
    }
  }
}

/** Returns the finish as the gateway gets it. The time of a kept VM counts from now on, whatever this VM's clock says. */
function reported({ keptUntil, ...finish }: Finish, now: Date): NonNullable<ReportRequest["finish"]> {
  const keepSeconds = keptUntil === undefined ? 0 : Math.round(secondsBetween(now, keptUntil))
  return keepSeconds > 0 ? { ...finish, keepSeconds } : finish
}

/** Returns the finish with a note in its message. */
function withNote(finish: Finish, note: string | undefined): Finish {
  if (note === undefined) return finish
  const said = finish.message ?? (finish.reason === "Succeeded" ? "succeeded" : finish.reason)
  return { ...finish, message: cutMessage(`${said}, but ${note}`) }
}

/** Delay before new output is sent, seconds. It prevents a request for each line. The first output is sent at once. */
const COLLECT_SECONDS = 0.5

/** Number of answers without progress after which sending the log counts as failed. */
const FRUITLESS_TRIES = 3

/** Cause of a gap after the gateway has lost output that it had stored, and that the VM no longer has. */
export const LOST_BY_STORE = "Berth's store of logs no longer has them"

export interface ShipperOptions {
  spool: Spool
  client: GatewayClient
  clock: Clock
  logger: Logger
  onRefused: (error: RefusedError) => void
}

/** Sends the spool to the gateway in order and retries each byte until it is stored. */
export class Shipper {
  readonly #options: ShipperOptions
  readonly #signal = new AsyncSignal()
  /** Offset in the spool up to which the gateway has stored the log, from its last answer. */
  #stored = 0
  /** Offset in the gateway's log less that in the spool. It differs from 0 after the gateway has lost a part. */
  #shift = 0
  #draining: Promise<boolean> | undefined
  /** True if it is known what the gateway has. Before its first answer, an earlier agent of this disk may have sent a part. */
  #isStoredKnown: boolean
  /** Message of the last failure; undefined after a success. */
  #failure: string | undefined

  constructor(options: ShipperOptions) {
    this.#options = options
    this.#isStoredKnown = options.spool.length === 0
  }

  /** Sends soon, because the spool has new output. */
  wake(): void {
    this.#signal.notify()
  }

  /** Says how much of the log is not stored, and why; undefined if all of it is. */
  get missing(): string | undefined {
    const bytes = this.#options.spool.length - this.#stored
    if (bytes <= 0) return undefined
    const what = this.#isStoredKnown
      ? `the last ${bytes} bytes of its log are missing`
      : "the end of its log may be missing"
    return `${what}: ${this.#failure ?? "it was not sent in time"}`
  }

  /** Ships until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options
    let tries = 0
    while (!signal.aborted) {
      if (await this.drain()) {
        tries = 0
        await this.#signal.wait(clock, Number.POSITIVE_INFINITY, signal)
        if (this.#stored > 0) await new AsyncSignal().wait(clock, COLLECT_SECONDS, signal)
      } else {
        await new AsyncSignal().wait(clock, backoffSeconds(tries++ + 1, RETRY_SECONDS), signal)
      }
    }
  }

  /** Sends the whole spool. Resolves with false if the gateway did not accept all of it. */
  async drain(): Promise<boolean> {
    // Only one request at a time, because pieces must come in order.
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = undefined
    })
    return await this.#draining
  }

  async #drain(): Promise<boolean> {
    const { spool, logger, onRefused } = this.#options
    try {
      for (let fruitless = 0; this.#stored < spool.length; ) {
        if (this.#stored < spool.start) await this.#skip()
        const offset = this.#stored
        const answer = await this.#send(offset)
        this.#failure = undefined
        this.#isStoredKnown = true
        this.#stored = answer.length - this.#shift
        await spool.release(this.#stored)
        // If the store has lost data, continue from its length, but not forever.
        fruitless = this.#stored > offset ? 0 : fruitless + 1
        if (fruitless === FRUITLESS_TRIES) return false
      }
      return true
    } catch (error) {
      if (error instanceof RefusedError) onRefused(error)
      logger.warn({ err: error }, "failed to send the log; retrying")
      this.#failure = error instanceof Error ? error.message : String(error)
      return false
    }
  }

  /**
   * Continues at the spool's start, if the gateway has less. After a restart of the agent it has all of it. Otherwise it has
   * lost data that the VM no longer holds, and a line says so.
   */
  async #skip(): Promise<void> {
    const { spool, client } = this.#options
    const { start } = spool
    const { length } = await client.sendLog(start + this.#shift, Buffer.alloc(0))
    this.#stored = length - this.#shift
    if (this.#stored >= start) return
    const answer = await client.sendLog(length, Buffer.from(gapLine(start - this.#stored, LOST_BY_STORE)))
    this.#stored = start
    this.#shift = answer.length - start
  }

  async #send(offset: number): Promise<LogsResponse> {
    const { spool, client } = this.#options
    const data = await spool.read(offset, LOG_CHUNK_BYTES)
    const marks = spool.marks(offset, offset + data.byteLength)
    const times = marks.map(({ offset: start, seconds }) => ({ at: start - offset, seconds }))
    return await client.sendLog(offset + this.#shift, data, times)
  }
}
