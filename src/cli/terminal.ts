import { once } from "node:events"
import { createInterface } from "node:readline/promises"
import { Writable } from "node:stream"
import { styleText } from "node:util"
import { ColorsOnly, colorsOnly } from "./escape-sequences.ts"
import { EXIT, Failure, usageError } from "./exit.ts"

export interface Streams {
  stdin: NodeJS.ReadStream
  stdout: NodeJS.WriteStream
  stderr: NodeJS.WriteStream
}

/** Terminal of a person, while a program has all of it. */
export interface Screen {
  size: () => { columns: number; rows: number }
  /** Lets every key through, also Ctrl-C. The returned function ends that. */
  makeRaw: () => () => void
  /** Calls back after each change of the size. The returned function ends that. */
  onResize: (callback: () => void) => () => void
}

export type Style = "bold" | "dim" | "green" | "red" | "yellow" | "cyan"

/** Log on its way to a terminal, in pieces. */
class LogText {
  readonly #decoder = new TextDecoder()
  readonly #colors = new ColorsOnly()

  of(piece: Uint8Array): string {
    return this.#colors.of(this.#decoder.decode(piece, { stream: true }))
  }
}

/**
 * Streams of the command: results to standard output, all else to standard error. Where a stream is a terminal, text and logs
 * of others can color it, and change nothing else of it. A file or a program gets every byte.
 */
export class Terminal {
  readonly #streams: Streams
  readonly #signal: AbortSignal
  readonly #allowsColor: boolean
  /** Rows of the last redraw. */
  #drawnRows = 0
  /** Logs on their way to a terminal, by stream. */
  readonly #logs = { stdout: new LogText(), stderr: new LogText() }
  /** False suppresses progress. */
  isVerbose = true

  /** @param allowsColor false after `--no-color` and with NO_COLOR */
  constructor(streams: Streams, allowsColor: boolean, signal: AbortSignal) {
    this.#streams = streams
    this.#allowsColor = allowsColor
    this.#signal = signal
  }

  /** True if a person reads the output and can answer questions. */
  get isInteractive(): boolean {
    return this.#streams.stdin.isTTY === true && this.#streams.stderr.isTTY === true
  }

  /** True if standard output is a terminal, which may be redrawn. */
  get isScreen(): boolean {
    return this.#streams.stdout.isTTY === true
  }

  get rows(): number {
    return this.#streams.stdout.rows ?? 24
  }

  /** Writes a result, or bytes of a log. Waits while the reader is slow. */
  write(data: string | Uint8Array): Promise<void> {
    if (!this.isScreen) return this.#send("stdout", data)
    return this.#send("stdout", typeof data === "string" ? colorsOnly(data) : this.#logs.stdout.of(data))
  }

