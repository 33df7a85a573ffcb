// @ts-check
import { stripVTControlCharacters, styleText } from "node:util"
import { inQuarters, progressLine } from "./progress.mjs"

/**
 * Output for a terminal, a pipe or a log file. A terminal redraws the last block in place. Otherwise there are only
 * plain lines, each written once.
 */
export class Terminal {
  #stream
  #inQuarters
  #drawn = 0
  /** @type {string[]} */
  #block = []

  /** @param {NodeJS.WriteStream} stream */
  constructor(stream = process.stdout) {
    this.#stream = stream
    this.#inQuarters = inQuarters((line) => this.line(line))
  }

  /** True if blocks are redrawn. */
  get live() {
    return this.#stream.isTTY === true
  }

  /**
   * Returns the text in a style if the output is a terminal that shows colours. NO_COLOR turns them off.
   * @param {Parameters<typeof styleText>[0]} style
   * @param {string} text
   */
  paint(style, text) {
    return styleText(style, text, { stream: this.#stream })
  }

  /** Prints a permanent line, above the live block. */
  line(text = "") {
    this.#erase()
    this.#stream.write(`${text}\n`)
    this.#draw()
  }

  /**
   * Shows these lines below everything else, in place of the earlier block. Does nothing without a terminal.
   * @param {string} block
   */
  show(block) {
    if (!this.live) return
    this.#erase()
    this.#block = block.split("\n").map((line) => this.#fitted(line))
    this.#draw()
  }

  /**
   * Shows a step that is in progress: in place on a terminal, else as a line.
   * @param {string} text
   */
  step(text) {
    if (this.live) this.show(text)
    else this.line(text)
  }

  /**
   * Shows the progress of a step: one line in place on a terminal, else a line for each quarter.
   * @param {import("./progress.mjs").Progress} progress
   */
  progress(progress) {
    if (this.live) this.show(progressLine(progress))
    else this.#inQuarters(progress)
  }

  /** Keeps the live block: later output is printed below it. */
  settle() {
    this.#drawn = 0
    this.#block = []
  }

  /** Removes the live block. */
  clear() {
    this.#erase()
    this.#block = []
  }

  #draw() {
    // A block higher than the window can't be redrawn: lines that have scrolled out can't be erased.
    const lines = this.#block.slice(0, Math.max(1, (this.#stream.rows ?? 24) - 1))
    for (const line of lines) this.#stream.write(`${line}\n`)
    this.#drawn = lines.length
  }

  #erase() {
    // Moves to the first column too: after Ctrl-C the terminal's "^C" is before the cursor.
    if (this.#drawn > 0) this.#stream.write(`\r\x1b[${this.#drawn}A\x1b[0J`)
    this.#drawn = 0
  }

  /**
   * Cuts a line that would wrap: it would take two rows, and only one of them would be erased.
   * @param {string} line
   */
  #fitted(line) {
    const columns = this.#stream.columns ?? 80
    const plain = stripVTControlCharacters(line)
    return plain.length <= columns ? line : `${plain.slice(0, columns - 1)}…`
  }
}
