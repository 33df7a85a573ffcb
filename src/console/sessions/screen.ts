import { FitAddon } from "@xterm/addon-fit"
import { Terminal } from "@xterm/xterm"
import css from "@xterm/xterm/css/xterm.css" with { type: "text" }
import type { TerminalSize } from "../../core/apis/remote-command.ts"
import { adoptStyles, constructStyles } from "./constructed-styles.ts"

constructStyles()
adoptStyles(css)

/** Bytes that may wait to be drawn. A browser can't slow down a WebSocket, and xterm.js throws above 50 MB. */
const MOST_WAITING_BYTES = 16 * 1024 * 1024

/** Lines that can be scrolled back to. */
const SCROLLBACK_LINES = 5000

export interface ScreenOptions {
  /** Name for screen readers. */
  label: string
  /** Takes what the person types, pastes, or selects in a program with a mouse. */
  onInput: (input: Uint8Array) => void
  onResize: (size: TerminalSize) => void
  /** The person leaves the terminal by the keyboard. */
  onLeave: () => void
}

/** A terminal in an element of the page. */
export class Screen {
  readonly #terminal: Terminal
  readonly #fit = new FitAddon()
  readonly #place: HTMLElement
  readonly #watch: ResizeObserver
  #waiting = 0
  #leftOut = 0

  constructor(place: HTMLElement, { label, onInput, onResize, onLeave }: ScreenOptions) {
    this.#place = place
    const { fontFamily } = getComputedStyle(place)
    const looks = { fontFamily, fontSize: 14, minimumContrastRatio: 4.5, cursorBlink: false }
    const terminal = new Terminal({
      ...looks,
      screenReaderMode: true,
      scrollback: SCROLLBACK_LINES,
    })
    this.#terminal = terminal
    terminal.loadAddon(this.#fit)
    terminal.open(place)
    terminal.textarea?.setAttribute("aria-label", label)
    terminal.attachCustomKeyEventHandler((event) => {
      if (!isLeaving(event)) return true
      if (event.type === "keydown") onLeave()
      return false
    })
    terminal.onData((text) => onInput(new TextEncoder().encode(text)))
    terminal.onBinary((text) => onInput(Uint8Array.from(text, (letter) => letter.charCodeAt(0))))
    terminal.onResize(({ cols, rows }) => onResize({ columns: cols, rows }))
    this.#watch = new ResizeObserver(() => {
      // A hidden terminal keeps its size.
      if (place.clientHeight > 0) this.#fit.fit()
    })
    this.#watch.observe(place)
    this.#fit.fit()
    this.recolor()
  }

  get size(): TerminalSize {
    const { cols, rows } = this.#terminal
    return { columns: cols, rows }
  }

  /** Takes the colors of its place, after a change of the theme. */
  recolor(): void {
    const { color, backgroundColor } = getComputedStyle(this.#place)
    this.#terminal.options.theme = { foreground: color, background: backgroundColor, cursor: color }
  }

  /** Shows output. What comes faster than it can be drawn is left out, and counted. */
  write(output: Uint8Array): void {
    if (this.#waiting > MOST_WAITING_BYTES) {
      this.#leftOut += output.byteLength
      return
    }
    this.#waiting += output.byteLength
    this.#terminal.write(output, () => {
      this.#waiting -= output.byteLength
      if (this.#leftOut === 0 || this.#waiting > 0) return
      this.#terminal.write(`\r\n[${this.#leftOut} bytes came faster than this page draws them, and are left out]\r\n`)
      this.#leftOut = 0
    })
  }

  focus(): void {
    this.#terminal.focus()
  }

  /** Keeps what is shown, and takes no input any more. */
  freeze(): void {
    Object.assign(this.#terminal.options, { disableStdin: true, cursorInactiveStyle: "none" })
    this.#terminal.blur()
  }

  dispose(): void {
    this.#watch.disconnect()
    this.#terminal.dispose()
  }
}

/** The keys by which the focus leaves a terminal. Programs in it get all others, also Tab. */
export const LEAVE_KEYS = "Ctrl+Shift+Enter"

function isLeaving({ ctrlKey, shiftKey, key }: KeyboardEvent): boolean {
  return ctrlKey && shiftKey && key === "Enter"
}
