import type { Zone } from "./format.ts"

const NEWLINE = 10
const SPACE = 32

/** Takes the times from the lines of a log that the API sends with them. */
export class TimedLines {
  /** Time of each line, milliseconds since 1970; NaN if it is not known. */
  readonly times: number[] = []
  #isLineBegun = false
  #time: string | undefined

  /** Returns the next piece without its times. */
  of(piece: Uint8Array): Uint8Array {
    const rest = new Uint8Array(piece.length)
    let length = 0
    for (const byte of piece) {
      if (!this.#isLineBegun) this.#time = ""
      this.#isLineBegun = byte !== NEWLINE
      if (this.#time === undefined) rest[length++] = byte
      else if (byte !== SPACE) this.#time += String.fromCharCode(byte)
      else {
        this.times.push(Date.parse(this.#time))
        this.#time = undefined
      }
    }
    return rest.subarray(0, length)
  }
}

/** Letters of a time before a line. */
export const TIME_LETTERS = 14

/** Returns the month, day and time before a line. */
export function lineTime(time: number, zone: Zone): string {
  const shift = zone === "utc" ? 0 : new Date(time).getTimezoneOffset() * 60_000
  return new Date(time - shift).toISOString().slice(5, 19).replace("T", " ")
}
