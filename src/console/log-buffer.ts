import { plain } from "./ansi.ts"

const NEWLINE = 10
const ESCAPE = 27
/** Longest part of a line that is shown, bytes. */
const SHOWN_BYTES = 20_000

/** A log in memory: its bytes, and the place of each line. A log of 64 MiB needs little more than that. */
export class LogBuffer {
  #bytes = new Uint8Array(64 * 1024)
  #length = 0
  #longest = 0
  /** Start of each line. */
  #starts = new Float64Array(1024)
  #lines = 1

  /** Number of bytes. */
  get length(): number {
    return this.#length
  }

  /** Bytes of the longest complete line, up to what is shown. */
  get longest(): number {
    return Math.min(this.#longest, SHOWN_BYTES)
  }

  /** Number of lines. The empty one after a last newline does not count. */
  get lineCount(): number {
    return this.#starts[this.#lines - 1] === this.#length ? this.#lines - 1 : this.#lines
  }

  append(piece: Uint8Array): void {
    this.#reserve(piece.length)
    this.#bytes.set(piece, this.#length)
    for (let at = piece.indexOf(NEWLINE); at >= 0; at = piece.indexOf(NEWLINE, at + 1)) {
      this.#addLine(this.#length + at + 1)
    }
    this.#length += piece.length
  }

  /** Returns the text of a line. A very long line is cut. */
  line(index: number): string {
    const { from, to } = this.#range(index)
    const cut = Math.min(to, from + SHOWN_BYTES)
    const text = new TextDecoder().decode(this.#bytes.subarray(from, cut))
    return cut < to ? `${text} … (${to - cut} more bytes)` : text
  }

  /** Returns all bytes. */
  content(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length)
  }

  /** Returns the rows that a line needs when it is wrapped at a number of columns. */
  rowsOf(index: number, columns: number): number {
    const { from, to } = this.#range(index)
    const size = Math.min(to - from, SHOWN_BYTES)
    if (size <= columns) return 1
    const width = this.#isPlain(from, from + size) ? size : widthOf(plain(this.line(index)))
    return Math.max(1, Math.ceil(width / columns))
  }

  /** Returns the lines from `from` to before `to` that have a text. Upper and lower case of ASCII are alike. */
  find(text: string, { from, to }: { from: number; to: number }): number[] {
    const wanted = new TextEncoder().encode(text).map(lower)
    const found: number[] = []
    if (wanted.length === 0 || from >= to) return found
    const end = to < this.#lines ? (this.#starts[to] ?? 0) : this.#length
    const places = this.#placesOf(wanted[0] ?? 0, end)
    let line = from
    for (let at = places(this.#starts[from] ?? 0); at < end; at = places(at)) {
      if (!this.#matches(wanted, at)) {
        at++
        continue
      }
      line = this.#lineAt(at, line)
      found.push(line)
      // One match of each line is enough.
      at = line + 1 < this.#lines ? (this.#starts[line + 1] ?? end) : end
    }
    return found
  }

  /** Returns a function that finds the next place of a byte, in upper or lower case, from a place on. */
  #placesOf(byte: number, end: number): (from: number) => number {
    const bytes = this.#bytes.subarray(0, end)
    const cases = byte >= 97 && byte <= 122 ? [byte, byte - 32] : [byte]
    const next = cases.map(() => -1)
    return (from) => {
      for (const [index, one] of cases.entries()) {
        if ((next[index] ?? -1) >= from) continue
        const at = bytes.indexOf(one, from)
        next[index] = at < 0 ? end : at
      }
      return Math.min(...next)
    }
  }

  #matches(wanted: Uint8Array, at: number): boolean {
    if (at + wanted.length > this.#length) return false
    for (let index = 0; index < wanted.length; index++) {
      if (lower(this.#bytes[at + index] ?? 0) !== wanted[index]) return false
    }
    return true
  }

  /** Returns the line of a place. @param after a line that is not later */
  #lineAt(at: number, after: number): number {
    let low = after
    let high = this.#lines - 1
    while (low < high) {
      const middle = Math.ceil((low + high) / 2)
      if ((this.#starts[middle] ?? 0) <= at) low = middle
      else high = middle - 1
    }
    return low
  }

  #isPlain(from: number, to: number): boolean {
    for (let at = from; at < to; at++) {
      const byte = this.#bytes[at] ?? 0
      if (byte > 126 || byte === ESCAPE || byte === 9 || byte === 13) return false
    }
    return true
  }

  #range(index: number): { from: number; to: number } {
    const from = this.#starts[index] ?? 0
    const to = index + 1 < this.#lines ? (this.#starts[index + 1] ?? 0) - 1 : this.#length
    return { from, to }
  }

  #addLine(start: number): void {
    if (this.#lines === this.#starts.length) {
      const larger = new Float64Array(this.#lines * 2)
      larger.set(this.#starts)
      this.#starts = larger
    }
    this.#longest = Math.max(this.#longest, start - (this.#starts[this.#lines - 1] ?? 0))
    this.#starts[this.#lines++] = start
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return
    const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + more))
    larger.set(this.#bytes.subarray(0, this.#length))
    this.#bytes = larger
  }
}

function lower(byte: number): number {
  return byte >= 65 && byte <= 90 ? byte + 32 : byte
}

/** Characters of scripts and emoji that are two columns wide. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}]/gu

function widthOf(text: string): number {
  const tabs = text.split("\t").length - 1
  return [...text].length + (text.match(WIDE)?.length ?? 0) + tabs * 7
}
