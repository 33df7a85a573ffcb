import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { setTimeout as delay } from "node:timers/promises"

/** Timeout for the start and the stop of a program, in seconds. Loaded machines are slow. */
const PATIENCE_SECONDS = 120

/** Exit code and signal of a process. */
export interface Ending {
  code: number | null
  signal: NodeJS.Signals | null
}

/** Program of Berth in a process of its own, with its output. */
export class Program {
  readonly #child: ChildProcess
  readonly #listeners = new Set<() => void>()
  readonly name: string
  readonly ended: Promise<Ending>
  #output = ""
  #ending: Ending | undefined

  /** Starts `node FILE ARGS`, or another command. It has no terminal; its standard input closes when this process ends. */
  constructor(name: string, argv: readonly string[], env = process.env, command = process.execPath) {
    this.name = name
    this.#child = spawn(command, argv, { env, stdio: ["pipe", "pipe", "pipe"] })
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (piece: string) => {
        this.#output += piece
        for (const listener of this.#listeners) listener()
      })
    }
    this.ended = once(this.#child, "close").then(([code, signal]) => {
      this.#ending = { code, signal }
      for (const listener of this.#listeners) listener()
      return this.#ending
    })
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.name} could not be started`)
    return this.#child.pid
  }

  get running(): boolean {
    return this.#ending === undefined
  }

  /** Output so far, of both streams. */
  get output(): string {
    return this.#output
  }

  /** Resolves with the pattern's match as soon as the output has one. Throws if the program ends without it. */
  async printed(pattern: RegExp, seconds = PATIENCE_SECONDS): Promise<RegExpExecArray> {
    const found = Promise.withResolvers<RegExpExecArray>()
    const fail = (why: string) =>
      found.reject(new Error(`${this.name} ${why} before it said ${pattern}:\n${this.#output.slice(-4000)}`))
    const look = (): void => {
      const match = pattern.exec(this.#output)
      if (match !== null) found.resolve(match)
      else if (this.#ending !== undefined) fail(`ended (${JSON.stringify(this.#ending)})`)
    }
    const timer = setTimeout(() => fail(`took more than ${seconds} s`), seconds * 1000)
    this.#listeners.add(look)
    try {
      look()
      return await found.promise
    } finally {
      clearTimeout(timer)
      this.#listeners.delete(look)
    }
  }

  /** Returns the facts of its READY line. */
  async ready<Facts>(): Promise<Facts> {
    const [, facts = ""] = await this.printed(/^READY (.*)$/m)
    return JSON.parse(facts) as Facts
  }

  send(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  /** Kills it with SIGKILL, and resolves when it has ended. */
  async kill(): Promise<void> {
    this.send("SIGKILL")
    await this.ended
  }

  /** Stops it by SIGTERM or another signal. If it doesn't end, kills it and rejects. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<Ending> {
    this.send(signal)
    const enough = new AbortController()
    const overdue = delay(PATIENCE_SECONDS * 1000, undefined, { signal: enough.signal }).catch(() => undefined)
    const ending = await Promise.race([this.ended, overdue])
    enough.abort()
    if (ending !== undefined) return ending
    await this.kill()
    throw new Error(`${this.name} did not end within ${PATIENCE_SECONDS} s after ${signal}`)
  }
}
