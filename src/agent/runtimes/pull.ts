import type Docker from "dockerode"
import { backoffSeconds } from "../../core/apis/backoff.ts"
import { type Clock, systemClock } from "../../core/apis/clock.ts"
import type { FinishReason } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { RegistryAccess } from "../../core/protocol/protocol.ts"
import { timer, waitUnlessAborted } from "../timers.ts"
import { errorMessage, ifFound, withTimeout } from "./engine.ts"
import { type PullLine, PullProgress } from "./pull-progress.ts"
import { isBusy, requestedDelay } from "./registry-delay.ts"
import { type PrepareOptions, RunError } from "./runtime.ts"

/** Time without progress of a pull, over all of its tries, after which the agent gives up, seconds. */
export const PULL_PATIENCE_SECONDS = 300

/** Part of the patience after which a try without progress is replaced by another: its connection may hang. */
const STALLED_PART = 1 / 3

/** An outage of the registry costs at most the cap in addition. */
const RETRY_SECONDS = { baseSeconds: 2, capSeconds: 20 }

/** Maximum number of times that new credentials replace expired ones. */
const MAX_RENEWALS = 2

/** Pull errors that no retry fixes, in the messages of Docker and of registries. */
const FINAL_ERROR =
  /HTTP (status: )?40[134]\b|not found|manifest unknown|denied|unauthorized|forbidden|invalid reference|no matching manifest|not exist|no space left|no such host|certificate|HTTP response to HTTPS client|unsupported|(not|no longer) supported/i

/** Pull errors that other credentials may fix: HTTP 401, 403, 404 and 429. */
const ACCESS_ERROR =
  /HTTP (status: )?(40[134]|429)\b|not found|(manifest|name) unknown|denied|unauthorized|forbidden|not exist|credentials|too ?many ?requests/i

/** Beginning of the line with which an engine ends a pull: it has downloaded the image, or the image is up to date. */
const DONE = "Status: "

export interface PullOptions {
  docker: Docker
  clock: Clock
  logger: Logger
  patienceSeconds: number
  /** Returns the message of an error, with its cause on this machine if there is one. */
  explain: (error: unknown) => Promise<string>
  /**
   * True if the engine has the image by its digest, and only the access to it is in question. The engine would take its
   * own copy, and not ask the registry.
   */
  isAccessOnly?: boolean
  /** Remedy if the registry knows no such image, or denies it. */
  remedy?: string
}

/**
 * Pulls an image to the engine, and retries for as long as the pull makes progress, and `patienceSeconds` longer. So a
 * large image never times out here. Returns early if the signal is aborted.
 * @throws RunError `ImagePullFailed` if no retry can fix it, `RegistryUnavailable` if none did, `AgentFailed` without an
 *   engine
 */
export async function pullImage(
  image: string,
  access: RegistryAccess | undefined,
  options: PullOptions & PrepareOptions,
): Promise<void> {
  await new Pull(image, access, options).run()
}

/** All tries to pull one image. */
class Pull {
  readonly #image: string
  readonly #options: PullOptions & PrepareOptions
  readonly #progress: PullProgress
  #registry: RegistryAccess | undefined
  #renewals = 0
  #tries = 0
  /** Number of failures since the last progress. */
  #failures = 0

  constructor(image: string, access: RegistryAccess | undefined, options: PullOptions & PrepareOptions) {
    this.#image = image
    this.#registry = access
    this.#options = options
    this.#progress = new PullProgress(() => options.clock.monotonic())
  }

