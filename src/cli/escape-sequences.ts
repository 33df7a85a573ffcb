/** State of a stream of text in a terminal's escape sequences (ECMA-48). */
type State =
  | { in: "text" }
  /** After ESC and its intermediate bytes, or in `ESC [`. `read`: the sequence so far. */
  | { in: "sequence"; read: string }
  /** In the text of an OSC, DCS, SOS, PM or APC. */
  | { in: "string"; length: number; isEscaped: boolean }

/** Longest sequence and longest text of one. What is longer is none, so that a stray ESC hides no more than that. */
const LONGEST = { sequence: 64, string: 4096 }

const TEXT: State = { in: "text" }
// biome-ignore lint/suspicious/noControlCharactersInRegex: SGR, which sets colors and styles
const COLOR = /^\x1b\[[0-9;:]*m$/
// biome-ignore lint/suspicious/noControlCharactersInRegex: C0 without tab, newline, backspace and return; C1; directions of text
const CONTROL = /[\u0000-\u0007\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/

/**
 * Lets through what a terminal only shows: text, tabs, newlines, returns and backspaces, and the sequences for colors. All others
 * are left out. They move the cursor, clear the screen, set the title, write the clipboard, or make the terminal answer.
 */
export class ColorsOnly {
  #state: State = TEXT

  /** Returns what is left of the next piece. */
  of(piece: string): string {
    if (this.#state.in === "text" && !CONTROL.test(piece)) return piece
    let passed = ""
    for (const character of piece) passed += this.#next(character)
    return passed
  }

  #next(character: string): string {
    const state = this.#state
    if (state.in === "sequence") return this.#inSequence(state.read, character)
    if (state.in === "string") return this.#inString(state, character)
    if (character === "\u001b") this.#state = { in: "sequence", read: character }
    return CONTROL.test(character) ? "" : character
  }

  #inSequence(read: string, character: string): string {
    const sequence = read + character
    // A control character ends a sequence, and a sequence that is too long is none.
    if (CONTROL.test(character) || /[\t\n\b\r]/.test(character) || sequence.length > LONGEST.sequence) {
      this.#state = TEXT
      return this.#next(character)
    }
    if (read === "\u001b" && /[\]PX^_]/.test(character)) this.#state = { in: "string", length: 0, isEscaped: false }
    else if (isOpen(sequence)) this.#state = { in: "sequence", read: sequence }
    else this.#state = TEXT
    return COLOR.test(sequence) ? sequence : ""
  }

  #inString({ length, isEscaped }: Extract<State, { in: "string" }>, character: string): string {
    const isEnd = character === "\u0007" || (isEscaped && character === "\\")
    if (character === "\n" || length >= LONGEST.string) {
      this.#state = TEXT
      return this.#next(character)
    }
    this.#state = isEnd ? TEXT : { in: "string", length: length + 1, isEscaped: character === "\u001b" }
    return ""
  }
}

/** Returns true if more characters belong to a sequence. */
function isOpen(sequence: string): boolean {
  // ESC [, parameters and intermediates, until a final byte; or ESC and intermediates.
  // biome-ignore lint/suspicious/noControlCharactersInRegex: sequences begin with a control character
  return /^\x1b(\[[0-?]*[ -/]*|[ -/]*)$/.test(sequence)
}

/**
 * Returns a text that is no log with what `ColorsOnly` lets through, without returns and backspaces: they would write over what
 * stands before the text.
 */
export function colorsOnly(text: string): string {
  return new ColorsOnly().of(text).replaceAll(/[\b\r]/g, "")
}
