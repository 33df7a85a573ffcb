import { onAborted } from "../apis/abort.ts"
import { CLIENT_REASONS, KubeError } from "./errors.ts"

interface Deadlined {
  method: string
  path: string
  signal?: AbortSignal | undefined
}

/** Combines a request's timeout and its caller's signal into one signal. */
export class Deadline {
  readonly #controller = new AbortController()
  readonly #timer: NodeJS.Timeout
  readonly #endsAt: number
  readonly #ignoreCaller: () => void

  constructor(request: Deadlined, seconds: number) {
    this.#endsAt = performance.now() + seconds * 1000
    this.#timer = setTimeout(() => {
      this.#controller.abort(
        new KubeError({
          code: 0,
          reason: CLIENT_REASONS.timeout,
          message: `${request.method} ${request.path}: no answer within ${seconds} s`,
          outcomeUnknown: request.method !== "GET",
        }),
      )
    }, seconds * 1000)
    const { signal } = request
    this.#ignoreCaller =
      signal === undefined ? () => undefined : onAborted(signal, () => this.#controller.abort(signal.reason))
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  secondsLeft(): number {
    return Math.max(0.001, (this.#endsAt - performance.now()) / 1000)
  }

  /** Returns the cause of a request's end: this deadline's reason if the deadline ended the request, else the error. */
  explain(error: unknown): unknown {
    return this.signal.aborted ? this.signal.reason : error
  }

  clear(): void {
    clearTimeout(this.#timer)
    this.#ignoreCaller()
  }
}
