import { type FileHandle, open, readdir, rm } from "node:fs/promises"
import { basename, dirname } from "node:path"
import type { Clock } from "../core/apis/clock.ts"
import { LOG_MARKS } from "../core/protocol/protocol.ts"

const MIB = 1024 * 1024

/** Default limit of the output on the VM's disk, bytes. It is more than the gateway keeps. */
export const DEFAULT_SPOOL_BYTES = 128 * MIB

/** Number of files at the limit. The oldest one is deleted as a whole. */
const SEGMENTS = 8

/** Share of the limit that is held in memory while the disk takes no output. The end of a log is never lost. */
const TAIL_SHARE = 1 / 64

const NEWLINE = 0x0a

const NOTHING: Buffer = Buffer.alloc(0)

/** Delay between two times of the output, seconds, as long as the gateway keeps up. */
const MARK_SECONDS = 0.5

/** Time of output: the bytes from an offset on were read then, up to the next mark. */
export interface Mark {
  offset: number
  /** Seconds of the monotonic clock. */
  seconds: number
}

export interface SpoolOptions {
  clock: Clock
  /** Maximum number of bytes on the disk. */
  limit: number
  /** Called after each append, and when waiting output is written. */
  onAppend: () => void
  /** Called once when a write to the disk fails, and again after writes have succeeded in between. */
  onWriteError?: (error: unknown) => void
}

/** A file with a part of the output. */
interface Segment {
  path: string
  file: FileHandle
  /** Offset of its first byte. */
  start: number
  bytes: number
}

/**
 * Output of all attempts of the Launch. Its offsets are those of the protocol. The files are `<path>` and
 * `<path>.<start>`. At the limit, the oldest file that the gateway has stored makes room. If there is none, or the disk
 * is full, the newest output waits in memory. Output between is dropped, and a line says how much and why.
 */
export class Spool {
  readonly #path: string
  readonly #options: SpoolOptions
  /** Consecutive; the last one grows. There is always one. */
  readonly #segments: Segment[]
  /** End of the log that the disk has not accepted, and that is read from memory. */
  #held: Buffer = NOTHING
  /** Bytes of output that are dropped, and that no line reports yet, by their cause. */
  #lost = new Map<GapCause, number>()
  /** Newest output, after the dropped bytes. It is not yet a part of the log. */
  #waiting: Uint8Array = NOTHING
  /** Offset up to which the gateway has stored the log. */
  #released = 0
  /** Set while the disk takes no writes. */
  #writeError: unknown
  #turn: Promise<unknown> = Promise.resolve()
  /** By their offset. Those of output that the gateway has stored are dropped. */
  #marks: Mark[]
  #markSeconds = MARK_SECONDS
  /** Time of the newest output. */
  #appendedAt: number

  /** @param writtenAt time of the last write to the files, seconds of the monotonic clock */
  private constructor(
    path: string,
    segments: Segment[],
    { writtenAt, ...options }: SpoolOptions & { writtenAt: number },
  ) {
    this.#path = path
    this.#segments = segments
    this.#options = options
    this.#appendedAt = writtenAt
    // The times of an earlier agent are lost.
    this.#marks = this.length === 0 ? [] : [{ offset: this.start, seconds: writtenAt }]
  }

  /** Opens the files, or creates the first one. */
  static async open(path: string, options: SpoolOptions): Promise<Spool> {
    const names = (await readdir(dirname(path))).map((name) => startIn(name, basename(path)))
    const starts = names.filter((start) => start !== undefined).sort((a, b) => a - b)
    const segments: Segment[] = []
    for (const start of starts.length === 0 ? [0] : starts) segments.push(await openSegment(path, start))
    const { mtimeMs } = (await segments.at(-1)?.file.stat()) ?? { mtimeMs: Number.NaN }
    const age = Math.max(0, options.clock.now().getTime() - mtimeMs) / 1000
    return new Spool(path, segments, { ...options, writtenAt: options.clock.monotonic() - age })
  }

  /** Offset of the first byte that can be read. */
  get start(): number {
    return this.#oldest.start
  }

  /** Offset behind the last byte that can be read. */
  get length(): number {
    return this.#onDisk + this.#held.byteLength
  }

