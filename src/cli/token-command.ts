import { exec } from "node:child_process"
import { type Environment, TOKEN_COMMAND } from "./context.ts"
import { EXIT, Failure } from "./exit.ts"

/** Longest time until a command has printed its token, milliseconds. */
const PATIENCE_MS = 60_000
/** A token that ends within this time is replaced first, milliseconds. */
const REPLACED_BEFORE_MS = 30_000
/** Time for which a token is used that does not say when it ends, milliseconds. */
const KEPT_MS = 60_000

/** Token of a run of the command, and its text once it has printed one. It is used until then, epoch milliseconds. */
interface Latest {
  token: Promise<string>
  until: number
  text?: string
}

/** Tokens of a shell command of the user's. Issuers of CI systems give tokens for some minutes, and jobs take hours. */
export class CommandTokens {
  readonly #environment: Environment
  readonly #signal: AbortSignal
  #latest: Latest | undefined

  constructor(environment: Environment, signal: AbortSignal) {
    this.#environment = environment
    this.#signal = signal
  }

  /**
   * Returns a token that is still valid. @throws Failure with what the command wrote to standard error
   * @param rejected token that the API has rejected, whenever it ends
   */
  async of(command: string, rejected?: string): Promise<string> {
    const isRejected = rejected !== undefined && this.#latest?.text === rejected
    if (this.#latest === undefined || this.#latest.until <= Date.now() || isRejected) {
      // Requests at the same time share one command.
      const latest: Latest = { token: this.#run(command), until: Number.POSITIVE_INFINITY }
      this.#latest = latest
      latest.token.then(
        (token) => {
          latest.text = token
          latest.until = endOf(token) - REPLACED_BEFORE_MS
        },
        () => {
          latest.until = 0
        },
      )
    }
    return this.#latest.token
  }

  #run(command: string): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>()
    // A cancellation needs a token after Ctrl-C, too.
    const signal = this.#signal.aborted ? undefined : this.#signal
    const options = { env: this.#environment as NodeJS.ProcessEnv, timeout: PATIENCE_MS, ...(signal && { signal }) }
    const child = exec(command, options, (error, stdout, stderr) => {
      const token = stdout.trim()
      if (error === null && /^\S+$/.test(token)) return resolve(token)
      const why = stderr.trim().split("\n").at(-1) || (error === null ? "it printed no token" : error.message)
      reject(new Failure(EXIT.forbidden, `The command of ${TOKEN_COMMAND} gave no token: ${why}`))
    })
    child.stdin?.end()
    return promise
  }
}

/** Returns the time at which a JWT ends, epoch milliseconds. The API checks tokens; this is only when to get the next. */
function endOf(token: string): number {
  try {
    const { exp } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8")) as {
      exp?: unknown
    }
    if (typeof exp === "number") return exp * 1000
  } catch {
    // An opaque token.
  }
  return Date.now() + KEPT_MS + REPLACED_BEFORE_MS
}
