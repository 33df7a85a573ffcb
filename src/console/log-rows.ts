import type { LogBuffer } from "./log-buffer.ts"

/** Rows of a log on the screen: a wrapped line has several. */
export class LogRows {
  readonly #buffer: LogBuffer
  /** Columns of a row; undefined: lines are not wrapped. */
  readonly #columns: number | undefined
  /** Row at which each line begins, as far as it is known. */
  #starts = new Float64Array(1024)
  #known = 0

  constructor(buffer: LogBuffer, columns: number | undefined) {
    this.#buffer = buffer
    this.#columns = columns
  }

  /** Number of all rows. */
  get count(): number {
    return this.rowOf(this.#buffer.lineCount)
  }

  /** Returns the first row of a line. */
  rowOf(line: number): number {
    if (this.#columns === undefined) return line
    this.#learn(this.#columns)
    return this.#starts[Math.min(line, this.#known)] ?? 0
  }

  /** Returns the line at a row. */
  lineAt(row: number): number {
    const last = Math.max(0, this.#buffer.lineCount - 1)
    if (this.#columns === undefined) return Math.max(0, Math.min(last, Math.floor(row)))
    this.#learn(this.#columns)
    let low = 0
    let high = last
    while (low < high) {
      const middle = Math.ceil((low + high) / 2)
      if ((this.#starts[middle] ?? 0) <= row) low = middle
      else high = middle - 1
    }
    return low
  }

  /** Counts the rows of new lines. The last line may have grown, so it is counted again. */
  #learn(columns: number): void {
    const lines = this.#buffer.lineCount
    if (this.#starts.length <= lines) {
      const larger = new Float64Array(Math.max(lines + 1, this.#starts.length * 2))
      larger.set(this.#starts)
      this.#starts = larger
    }
    for (let line = Math.max(0, this.#known - 1); line < lines; line++) {
      this.#starts[line + 1] = (this.#starts[line] ?? 0) + this.#buffer.rowsOf(line, columns)
    }
    this.#known = lines
  }
}

/** Height of a row, pixels. The style sheet has the same. */
export const ROW_HEIGHT = 20

/** Tallest element that all browsers can scroll, pixels. */
const TALLEST = 8_000_000

/** Scrolling of rows in a window. With too many rows for one element, its scrollbar moves over them in larger steps. */
export class RowWindow {
  readonly rows: number
  /** Height of the window, pixels. */
  readonly visible: number

  constructor(rows: number, visible: number) {
    this.rows = rows
    this.visible = visible
  }

  /** Height of the scrolled element, pixels. */
  get height(): number {
    return Math.min(TALLEST, this.rows * ROW_HEIGHT)
  }

  get isScaled(): boolean {
    return this.rows * ROW_HEIGHT > TALLEST
  }

  /** Returns the row at the top for a position of the scrollbar. It may be a fraction. */
  topAt(scrolled: number): number {
    if (!this.isScaled) return scrolled / ROW_HEIGHT
    return (Math.min(1, scrolled / (this.height - this.visible)) * this.#lastTop) | 0
  }

  /** Returns the position of the scrollbar at which a row is at the top. */
  scrolledTo(row: number): number {
    const top = Math.max(0, Math.min(this.#lastTop, row))
    return this.isScaled ? (top / this.#lastTop) * (this.height - this.visible) : top * ROW_HEIGHT
  }

  get #lastTop(): number {
    return Math.max(0, this.rows - this.visible / ROW_HEIGHT)
  }
}
