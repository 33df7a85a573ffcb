import { type FileHandle, open } from "node:fs/promises"

/** Bytes of output that are kept on the VM's disk, unless told otherwise: more than the gateway keeps. */
export const DEFAULT_SPOOL_BYTES = 128 * 1024 * 1024

const NEWLINE = 0x0a

export interface SpoolOptions {
  /** Bytes that are kept. */
  limit: number
  /** Called after each append. */
  onAppend: () => void
  /** Called when the disk refuses a write, once until it takes one again. */
  onWriteError?: (error: unknown) => void
}

/**
 * The Launch's whole output, attempt after attempt, as one file that only grows: its offsets are those of the
 * protocol. Beyond the limit output is dropped, and a line says so. So does a line where the disk took no output.
 */
export class Spool {
  readonly #file: FileHandle
  readonly #options: SpoolOptions
  /** Of everything that can be read: the file and what is held. */
  #length: number
  /** The end of the log that the disk does not take: a line of our own, never output. */
  #held: Buffer = Buffer.alloc(0)
  /** Bytes of output that the disk has not taken and of which no line says so yet. */
  #lost = 0

  private constructor(file: FileHandle, length: number, options: SpoolOptions) {
    this.#file = file
    this.#length = length
    this.#options = options
  }

  /** Opens the file or makes it. */
  static async open(path: string, options: SpoolOptions): Promise<Spool> {
    const file = await open(path, "a+", 0o600)
    return new Spool(file, (await file.stat()).size, options)
  }

  get length(): number {
    return this.#length
  }

  /** One append after the other: await each. What the disk does not take is dropped. */
  async append(data: Uint8Array): Promise<void> {
    const { limit, onAppend } = this.#options
    const room = limit - this.#length
    if (room < 0 || data.byteLength === 0) return
    await this.#keep(data.subarray(0, room))
    if (data.byteLength > room) await this.#keep(Buffer.from(truncationLine(limit)))
    onAppend()
  }

  /** A line of our own, on a line of its own. */
  async appendLine(line: string): Promise<void> {
    const ended = this.#length === 0 || (await this.read(this.#length - 1, 1))[0] === NEWLINE
    await this.append(Buffer.from(`${ended ? "" : "\n"}${line}\n`))
  }

  /** Says in the log what the disk has not taken, even when it takes nothing now. */
  async settle(): Promise<void> {
    if (this.#lost === 0) return
    this.#hold(gapLine(this.#lost))
    await this.#keep(Buffer.alloc(0))
    this.#options.onAppend()
  }

  /** At most `length` bytes from `offset` on; fewer at the end. */
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

  /** Writes what is held, a line about what is missing, and the data: as much of it as the disk takes. */
  async #keep(data: Uint8Array): Promise<void> {
    const before = this.#held.byteLength
    const line = this.#lost > 0 ? Buffer.from(gapLine(this.#lost)) : Buffer.alloc(0)
    const known = Buffer.concat([this.#held, line])
    const taken = await this.#write(Buffer.concat([known, data]))
    if (taken <= before && line.byteLength > 0) {
      // Not even the line: more may be lost before it is written.
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

  /** Returns how many bytes the disk took. */
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
  return `\n--- ${bytes} bytes of the log are missing here: the VM's disk took no more ---\n`
}
