/**
 * Output that is readable both in a terminal and in a log file: on a terminal the last block can be redrawn in
 * place, elsewhere there are only plain lines that come once.
 */
export class Terminal {
  readonly #stream: NodeJS.WriteStream
  #drawn = 0
  #block: string[] = []

  constructor(stream: NodeJS.WriteStream = process.stdout) {
    this.#stream = stream
  }

  /** Whether blocks are redrawn. */
  get live(): boolean {
    return this.#stream.isTTY === true
  }

  /** Prints for good, above the live block. */
  line(text = ""): void {
    this.#erase()
    this.#stream.write(`${text}\n`)
    this.#draw()
  }

  /** Shows these lines below everything else, in place of the earlier block. Does nothing where there is no terminal. */
  show(block: string): void {
    if (!this.live) return
    this.#erase()
    this.#block = block.split("\n").map((line) => this.#fitted(line))
    this.#draw()
  }

  /** Leaves the live block where it is: what follows is printed below it. */
  settle(): void {
    this.#drawn = 0
    this.#block = []
  }

  #draw(): void {
    // A block higher than the window can't be redrawn: what has scrolled away can't be erased.
    const lines = this.#block.slice(0, Math.max(1, (this.#stream.rows ?? 24) - 1))
    for (const line of lines) this.#stream.write(`${line}\n`)
    this.#drawn = lines.length
  }

  #erase(): void {
    if (this.#drawn > 0) this.#stream.write(`\x1b[${this.#drawn}A\x1b[0J`)
    this.#drawn = 0
  }

  /** A line that wraps would take two rows, and be erased by half. */
  #fitted(line: string): string {
    const columns = this.#stream.columns ?? 80
    return line.length <= columns ? line : `${line.slice(0, columns - 1)}…`
  }
}
