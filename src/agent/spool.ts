import { type FileHandle, open } from "node:fs/promises"

/** Bytes of output that are kept on the VM's disk, unless told otherwise: more than the gateway keeps. */
export const DEFAULT_SPOOL_BYTES = 128 * 1024 * 1024

const NEWLINE = 0x0a

/**
 * The Launch's whole output, attempt after attempt, as one file that only grows: its offsets are those of the
 * protocol. Beyond the limit output is dropped, and a line says so.
 */
export class Spool {
  readonly #file: FileHandle
  readonly #limit: number
  readonly #onAppend: () => void
  #length: number

  private constructor(file: FileHandle, length: number, options: { limit: number; onAppend: () => void }) {
    this.#file = file
    this.#length = length
    this.#limit = options.limit
    this.#onAppend = options.onAppend
  }

  /** Opens the file or makes it. `limit` is in bytes; `onAppend` is called after each append. */
  static async open(path: string, options: { limit: number; onAppend: () => void }): Promise<Spool> {
    const file = await open(path, "a+", 0o600)
    return new Spool(file, (await file.stat()).size, options)
  }

  get length(): number {
    return this.#length
  }

  /** One append after the other: await each. */
  async append(data: Uint8Array): Promise<void> {
    const room = this.#limit - this.#length
    if (room < 0 || data.byteLength === 0) return
    await this.#write(data.subarray(0, room))
    if (data.byteLength > room) await this.#write(Buffer.from(truncationLine(this.#limit)))
    this.#onAppend()
  }

  /** A line of our own, on a line of its own. */
  async appendLine(line: string): Promise<void> {
    const ended = this.#length === 0 || (await this.read(this.#length - 1, 1))[0] === NEWLINE
    await this.append(Buffer.from(`${ended ? "" : "\n"}${line}\n`))
  }

  /** At most `length` bytes from `offset` on; fewer at the end. */
  async read(offset: number, length: number): Promise<Buffer> {
    const size = Math.max(0, Math.min(length, this.#length - offset))
    const { bytesRead, buffer } = await this.#file.read(Buffer.alloc(size), 0, size, offset)
    return buffer.subarray(0, bytesRead)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close()
  }

  async #write(data: Uint8Array): Promise<void> {
    for (let written = 0; written < data.byteLength; ) {
      const { bytesWritten } = await this.#file.write(data, written)
      written += bytesWritten
      this.#length += bytesWritten
    }
  }
}

function truncationLine(limit: number): string {
  return `\n--- log truncated: the VM keeps only the first ${limit} bytes ---\n`
}
