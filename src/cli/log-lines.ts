const NEWLINE = 10

/** Puts a text before each line of a log that arrives in pieces. */
export class LinePrefix {
  readonly #prefixOf: (position: number) => string
  readonly #encoder = new TextEncoder()
  #position = 0
  #isLineBegun = false

  /** @param prefixOf returns the text for the line that begins at a position of the log, bytes */
  constructor(prefixOf: (position: number) => string) {
    this.#prefixOf = prefixOf
  }

  /** Returns the next piece with the texts before its lines. */
  of(piece: Uint8Array): Uint8Array {
    const parts: Uint8Array[] = []
    for (let at = 0; at < piece.length; ) {
      if (!this.#isLineBegun) parts.push(this.#encoder.encode(this.#prefixOf(this.#position)))
      const newline = piece.indexOf(NEWLINE, at)
      const end = newline < 0 ? piece.length : newline + 1
      parts.push(piece.subarray(at, end))
      this.#position += end - at
      this.#isLineBegun = newline < 0
      at = end
    }
    return Buffer.concat(parts)
  }

  /** Returns the newline that the log's last line lacks. */
  end(): Uint8Array {
    return this.#encoder.encode(this.#isLineBegun ? "\n" : "")
  }
}

/** Length of a time in UTC such as 2026-01-02T10:00:00Z. */
const TIME_LENGTH = 20

/**
 * Returns a prefix with the time at which a line arrived here, in UTC. The stored log has no times. So lines that were
 * stored when the command began have `-`. @param storedBytes size of the log at that time
 */
export function arrivalTimes(storedBytes: number, now: () => Date): LinePrefix {
  return new LinePrefix((position) => {
    const time = position < storedBytes ? "-".padEnd(TIME_LENGTH) : `${now().toISOString().slice(0, 19)}Z`
    return `${time} `
  })
}