  async #send(name: "stdout" | "stderr", data: string | Uint8Array): Promise<void> {
    const stream = this.#streams[name]
    if (!stream.write(data)) await once(stream, "drain", { signal: this.#signal })
  }

  /** Writes bytes of a program that has this terminal, or whose output is a file, unchanged. */
  raw(stream: "stdout" | "stderr", data: Uint8Array): Promise<void> {
    return this.#send(stream, data)
  }

  /** Yields standard input until the signal is aborted. */
  async *pieces(signal: AbortSignal): AsyncGenerator<Buffer, void, void> {
    const { stdin } = this.#streams
    const stop = (): void => void stdin.destroy()
    signal.addEventListener("abort", stop, { once: true })
    try {
      for await (const piece of stdin) yield Buffer.from(piece)
    } catch {
      // It was closed.
    }
  }

  /** Returns the terminal of a person, for a program that gets all of it; undefined without one. */
  screen(): Screen | undefined {
    const { stdin, stdout } = this.#streams
    if (stdin.isTTY !== true || stdout.isTTY !== true) return undefined
    return {
      size: () => ({ columns: stdout.columns, rows: stdout.rows }),
      makeRaw: () => {
        stdin.setRawMode(true)
        return () => void stdin.setRawMode(false)
      },
      onResize: (callback) => {
        stdout.on("resize", callback)
        return () => void stdout.off("resize", callback)
      },
    }
  }

  line(text: string): Promise<void> {
    return this.write(`${text}\n`)
  }

  /** Shows a text in place of the one before. Lines that are too long are cut, so that each has one row. */
  redraw(text: string): Promise<void> {
    const up = this.#drawnRows === 0 ? "" : `\u001b[${this.#drawnRows}A`
    const lines = text.split("\n")
    this.#drawnRows = lines.length
    const drawn = lines.map((line) => `${colorsOnly(line)}\u001b[K\n`).join("")
    return this.#send("stdout", `\r${up}\u001b[?7l${drawn}\u001b[J\u001b[?7h`)
  }

  /** Reports what happens; not with --quiet. */
  progress(text: string): void {
    if (this.isVerbose) this.warn(text)
  }

  warn(text: string): void {
    const { stderr } = this.#streams
    stderr.write(`${stderr.isTTY === true ? colorsOnly(text) : text}\n`)
  }

  /** Writes bytes of a log to standard error, for commands whose standard output is a record. */
  log(data: Uint8Array): Promise<void> {
    return this.#send("stderr", this.#streams.stderr.isTTY === true ? this.#logs.stderr.of(data) : data)
  }

  /** Returns the text in a style if standard output shows colors. */
  styled(style: Style, text: string): string {
    return this.#hasColor(this.#streams.stdout) ? styleText(style, text, { validateStream: false }) : text
  }

  /** Returns the text in a style if standard error shows colors. */
  noted(style: Style, text: string): string {
    return this.#hasColor(this.#streams.stderr) ? styleText(style, text, { validateStream: false }) : text
  }

  #hasColor(stream: NodeJS.WriteStream): boolean {
    return this.#allowsColor && stream.isTTY === true
  }

  /**
   * Asks a question with yes as default. @param flag the flag that answers yes @throws Failure without a terminal
   */
  async confirm(question: string, flag: string, byDefault = true): Promise<boolean> {
    if (!this.isInteractive) throw usageError(`${question.trim()} There is no terminal to ask: give ${flag}.`)
    const answer = (await this.#ask(`${question} ${byDefault ? "[Y/n]" : "[y/N]"} `, this.#streams.stderr)).trim()
    return answer === "" ? byDefault : /^y(es)?$/i.test(answer)
  }

  /** Asks for a secret, which is not shown. @param hint the flag or input to use without a terminal */
  async secret(name: string, hint: string): Promise<string> {
    if (!this.isInteractive) throw usageError(`${name} is needed, and there is no terminal to ask: ${hint}.`)
    const answer = await this.#ask(
      `${name} (not shown): `,
      new Writable({ write: (_piece, _encoding, done) => done() }),
    )
    this.#streams.stderr.write("\n")
    return answer
  }

  /** Asks for a line. @param output shows what is typed; the prompt is written to standard error */
  async #ask(question: string, output: NodeJS.WritableStream): Promise<string> {
    const prompt = colorsOnly(question)
    // The terminal stops its own echo here. The prompt comes after it: what is typed at once is not shown either.
    const lines = createInterface({ input: this.#streams.stdin, output, terminal: true })
    const stopped = new AbortController()
    // Ctrl-C, and Ctrl-D: there will be no answer.
    lines.once("SIGINT", () => stopped.abort())
    lines.once("close", () => stopped.abort())
    try {
      if (output !== this.#streams.stderr) this.#streams.stderr.write(prompt)
      return await lines.question(prompt, { signal: AbortSignal.any([this.#signal, stopped.signal]) })
    } catch {
      throw new Failure(EXIT.interrupted, "\nStopped: nothing was changed.")
    } finally {
      lines.close()
    }
  }

  /** Reads standard input to its end. @param what the input that the user gives there */
  async input(what: string): Promise<string> {
    if (this.#streams.stdin.isTTY) this.warn(`Reading ${what} from standard input, to its end (Ctrl-D).`)
    const pieces: Buffer[] = []
    for await (const piece of this.#streams.stdin) pieces.push(Buffer.from(piece))
    return Buffer.concat(pieces).toString("utf8")
  }
}

/** Returns text of others with its control characters made visible: they could change what the terminal shows. */
export function shown(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to replace
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, (character) => {
    const code = character.charCodeAt(0).toString(16)
    return character === "\n" ? " " : `\\u${code.padStart(4, "0")}`
  })
}
