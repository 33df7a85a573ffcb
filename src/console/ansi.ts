/** Piece of a line of a log, with the names of its styles: `bold`, `fg-1`, `bg-12`. */
export interface Segment {
  text: string
  styles: readonly string[]
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with control characters
const CONTROL = /\x1b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])|[\0-\x1f\x7f]/g

// biome-ignore lint/suspicious/noControlCharactersInRegex: a line without these characters is shown as it is
const CONTROLLED = /[\0-\x08\x0b-\x1f\x7f]/

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with control characters
const COLORS = /\x1b\[[0-9;:]*m/g

/** Beginning of an escape sequence whose end is not there yet. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with control characters
const BEGUN = /\x1b(?:\[[0-9;:?]*[ -/]*|\][^\x07\x1b]{0,500}\x1b?|[ -/]*)$/

const UNSTYLED: readonly string[] = []

/** Columns of a line that are shown. */
export const SHOWN_COLUMNS = 20_000
const TAB_COLUMNS = 8

/**
 * One line of a terminal without an end at the right. A carriage return, a backspace and the cursor's sequences move to
 * other columns, where text replaces what is there. A line of the log that moves the cursor up ends there for us: what
 * follows is the update of another line, and is shown in place of the former text.
 */
export class TerminalLine {
  /** Text of each column. The second column of a wide character is empty. */
  #cells: string[] = []
  #styles: (readonly string[])[] = []
  #column = 0
  readonly #style = new Style()
  #names = UNSTYLED
  #begun = ""
  #hasMovedUp = false
  /** Columns beyond those that are shown. */
  #beyond = 0

  /** Adds text of the log, wherever it is cut. */
  write(more: string): void {
    let text = this.#begun + more
    this.#begun = BEGUN.exec(text)?.[0] ?? ""
    text = text.slice(0, text.length - this.#begun.length)
    let end = 0
    for (const found of text.matchAll(CONTROL)) {
      this.#print(text.slice(end, found.index))
      end = found.index + found[0].length
      if (found[2] !== undefined) this.#obey(found[2], found[1] ?? "")
      else this.#move(found[0])
    }
    this.#print(text.slice(end))
  }

  /** Returns what the terminal shows now. */
  segments(): Segment[] {
    const segments: Segment[] = []
    for (let column = 0; column < this.#cells.length; column++) {
      const text = this.#cells[column] ?? " "
      const styles = this.#styles[column] ?? UNSTYLED
      const last = segments.at(-1)
      if (last?.styles === styles) last.text += text
      else segments.push({ text, styles })
    }
    if (this.#beyond > 0) segments.push({ text: ` … (${this.#beyond} more characters)`, styles: [] })
    return segments
  }

  #print(text: string): void {
    if (text !== "" && this.#hasMovedUp) this.#erase(0, 0)
    // Most of a very long line is beyond what is shown.
    const shown = text.length > 2 * SHOWN_COLUMNS ? text.slice(0, 2 * SHOWN_COLUMNS) : text
    for (const character of shown) this.#put(character)
    this.#column += text.length - shown.length
    this.#beyond = Math.max(this.#beyond, this.#column - SHOWN_COLUMNS)
  }

  #put(character: string): void {
    const width = columnsOf(character)
    const column = this.#column
    this.#column += width
    if (column >= SHOWN_COLUMNS) return
    if (width === 0) {
      if (column > 0) this.#cells[column - 1] += character
      return
    }
    // Half of a wide character is none.
    if (this.#cells[column] === "") this.#cells[column - 1] = " "
    if (this.#cells[column + width] === "") this.#cells[column + width] = " "
    for (let at = column; at < column + width; at++) {
      this.#cells[at] = at === column ? character : ""
      this.#styles[at] = this.#names
    }
  }

  #move(control: string): void {
    if (control === "\r") this.#column = 0
    else if (control === "\b") this.#column = Math.max(0, this.#column - 1)
    else if (control === "\t") this.#column += TAB_COLUMNS - (this.#column % TAB_COLUMNS)
  }

  #obey(command: string, parameters: string): void {
    const numbers = parameters.split(/[;:]/).map(Number)
    const [first = 0] = numbers
    const steps = Math.max(1, first)
    if (command === "m") {
      this.#style.apply(numbers)
      this.#names = this.#style.names()
    } else if (/[JK]/.test(command)) {
      if (first === 0) this.#erase(this.#column)
      else this.#erase(0, first === 1 ? this.#column + 1 : 0)
    } else if (command === "C") this.#column += steps
    else if (command === "D") this.#column = Math.max(0, this.#column - steps)
    else if (command === "G") this.#column = steps - 1
    else if (/[AFH]/.test(command)) this.#hasMovedUp = true
  }

  /** Erases the columns from `start` to before `end`; without `end` all to the right. */
  #erase(start: number, end = 0): void {
    this.#hasMovedUp &&= start > 0 || end > 0
    if (this.#cells[start] === "" && start > 0) this.#cells[start - 1] = " "
    if (end > 0 && this.#cells[end] === "") this.#cells[end] = " "
    if (end === 0) {
      this.#cells.length = Math.min(this.#cells.length, start)
      this.#beyond = 0
    }
    for (let column = start; column < Math.min(end, this.#cells.length); column++) {
      this.#cells[column] = " "
      this.#styles[column] = UNSTYLED
    }
  }
}

/** Returns the pieces of a line by their style, as a terminal shows the line in the end. */
export function parseSegments(text: string): Segment[] {
  if (!CONTROLLED.test(text)) return text === "" ? [] : [{ text, styles: UNSTYLED }]
  const line = new TerminalLine()
  line.write(text)
  return line.segments()
}

/** Returns the text of a line that a terminal shows in the end. */
export function plain(line: string): string {
  // Most sequences are those of colors.
  const colorless = line.replace(COLORS, "")
  return CONTROLLED.test(colorless) ? plainText(parseSegments(line)) : colorless
}

export function plainText(segments: readonly Segment[]): string {
  return segments.map(({ text }) => text).join("")
}

/** Characters of scripts and emoji that are two columns wide. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}]/u
/** Marks that belong to the character before. */
const COMBINING = /\p{Mn}|[\u200b-\u200f]/u

function columnsOf(character: string): number {
  if (character < "\u0300") return 1
  return COMBINING.test(character) ? 0 : WIDE.test(character) ? 2 : 1
}

/** Returns the columns of a text without control characters. */
export function widthOf(text: string): number {
  let columns = 0
  for (const character of text)
    columns += character === "\t" ? TAB_COLUMNS - (columns % TAB_COLUMNS) : columnsOf(character)
  return columns
}

const ATTRIBUTES: Record<number, string> = {
  1: "bold",
  2: "dim",
  3: "italic",
  4: "underline",
  7: "inverse",
  9: "strike",
}
const ENDED: Record<number, readonly string[]> = {
  22: ["bold", "dim"],
  23: ["italic"],
  24: ["underline"],
  27: ["inverse"],
  29: ["strike"],
}

/** Style that SGR sequences have set so far. */
class Style {
  #attributes = new Set<string>()
  #fg: number | undefined
  #bg: number | undefined

  names(): string[] {
    const colors = [this.#fg === undefined ? [] : [`fg-${this.#fg}`], this.#bg === undefined ? [] : [`bg-${this.#bg}`]]
    return [...this.#attributes, ...colors.flat()]
  }

  apply(codes: readonly number[]): void {
    for (let at = 0; at < codes.length; at++) {
      const code = codes[at] ?? 0
      if (code === 38 || code === 48) {
        const { color, length } = extendedColor(codes.slice(at + 1))
        if (code === 38) this.#fg = color
        else this.#bg = color
        at += length
      } else this.#set(code)
    }
  }

  #set(code: number): void {
    if (code === 0) {
      this.#attributes.clear()
      this.#fg = undefined
      this.#bg = undefined
    } else if (code === 39) this.#fg = undefined
    else if (code === 49) this.#bg = undefined
    else if (ATTRIBUTES[code] !== undefined) this.#attributes.add(ATTRIBUTES[code])
    else if (ENDED[code] !== undefined) for (const name of ENDED[code]) this.#attributes.delete(name)
    else this.#setColor(code)
  }

  #setColor(code: number): void {
    const color = code % 10
    if (color > 7) return
    const tens = Math.floor(code / 10)
    if (tens === 3) this.#fg = color
    else if (tens === 4) this.#bg = color
    else if (tens === 9) this.#fg = color + 8
    else if (tens === 10) this.#bg = color + 8
  }
}

/** Returns the nearest of the 16 colors, which are readable in both themes, and the number of codes read. */
function extendedColor([mode, ...rest]: readonly number[]): { color: number | undefined; length: number } {
  if (mode === 5) return { color: paletteColor(rest[0] ?? 0), length: 2 }
  if (mode === 2) return { color: nearest(rest[0] ?? 0, rest[1] ?? 0, rest[2] ?? 0), length: 4 }
  return { color: undefined, length: 0 }
}

function paletteColor(index: number): number {
  if (index < 16) return index
  if (index >= 232) return index < 238 ? 0 : index < 244 ? 8 : index < 250 ? 7 : 15
  const at = index - 16
  const level = (value: number): number => (value % 6) * 51
  return nearest(level(Math.floor(at / 36)), level(Math.floor(at / 6)), level(at))
}

function nearest(red: number, green: number, blue: number): number {
  const most = Math.max(red, green, blue)
  if (most < 64) return 0
  const bit = (value: number): number => (value > most / 2 ? 1 : 0)
  return bit(red) + 2 * bit(green) + 4 * bit(blue) + (most > 192 ? 8 : 0)
}
