/** Lines of a job's log that are its tail, at most. */
export const TAIL_LINES = 20

/** Largest tail, bytes of UTF-8. */
const TAIL_BYTES = 2048

/** Bytes at the end of a log that are read for its tail. Progress bars write many times what a terminal shows in the end. */
const READ_BYTES = 64 * 1024

/** Escape sequences of a terminal (ECMA-48), control characters, separators of lines, and marks that turn the text's direction. */
const CONTROL =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what is removed begins with control characters
  /\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]/g

// biome-ignore lint/suspicious/noControlCharactersInRegex: sequences begin with a control character
const ERASE = /^\x1b\[([0-2]?)[JK]$/

/** Returns what a terminal shows of a line in the end, without colors. Returns and backspaces write over earlier text. */
export function shownLine(line: string): string {
  if (line.search(CONTROL) < 0) return line.trim()
  let cells: string[] = []
  let column = 0
  const print = (text: string): void => {
    for (const character of text) {
      while (cells.length < column) cells.push(" ")
      cells[column++] = character
    }
  }
  let end = 0
  for (const { 0: control, index } of line.matchAll(CONTROL)) {
    print(line.slice(end, index))
    end = index + control.length
    const erased = ERASE.exec(control)?.[1]
    if (control === "\r") column = 0
    else if (control === "\b") column = Math.max(0, column - 1)
    else if (control === "\t") print(" ")
    else if (erased === "2") cells = []
    else if (erased === "1") cells.fill(" ", 0, column + 1)
    else if (erased !== undefined) cells.length = Math.min(cells.length, column)
  }
  print(line.slice(end))
  return cells.join("").trim()
}

/**
 * Returns the tail of a log as plain text: its last lines, at most TAIL_LINES and 2 KiB of them, as a terminal shows them. Lines are
 * whole, except a last one that is longer. @param pieces last lines of the log
 */
export async function readTail(pieces: AsyncIterable<Uint8Array>): Promise<string> {
  let end = new Uint8Array()
  let isCut = false
  for await (const piece of pieces) {
    const all = new Uint8Array(end.length + piece.length)
    all.set(end)
    all.set(piece, end.length)
    isCut ||= all.length > READ_BYTES
    end = all.slice(-READ_BYTES)
  }
  const lines = new TextDecoder().decode(end).split("\n").map(shownLine)
  // The first one may be half a line.
  const whole = isCut ? lines.slice(1) : lines
  return tailOf(whole.some((line) => line !== "") ? whole : lines)
}

function tailOf(lines: readonly string[]): string {
  const last = lines.findLastIndex((line) => line !== "")
  const taken: string[] = []
  let left = TAIL_BYTES
  for (const line of lines.slice(0, last + 1).reverse()) {
    const bytes = utf8.encode(line).length + (taken.length > 0 ? 1 : 0)
    if (taken.length === TAIL_LINES || bytes > left) break
    left -= bytes
    taken.unshift(line)
  }
  if (taken.length === 0 && last >= 0) return cutToBytes(lines[last] ?? "", TAIL_BYTES)
  return taken
    .slice(
      Math.max(
        0,
        taken.findIndex((line) => line !== ""),
      ),
    )
    .join("\n")
}

const utf8 = new TextEncoder()

/** Cuts a line to some bytes of UTF-8, the last character of them …. */
function cutToBytes(line: string, bytes: number): string {
  let cut = ""
  let left = bytes - utf8.encode("…").length
  for (const character of line) {
    left -= utf8.encode(character).length
    if (left < 0) break
    cut += character
  }
  return `${cut}…`
}
