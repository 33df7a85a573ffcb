import { parseSegments, plain, plainText, type Segment, SHOWN_COLUMNS, TerminalLine, widthOf } from "./ansi.ts"

const BACKSPACE = 8
const NEWLINE = 10
const RETURN = 13
const ESCAPE = 27
const BRACKET = 91
/** Letter at the end of the sequence of a color. */
const COLOR = 109
/** Bytes of a long line that are written to its terminal at once. */
const PIECE_BYTES = 64 * 1024

/** Line that is too long to be read from its beginning each time. */
interface LongLine {
  terminal: TerminalLine
  decode: (bytes: Uint8Array) => string
  /** End of the bytes that the terminal has got. */
  end: number
}

/** A log in memory: its bytes, and the place of each line. A log of 64 MiB needs little more than that. */
export class LogBuffer {
  #bytes = new Uint8Array(64 * 1024)
  #length = 0
  #longest = 0
  readonly #long = new Map<number, LongLine>()
  /** Start of each line. */
  #starts = new Float64Array(1024)
  #lines = 1

  /** Number of bytes. */
  get length(): number {
    return this.#length
  }

  /** Columns of the longest complete line, up to those that are shown. */
  get longest(): number {
    return Math.min(SHOWN_COLUMNS, this.#longest)
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

  /** Returns a line by its styles, as a terminal shows it in the end. A very long line is cut. */
  segments(index: number): Segment[] {
    const { from, to } = this.#range(index)
    if (to - from <= SHOWN_COLUMNS) return parseSegments(new TextDecoder().decode(this.#bytes.subarray(from, to)))
    const long = this.#long.get(index) ?? longLine(from)
    this.#long.set(index, long)
    for (; long.end < to; long.end = Math.min(to, long.end + PIECE_BYTES))
      long.terminal.write(long.decode(this.#bytes.subarray(long.end, Math.min(to, long.end + PIECE_BYTES))))
    return long.terminal.segments()
  }

  /** Returns the text of a line that a terminal shows in the end. */
  line(index: number): string {
    const { from, to } = this.#range(index)
    if (to - from <= SHOWN_COLUMNS) return plain(new TextDecoder().decode(this.#bytes.subarray(from, to)))
    return plainText(this.segments(index))
  }

  /** Returns all bytes. */
  content(): Uint8Array<ArrayBuffer> {
    return this.#bytes.subarray(0, this.#length)
  }

  /** Returns the rows that a line needs when it is wrapped at a number of columns. */
  rowsOf(index: number, columns: number): number {
    return Math.max(1, Math.ceil(this.#columnsOf(index, columns) / columns))
  }

  /** Returns the columns of a line. @param most number up to which an upper bound is exact enough */
  #columnsOf(index: number, most: number): number {
    const { from, to } = this.#range(index)
    const simple = to - from > SHOWN_COLUMNS ? undefined : this.#simpleColumns(from, to)
    if (simple !== undefined && (simple.isExact || simple.columns <= most)) return simple.columns
    return widthOf(this.line(index))
  }

  /**
   * Returns the columns of a line without other control characters than colors and carriage returns. They are an upper
   * bound for UTF-8, of which no character has more columns than bytes.
   */
  #simpleColumns(from: number, to: number): { columns: number; isExact: boolean } | undefined {
    let columns = 0
    let most = 0
    let isExact = true
    for (let at = from; at < to; at++) {
      const byte = this.#bytes[at] ?? 0
      if (byte === ESCAPE) at = this.#endOfColor(at)
      else if (byte === RETURN) columns = 0
      else if (byte < 32) return undefined
      else most = Math.max(most, ++columns)
      if (at < 0) return undefined
      if (byte > 126) isExact = false
    }
    return { columns: most, isExact }
  }

  /** Returns the place of the last byte of the sequence of a color; -1 if another sequence begins there. */
  #endOfColor(start: number): number {
    let at = start + 2
    while ((this.#bytes[at] ?? 0) >= 0x30 && (this.#bytes[at] ?? 0) <= 0x3b) at++
    return this.#bytes[start + 1] === BRACKET && this.#bytes[at] === COLOR ? at : -1
  }

  /** Returns the lines from `from` to before `to` that have a text. Upper and lower case of ASCII are alike. */
  find(text: string, { from, to }: { from: number; to: number }): number[] {
    const wanted = new TextEncoder().encode(text).map(lower)
    const found: number[] = []
    if (wanted.length === 0 || from >= to) return found
    const end = to < this.#lines ? (this.#starts[to] ?? 0) : this.#length
    const places = this.#placesOf([wanted[0] ?? 0, ESCAPE, RETURN, BACKSPACE], end)
    let line = from
    for (let at = places(this.#starts[from] ?? 0); at < end; at = places(at)) {
      if (!this.#isControl(at) && !this.#matches(wanted, at)) {
        at++
        continue
      }
      line = this.#lineAt(at, line)
      if (this.#hasText(line, text, at)) found.push(line)
      // One match of each line is enough.
      at = line + 1 < this.#lines ? (this.#starts[line + 1] ?? end) : end
    }
    return found
  }

  /** True for a byte that changes what a terminal shows of the line. */
  #isControl(at: number): boolean {
    const byte = this.#bytes[at]
    return byte === ESCAPE || byte === BACKSPACE || (byte === RETURN && this.#bytes[at + 1] !== NEWLINE)
  }

  /** True if a line shows the text. @param at place of the line that is a control character, or the text as it is stored */
  #hasText(index: number, text: string, at: number): boolean {
    const { from, to } = this.#range(index)
    if (!this.#isControl(at) && this.#simpleColumns(from, to)?.columns === to - from) return true
    return this.line(index).toLowerCase().includes(text.toLowerCase())
  }

  /** Returns a function that finds the next place of one of the bytes, in upper or lower case, from a place on. */
  #placesOf(wanted: readonly number[], end: number): (from: number) => number {
    const bytes = this.#bytes.subarray(0, end)
    const cases = wanted.flatMap((byte) => (byte >= 97 && byte <= 122 ? [byte, byte - 32] : [byte]))
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

  /** Returns the place of a line, without the bytes that end it. */
  #range(index: number): { from: number; to: number } {
    const from = this.#starts[index] ?? 0
    const to = index + 1 < this.#lines ? (this.#starts[index + 1] ?? 0) - 1 : this.#length
    // The end of a line of Windows overwrites nothing.
    return { from, to: to > from && this.#bytes[to - 1] === RETURN ? to - 1 : to }
  }

  #addLine(start: number): void {
    if (this.#lines === this.#starts.length) {
      const larger = new Float64Array(this.#lines * 2)
      larger.set(this.#starts)
      this.#starts = larger
    }
    this.#starts[this.#lines++] = start
    this.#longest = Math.max(this.#longest, this.#columnsOf(this.#lines - 2, this.#longest))
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return
    const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + more))
    larger.set(this.#bytes.subarray(0, this.#length))
    this.#bytes = larger
  }
}

function longLine(from: number): LongLine {
  const decoder = new TextDecoder()
  const decode = (bytes: Uint8Array) => decoder.decode(bytes, { stream: true })
  return { terminal: new TerminalLine(), decode, end: from }
}

function lower(byte: number): number {
  return byte >= 65 && byte <= 90 ? byte + 32 : byte
}
