import { type FileHandle, open } from "node:fs/promises"
import { backoffSeconds } from "../apis/backoff.ts"
import type { Clock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { Disk } from "./disk.ts"
import { type GatewayClient, GatewayError, RefusedError, retrySeconds } from "./gateway-client.ts"
import { LARGE_LOG_CHUNK_BYTES, LOG_CHUNK_BYTES, type LogsResponse, type ReportRequest } from "./protocol.ts"
import { AsyncSignal } from "./timers.ts"

const RETRY_SECONDS = { baseSeconds: 1, capSeconds: 30 }

export interface ReporterOptions {
  disk: Disk
  client: GatewayClient
  clock: Clock
  logger: Logger
  onRefused: (error: RefusedError) => void
  /** Called when the gateway wants the container stopped; may be called again. */
  onStop: () => void
  /** Called before each report with the finish. */
  beforeFinish: () => Promise<unknown>
}

/** Reports the state of the run to the gateway, at intervals and immediately after a change. */
export class Reporter {
  readonly #options: ReporterOptions
  readonly #signal = new AsyncSignal()
  readonly #stored = Promise.withResolvers<void>()
  /** Seconds between two reports. */
  heartbeatSeconds: number
  #withFinish = false

  constructor(options: ReporterOptions, heartbeatSeconds: number) {
    this.#options = options
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

  /** Reports until the signal is aborted or the finish is stored. */
  async run(signal: AbortSignal): Promise<void> {
    const { disk, clock } = this.#options
    for (let tries = 0; !signal.aborted && !disk.state.finishStored; ) {
      const retryAfter = await this.#report(tries)
      tries = retryAfter === undefined ? 0 : tries + 1
      if (!disk.state.finishStored) await this.#signal.wait(clock, retryAfter ?? this.heartbeatSeconds, signal)
    }
    if (disk.state.finishStored) this.#stored.resolve()
  }

  /** Returns undefined if the report was answered, else the delay before the next one, seconds. */
  async #report(tries: number): Promise<number | undefined> {
    const { disk, client, logger, onRefused, onStop, beforeFinish } = this.#options
    if (this.#withFinish) await beforeFinish()
    // Written before the report is sent, so that a number is never used twice.
    disk.update({ sequence: disk.state.sequence + 1 })
    const report = this.#compose()
    try {
      const { desired, heartbeatSeconds } = await client.report(report)
      this.heartbeatSeconds = heartbeatSeconds ?? this.heartbeatSeconds
      if (report.finish !== undefined) disk.update({ finishStored: true })
      if (desired === "stop") onStop()
      return undefined
    } catch (error) {
      if (error instanceof RefusedError) onRefused(error)
      logger.warn({ err: error }, "failed to send a report; retrying")
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

/** Delay before new output is sent, seconds. It prevents a request for each line. The first output is sent at once. */
const COLLECT_SECONDS = 0.5

/** Number of answers without progress after which sending the log counts as failed. */
const FRUITLESS_TRIES = 3

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
  /** Number of bytes that the gateway has stored, from its last answer. */
  #stored = 0
  #full = false
  /** Largest piece that the gateway takes, bytes, from its last answer. */
  #pieceBytes = LOG_CHUNK_BYTES
  /** Largest piece that was not rejected as too large, bytes. */
  #acceptedBytes = LARGE_LOG_CHUNK_BYTES
  #draining: Promise<boolean> | undefined

  constructor(options: ShipperOptions) {
    this.#options = options
  }

  /** Sends soon, because the spool has new output. */
  wake(): void {
    this.#signal.notify()
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
      for (let fruitless = 0; !this.#full && this.#stored < spool.length; ) {
        const offset = this.#stored
        const answer = await this.#send(offset)
        this.#stored = answer.length
        this.#full = answer.full
        this.#pieceBytes = Math.min(answer.pieceBytes ?? LOG_CHUNK_BYTES, this.#acceptedBytes)
        // If the store has lost data, continue from its length, but not forever.
        fruitless = answer.length > offset ? 0 : fruitless + 1
        if (fruitless === FRUITLESS_TRIES) return false
      }
      return true
    } catch (error) {
      if (error instanceof RefusedError) onRefused(error)
      logger.warn({ err: error }, "failed to send the log; retrying")
      return false
    }
  }

  /** Sends the piece at the offset. Another replica of the gateway may be of a former version. It gets a smaller piece. */
  async #send(offset: number): Promise<LogsResponse> {
    const { spool, client } = this.#options
    try {
      return await client.sendLog(offset, await spool.read(offset, this.#pieceBytes))
    } catch (error) {
      const isTooLarge = error instanceof GatewayError && error.status === CONTENT_TOO_LARGE
      if (!isTooLarge || this.#pieceBytes <= LOG_CHUNK_BYTES) throw error
      this.#acceptedBytes = LOG_CHUNK_BYTES
      this.#pieceBytes = LOG_CHUNK_BYTES
      return await client.sendLog(offset, await spool.read(offset, this.#pieceBytes))
    }
  }
}

/** HTTP status of a body that is too large. */
const CONTENT_TOO_LARGE = 413

/** Default limit of the output on the VM's disk, bytes. It is more than the gateway keeps. */
export const DEFAULT_SPOOL_BYTES = 128 * 1024 * 1024

const NEWLINE = 0x0a

export interface SpoolOptions {
  /** Maximum number of bytes that are kept. */
  limit: number
  /** Called after each append. */
  onAppend: () => void
  /** Called once when a write to the disk fails, and again after writes have succeeded in between. */
  onWriteError?: (error: unknown) => void
}

/**
 * Output of all attempts of the Launch, as one file that only grows. Its offsets are those of the protocol. Output
 * beyond the limit, or that the disk does not accept, is dropped. A line says so.
 */
export class Spool {
  readonly #file: FileHandle
  readonly #options: SpoolOptions
  /** Number of bytes that can be read: the file and the held bytes. */
  #length: number
  /** End of the log that the disk does not accept: a line of our own, never output. */
  #held: Buffer = Buffer.alloc(0)
  /** Bytes of output that the disk has not accepted, and that no line reports yet. */
  #lost = 0

  private constructor(file: FileHandle, length: number, options: SpoolOptions) {
    this.#file = file
    this.#length = length
    this.#options = options
  }

  /** Opens the file, or creates it. */
  static async open(path: string, options: SpoolOptions): Promise<Spool> {
    const file = await open(path, "a+", 0o600)
    return new Spool(file, (await file.stat()).size, options)
  }

  get length(): number {
    return this.#length
  }

  /** Appends data. Await each call before the next. Data that the disk does not accept is dropped. */
  async append(data: Uint8Array): Promise<void> {
    const { limit, onAppend } = this.#options
    const room = limit - this.#length
    if (room < 0 || data.byteLength === 0) return
    await this.#keep(data.subarray(0, room))
    if (data.byteLength > room) await this.#keep(Buffer.from(truncationLine(limit)))
    onAppend()
  }

  /** Appends a line of our own, at the start of a line. */
  async appendLine(line: string): Promise<void> {
    const ended = this.#length === 0 || (await this.read(this.#length - 1, 1))[0] === NEWLINE
    await this.append(Buffer.from(`${ended ? "" : "\n"}${line}\n`))
  }

  /** Adds a line about dropped output to the log, even if the disk accepts no data now. */
  async settle(): Promise<void> {
    if (this.#lost === 0) return
    this.#hold(gapLine(this.#lost))
    await this.#keep(Buffer.alloc(0))
    this.#options.onAppend()
  }

  /** Returns at most `length` bytes from `offset` on; fewer at the end. */
  async read(offset: number, length: number): Promise<Buffer> {
    const onDisk = this.#length - this.#held.byteLength
    const size = Math.max(0, Math.min(length, onDisk - offset))
    const { bytesRead, buffer } = await this.#file.read(Buffer.alloc(size), 0, size, offset)
    if (bytesRead < size) return buffer.subarray(0, bytesRead)
    const held = this.#held.subarray(Math.max(0, offset - onDisk), Math.max(0, offset + length - onDisk))
    return Buffer.concat([buffer, held])
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close()
  }

  /** Writes the held bytes, a line about dropped output, and as much of the data as the disk accepts. */
  async #keep(data: Uint8Array): Promise<void> {
    const before = this.#held.byteLength
    const line = this.#lost > 0 ? Buffer.from(gapLine(this.#lost)) : Buffer.alloc(0)
    const known = Buffer.concat([this.#held, line])
    const taken = await this.#write(Buffer.concat([known, data]))
    if (taken <= before && line.byteLength > 0) {
      // The disk does not accept the line. More may be lost before it is written.
      this.#held = this.#held.subarray(taken)
      this.#lost += data.byteLength
      return
    }
    const kept = Math.max(0, taken - known.byteLength)
    this.#held = known.subarray(taken)
    this.#length += line.byteLength + kept
    this.#lost = data.byteLength - kept
  }

  #hold(line: string): void {
    this.#held = Buffer.concat([this.#held, Buffer.from(line)])
    this.#length += Buffer.byteLength(line)
    this.#lost = 0
  }

  /** Returns the number of bytes that the disk has accepted. */
  async #write(data: Uint8Array): Promise<number> {
    let written = 0
    try {
      while (written < data.byteLength) written += (await this.#file.write(data, written)).bytesWritten
    } catch (error) {
      if (this.#lost === 0) this.#options.onWriteError?.(error)
    }
    return written
  }
}

function truncationLine(limit: number): string {
  return `\n--- log truncated: the VM keeps only the first ${limit} bytes ---\n`
}

function gapLine(bytes: number): string {
  return `\n--- ${bytes} bytes of the log are missing here: the VM could not write them to its disk ---\n`
}
