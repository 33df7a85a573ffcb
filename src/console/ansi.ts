/** Piece of a line of a log, with the names of its styles: `bold`, `fg-1`, `bg-12`. */
export interface Segment {
  text: string
  styles: readonly string[]
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with control characters
const SEQUENCE = /\x1b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g

/** Returns the text of a line that a terminal would show in the end: a carriage return overwrites what is before it. */
function overwritten(line: string): string {
  const text = line.endsWith("\r") ? line.slice(0, -1) : line
  return text.slice(text.lastIndexOf("\r") + 1)
}

/** Returns the pieces of a line by their style. Escape sequences other than those of colors are left out. */
export function segmentsOf(line: string): Segment[] {
  const text = overwritten(line)
  if (!text.includes("\x1b")) return text === "" ? [] : [{ text, styles: [] }]
  const segments: Segment[] = []
  const style = new Style()
  let end = 0
  const add = (until: number): void => {
    if (until > end) segments.push({ text: text.slice(end, until), styles: style.names() })
  }
  for (const found of text.matchAll(SEQUENCE)) {
    add(found.index)
    end = found.index + found[0].length
    if (found[2] === "m") style.apply((found[1] ?? "").split(/[;:]/).map(Number))
  }
  add(text.length)
  return segments
}

/** Returns a line without escape sequences. */
export function plain(line: string): string {
  return segmentsOf(line)
    .map(({ text }) => text)
    .join("")
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
        const { color, length } = extended(codes.slice(at + 1))
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
function extended([mode, ...rest]: readonly number[]): { color: number | undefined; length: number } {
  if (mode === 5) return { color: ofPalette(rest[0] ?? 0), length: 2 }
  if (mode === 2) return { color: nearest(rest[0] ?? 0, rest[1] ?? 0, rest[2] ?? 0), length: 4 }
  return { color: undefined, length: 0 }
}

function ofPalette(index: number): number {
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
