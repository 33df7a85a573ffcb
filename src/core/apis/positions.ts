/** Finds positions in a text. Positions in ascending order cost one scan of the text together. */
export class Positions {
  readonly #text: string
  #line = 1
  #lineStart = 0

  constructor(text: string) {
    this.#text = text
  }

  /** Returns the position of a character as editors count: `line 3, column 8`, both from 1. */
  at(offset: number): string {
    if (offset < this.#lineStart) [this.#line, this.#lineStart] = [1, 0]
    for (;;) {
      const newline = this.#text.indexOf("\n", this.#lineStart)
      if (newline === -1 || newline >= offset) return `line ${this.#line}, column ${offset - this.#lineStart + 1}`
      this.#line++
      this.#lineStart = newline + 1
    }
  }
}