  get #oldest(): Segment {
    return this.#segments[0] as Segment
  }

  get #newest(): Segment {
    return this.#segments.at(-1) as Segment
  }

  get #onDisk(): number {
    return this.#newest.start + this.#newest.bytes
  }

  /** Appends data. */
  append(data: Uint8Array): Promise<void> {
    return this.#inTurn(async () => {
      if (data.byteLength === 0) return
      this.#appendedAt = this.#options.clock.monotonic()
      this.#waiting = this.#waiting.byteLength === 0 ? data : Buffer.concat([this.#waiting, data])
      await this.#commit()
      const tail = Math.floor(this.#options.limit * TAIL_SHARE)
      const excess = this.#waiting.byteLength - tail
      if (excess > 0) {
        const cause = this.#cause
        this.#lost.set(cause, (this.#lost.get(cause) ?? 0) + excess)
        // A copy, because the rest of the piece must be freed.
        this.#waiting = Buffer.from(this.#waiting.subarray(excess))
      }
      this.#options.onAppend()
    })
  }

  /** Appends a line of our own, at the start of a line. */
  async appendLine(line: string): Promise<void> {
    const ended = this.length === 0 || (await this.read(this.length - 1, 1))[0] === NEWLINE
    await this.append(Buffer.from(`${ended ? "" : "\n"}${line}\n`))
  }

  /** Allows to delete output before the offset, which the gateway has stored. Writes what waited for room. */
  release(offset: number): Promise<void> {
    return this.#inTurn(async () => {
      this.#released = offset
      this.#dropMarks(offset)
      if (this.#lost.size === 0 && this.#waiting.byteLength === 0) return
      const before = this.length
      await this.#commit()
      if (this.length > before) this.#options.onAppend()
    })
  }

  /** Adds waiting output and the line about dropped output to the log, even if the disk accepts no data now. */
  settle(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#commit()
      if (this.#lost.size === 0 && this.#waiting.byteLength === 0) return
      this.#held = Buffer.concat([this.#held, this.#gap(), this.#waiting])
      this.#lost.clear()
      this.#waiting = NOTHING
      this.#options.onAppend()
    })
  }

  /** Returns the marks of the bytes from `start` up to `end`. The first one is at `start`. */
  marks(start: number, end: number): Mark[] {
    const before = this.#marks.findLast(({ offset }) => offset <= start)
    const within = this.#marks.filter(({ offset }) => offset > start && offset < end)
    return before === undefined || start >= end ? within : [{ ...before, offset: start }, ...within]
  }

  /** Returns at most `length` bytes from `offset` on, which is not before `start`; fewer at the end. */
  async read(offset: number, length: number): Promise<Buffer> {
    const until = offset + length
    const onDisk = this.#onDisk
    // All at one moment: a write meanwhile may move held bytes to the disk.
    const held = this.#held.subarray(Math.max(0, offset - onDisk), Math.max(0, until - onDisk))
    const parts = this.#segments.map(({ file, start, bytes }) => {
      const from = Math.max(offset, start)
      return { file, at: from - start, size: Math.max(0, Math.min(until, start + bytes) - from) }
    })
    const read = parts.filter(({ size }) => size > 0).map(({ file, at, size }) => readAll(file, at, size))
    return Buffer.concat([...(await Promise.all(read)), held])
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turn
    for (const { file } of this.#segments) await file.close()
  }

  /** Runs one change after the other. */
  #inTurn(change: () => Promise<void>): Promise<void> {
    const run = this.#turn.then(async () => {
      const { length } = this
      await change()
      if (this.length > length) this.#mark(length)
    })
    this.#turn = run.catch(() => undefined)
    return run
  }

  /** Marks the output from an offset on. With too many marks, each second one is dropped, and later ones are as far apart. */
  #mark(offset: number): void {
    const last = this.#marks.at(-1)
    if (last !== undefined && this.#appendedAt - last.seconds < this.#markSeconds) return
    this.#marks.push({ offset, seconds: this.#appendedAt })
    if (this.#marks.length < LOG_MARKS) return
    this.#marks = this.#marks.filter((_, index) => index % 2 === 0)
    this.#markSeconds = (this.#appendedAt - (this.#marks[0]?.seconds ?? 0)) / this.#marks.length
  }

  /** Drops the marks before an offset, except the one in effect there. */
  #dropMarks(offset: number): void {
    this.#marks.splice(
      0,
      Math.max(
        0,
        this.#marks.findLastIndex((mark) => mark.offset <= offset),
      ),
    )
    if (this.#marks.length <= 1) this.#markSeconds = MARK_SECONDS
  }

  /** Cause for which output is dropped now. */
  get #cause(): GapCause {
    if (this.#writeError === undefined) return limitCause(this.#options.limit)
    const { code } = this.#writeError as NodeJS.ErrnoException
    return code === "ENOSPC" ? "the VM's disk was full" : `the VM's disk rejected them (${code ?? this.#writeError})`
  }

  #gap(): Buffer {
    return Buffer.concat([...this.#lost].map(([cause, bytes]) => Buffer.from(gapLine(bytes, cause))))
  }

  /** Writes held bytes, the line about dropped output, and as much of the waiting output as there is room for. */
  async #commit(): Promise<void> {
    const gap = this.#gap()
    const held = this.#held
    const taken = await this.#write(Buffer.concat([held, gap, this.#waiting]))
    this.#held = held.subarray(Math.min(taken, held.byteLength))
    const beyond = taken - held.byteLength
    // While the disk takes nothing of the line, more may be dropped.
    if (beyond < 0 || (beyond === 0 && gap.byteLength > 0)) return
    this.#held = gap.subarray(Math.min(beyond, gap.byteLength))
    this.#lost.clear()
    this.#waiting = this.#waiting.subarray(Math.max(0, beyond - gap.byteLength))
  }

  /** Returns the number of bytes that are on the disk now. */
  async #write(data: Uint8Array): Promise<number> {
    let written = 0
    try {
      while (written < data.byteLength) {
        const room = await this.#room()
        if (room <= 0) break
        const segment = this.#newest
        const { bytesWritten } = await segment.file.write(data, written, Math.min(room, data.byteLength - written))
        segment.bytes += bytesWritten
        written += bytesWritten
        this.#writeError = undefined
      }
    } catch (error) {
      if (this.#writeError === undefined) this.#options.onWriteError?.(error)
      this.#writeError = error
    }
    return written
  }

  /** Returns the room in the newest file, bytes. Deletes the oldest one at the limit, if the gateway has stored it. */
  async #room(): Promise<number> {
    const { limit } = this.#options
    const segmentBytes = Math.ceil(limit / SEGMENTS)
    if (this.#newest.bytes >= segmentBytes) {
      if (this.#onDisk - this.start >= limit) {
        const { path, file, start, bytes } = this.#oldest
        if (start + bytes > this.#released || this.#segments.length === 1) return 0
        this.#segments.shift()
        await file.close()
        await rm(path)
      }
      this.#segments.push(await openSegment(this.#path, this.#onDisk))
    }
    return Math.min(segmentBytes - this.#newest.bytes, limit - (this.#onDisk - this.start))
  }
}

