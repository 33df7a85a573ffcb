const NEWLINE = 10
const RETURN = 13
const SPACE = 32

export interface LinePrefixOptions {
  /** True if each line of the log begins with its time and a space. The time is a part of the prefix then. */
  isTimed?: boolean | undefined
  /** True if a terminal shows the log. There a carriage return would let a progress bar overwrite the prefix. */
  isScreen?: boolean | undefined
}

/** Puts a text before each line of a log that arrives in pieces. */
export class LinePrefix {
  readonly #text: Uint8Array
  readonly #options: LinePrefixOptions
  #isLineBegun = false
  /** True while the bytes are those of the line's time. */
  #isInTime = false
  #time: number[] = []
  #isReturned = false

  constructor(text: string, options: LinePrefixOptions = {}) {
    this.#text = new TextEncoder().encode(text)
    this.#options = options
  }

  /** Returns the next piece with the text before its lines. On a screen the prefix is repeated after a carriage return. */
  of(piece: Uint8Array): Uint8Array {
    const parts: Uint8Array[] = []
    let written = 0
    for (const [at, byte] of piece.entries()) {
      const prefix = this.#prefixBefore(byte)
      if (prefix !== undefined) {
        parts.push(piece.subarray(written, at), prefix)
        written = at
      }
      this.#pass(byte)
    }
    return Buffer.concat([...parts, piece.subarray(written)])
  }

  /** Returns the newline that the log's last line lacks. */
  end(): Uint8Array {
    return new TextEncoder().encode(this.#isLineBegun ? "\n" : "")
  }

  #prefixBefore(byte: number): Uint8Array | undefined {
    if (!this.#isLineBegun) return this.#text
    if (!this.#isReturned || byte === NEWLINE || byte === RETURN) return undefined
    return Buffer.concat([this.#text, Uint8Array.from(this.#time)])
  }

  #pass(byte: number): void {
    if (!this.#isLineBegun) {
      this.#time = []
      this.#isInTime = this.#options.isTimed === true
    }
    if (this.#isInTime) {
      this.#time.push(byte)
      this.#isInTime = byte !== SPACE
    }
    this.#isLineBegun = byte !== NEWLINE
    this.#isReturned = byte === RETURN && this.#options.isScreen === true
  }
}