  async run(): Promise<void> {
    const { clock, logger, signal, reorder } = this.#options
    while (!signal.aborted) {
      const before = this.#progress.time
      const error = await this.#try()
      if (error === undefined || signal.aborted) return
      this.#failures = this.#progress.time > before ? 1 : this.#failures + 1
      const isRenewable = hasEnded(this.#registry) && this.#renewals < MAX_RENEWALS
      if (FINAL_ERROR.test(errorMessage(error)) && !isRenewable) throw await this.#failed("ImagePullFailed", error)
      const seconds = await this.#delayAfter(error)
      logger.warn({ err: error, image: this.#image, seconds }, "failed to pull the image; retrying")
      await waitUnlessAborted(clock, seconds, signal)
      if (!isRenewable || signal.aborted) continue
      this.#registry = (await reorder()).registry
      this.#renewals++
    }
  }

  /** Returns the delay before the next try, seconds. Rejects if that would be too late. */
  async #delayAfter(error: unknown): Promise<number> {
    const { clock, patienceSeconds, signal } = this.#options
    const quiet = clock.monotonic() - this.#progress.time
    const left = patienceSeconds - quiet
    const requested = isBusy(errorMessage(error)) ? await requestedDelay(this.#image, clock, signal) : undefined
    if (left > 0 && (requested ?? 0) <= left) {
      return requested ?? Math.min(left, backoffSeconds(this.#failures, RETRY_SECONDS))
    }
    const asks = requested === undefined ? "" : `; the registry asks to wait ${requested} s`
    const how = `; no progress for ${Math.round(quiet)} s in ${this.#tries} tries${asks}`
    throw await this.#failed(isEngineGone(error) ? "AgentFailed" : "RegistryUnavailable", error, how)
  }

  /** Pulls once. Returns the error; undefined after a success. Ends a try that makes no progress. */
  async #try(): Promise<unknown> {
    const { docker, clock, patienceSeconds, signal, isAccessOnly } = this.#options
    const progress = this.#progress
    this.#tries++
    if (isAccessOnly === true) return await this.#tryAccess()
    progress.begin()
    const stalled = new AbortController()
    let cancel = (): void => {}
    const watch = (): void => {
      cancel()
      // A layer that is unpacked needs no connection, and another try would unpack it from its beginning.
      const seconds = progress.isExtracting ? patienceSeconds : patienceSeconds * STALLED_PART
      cancel = timer(clock, seconds, () => stalled.abort(new Error(`no progress for ${Math.round(seconds)} s`)))
    }
    watch()
    try {
      const abortSignal = AbortSignal.any([signal, stalled.signal])
      const stream = (await docker.pull(this.#image, { ...this.#credentials, abortSignal })) as NodeJS.ReadableStream
      let isDone = false
      await follow(docker, stream, (line) => {
        if (progress.advance(line)) watch()
        isDone ||= line.status?.startsWith(DONE) === true
      })
      // An image that was there before says nothing about this pull.
      if (isDone && (await ifFound(docker.getImage(this.#image).inspect())) !== undefined) return undefined
      return new Error("the pull ended early")
    } catch (error) {
      return stalled.signal.aborted ? stalled.signal.reason : error
    } finally {
      cancel()
    }
  }

  /** Asks the registry for the image's manifest. Returns the error; undefined after a success. */
  async #tryAccess(): Promise<unknown> {
    const { docker, patienceSeconds } = this.#options
    try {
      const asked = docker.getImage(this.#image).distribution(this.#credentials)
      await withTimeout(patienceSeconds * STALLED_PART, asked)
      return undefined
    } catch (error) {
      return error
    }
  }

  get #credentials(): { authconfig?: object } {
    return this.#registry === undefined ? {} : { authconfig: toAuthConfig(this.#registry) }
  }

  /** Returns the end of this pull. It says why there are no credentials only if these could help. */
  async #failed(reason: FinishReason, error: unknown, how = ""): Promise<RunError> {
    const message = await this.#options.explain(error)
    const why = this.#registry?.why
    const isAccess = ACCESS_ERROR.test(message)
    const missing = why !== undefined && isAccess ? ` (${why})` : ""
    const { remedy } = this.#options
    const helps = remedy !== undefined && isAccess && reason === "ImagePullFailed" ? `; ${remedy}` : ""
    const text = `image ${this.#image} can't be pulled: ${message}${missing}${how}${helps}`
    return new RunError(reason, text, error, reason === "RegistryUnavailable")
  }
}

/** Resolves at the end of the stream. Rejects with the error in it. */
async function follow(docker: Docker, stream: NodeJS.ReadableStream, onLine: (line: PullLine) => void): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  docker.modem.followProgress(
    stream,
    (error, output: PullLine[]) => {
      const failure = error ?? failureIn(output)
      if (failure === undefined) resolve()
      else reject(failure)
    },
    onLine,
  )
  await promise
}

/** After the first layers the engine can report an error only by a line. */
function failureIn(output: readonly PullLine[] = []): Error | undefined {
  const failed = output.find(({ error }) => error !== undefined)
  return failed && new Error(failed.errorDetail?.message ?? failed.error)
}

/**
 * Returns the credentials in the engine's form (https://docs.docker.com/reference/api/engine/#section/Authentication).
 */
function toAuthConfig({ registry, username, password, token }: RegistryAccess): object {
  if (token !== undefined) return { serveraddress: registry, registrytoken: token }
  return { serveraddress: registry, ...(username !== undefined && { username, password }) }
}

/** Returns true if the access has expired, so that a new one may succeed. */
function hasEnded({ expiration }: Partial<RegistryAccess> = {}): boolean {
  return expiration !== undefined && Date.parse(expiration) <= systemClock.now().getTime()
}

/** Returns true if there was no connection to the engine's socket. */
function isEngineGone(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).syscall !== undefined
}