async function readAll(file: FileHandle, at: number, size: number): Promise<Buffer> {
  const { bytesRead, buffer } = await file.read(Buffer.alloc(size), 0, size, at)
  if (bytesRead < size) throw new Error(`a file of the log has ${bytesRead} bytes instead of ${size} from ${at} on`)
  return buffer
}

/** Cause of a gap in the log, as its line says it. */
type GapCause = string

/** Returns the cause of a gap after output that came faster than Berth has stored it. */
export function limitCause(bytes: number): GapCause {
  const limit = bytes < MIB ? `${bytes} bytes` : `${Math.floor(bytes / MIB)} MiB`
  return `the VM keeps at most ${limit} that Berth has not stored yet`
}

/** Returns the line that stands in the log for bytes that are not in it. */
export function gapLine(bytes: number, cause: GapCause): string {
  return `\n--- ${bytes} bytes of the log are missing here: ${cause} ---\n`
}

async function openSegment(path: string, start: number): Promise<Segment> {
  const own = start === 0 ? path : `${path}.${start}`
  const file = await open(own, "a+", 0o600)
  return { path: own, file, start, bytes: (await file.stat()).size }
}

/** Returns the offset of the first byte of a spool's file, from its name. Undefined for other files. */
function startIn(name: string, base: string): number | undefined {
  if (name === base) return 0
  const digits = name.startsWith(`${base}.`) ? name.slice(base.length + 1) : ""
  return /^[1-9][0-9]{0,15}$/.test(digits) ? Number(digits) : undefined
}
