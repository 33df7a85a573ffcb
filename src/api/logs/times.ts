import { BLOCK_BYTES, type TimeMark } from "./store.ts"

/** Bytes of a stored mark: offset and time as unsigned integers of 48 bits. */
export const MARK_BYTES = 12

const NEWLINE = 0x0a

/** Returns marks as bytes, to be stored beside the log. */
export function encodeMarks(marks: readonly TimeMark[]): Buffer {
  const bytes = Buffer.alloc(marks.length * MARK_BYTES)
  for (const [index, { offset, time }] of marks.entries()) {
    bytes.writeUIntBE(offset, index * MARK_BYTES, 6)
    bytes.writeUIntBE(time, index * MARK_BYTES + 6, 6)
  }
  return bytes
}

/** Returns stored marks by their offset. Pieces that were stored twice have the same marks. */
export function decodeMarks(bytes: Buffer): TimeMark[] {
  const marks: TimeMark[] = []
  for (let at = 0; at + MARK_BYTES <= bytes.byteLength; at += MARK_BYTES)
    marks.push({ offset: bytes.readUIntBE(at, 6), time: bytes.readUIntBE(at + 6, 6) })
  marks.sort((a, b) => a.offset - b.offset)
  return marks.filter(({ offset }, index) => offset !== marks[index - 1]?.offset)
}

/** Returns the marks of the bytes from `start` up to `end`. The first one is at `start`, if its time is known. */
export function marksOf(marks: readonly TimeMark[], start: number, end: number): TimeMark[] {
  const before = marks.findLast(({ offset }) => offset <= start)
  const within = marks.filter(({ offset }) => offset > start && offset < end)
  return before === undefined || start >= end ? within : [{ ...before, offset: start }, ...within]
}

/** Puts its time before each line of a log that is read in pieces. */
export class LineTimes {
  #isLineBegun = false
  /** Time of the last byte, as text; `-` as long as no time is known. */
  #time = "-"
  #marks: readonly TimeMark[] = []
  #next = 0

  /** Begins a part of the log. Without marks, as for a line of Berth's, the last time counts. */
  begin(marks: readonly TimeMark[]): void {
    this.#reach(Number.POSITIVE_INFINITY)
    this.#marks = marks
    this.#next = 0
  }

  /** Yields a piece of the part with times. @param offset of the piece in its Launch's log */
  *of(piece: Buffer, offset: number): Generator<Buffer, void, void> {
    const parts: Buffer[] = []
    for (let at = 0; at < piece.byteLength; ) {
      this.#reach(offset + at)
      if (!this.#isLineBegun) parts.push(Buffer.from(`${this.#time} `))
      const newline = piece.indexOf(NEWLINE, at)
      const end = newline < 0 ? piece.byteLength : newline + 1
      parts.push(piece.subarray(at, end))
      this.#isLineBegun = newline < 0
      at = end
    }
    const stamped = Buffer.concat(parts)
    for (let at = 0; at < stamped.byteLength; at += BLOCK_BYTES) yield stamped.subarray(at, at + BLOCK_BYTES)
  }

  #reach(offset: number): void {
    const first = this.#next
    while ((this.#marks[this.#next]?.offset ?? Number.POSITIVE_INFINITY) <= offset && this.#next < this.#marks.length)
      this.#next++
    const mark = this.#next === first ? undefined : this.#marks[this.#next - 1]
    if (mark !== undefined) this.#time = new Date(mark.time).toISOString()
  }
}
