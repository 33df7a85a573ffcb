import type Docker from "dockerode"
import { backoffSeconds } from "../../core/apis/backoff.ts"
import { systemClock, timestamp } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { usedDiskGib, whyDiskFull } from "../disk-space.ts"
import { isNotStarted, KILLED_EXIT_CODE, signalName } from "../exit-codes.ts"
import { memoryKills } from "../memory-kills.ts"
import { waitUnlessAborted } from "../timers.ts"
import { framesOf } from "./docker-frames.ts"
import { CALL_SECONDS, errorStatus, ifFound, MIB, withTimeout } from "./engine.ts"
import type { Container, Ended, Entrance, Reading } from "./runtime.ts"
import { readingOf } from "./stats.ts"

const NEWLINE = 0x0a

/** Stop signal of an image that names none. */
const DEFAULT_STOP_SIGNAL = "SIGTERM"

/**
 * Time after a container's end in which the engine may still remove it, or may still learn that it ran out of memory,
 * seconds.
 */
const AFTERMATH_SECONDS = 1

/** Timeout of a measurement, seconds. */
const STATS_SECONDS = 5

const ENGINE_RETRY_SECONDS = { baseSeconds: 0.5, capSeconds: 10 }

/** Maximum delay between two checks of a container's state, seconds, also if the engine does not answer a wait. */
const WAIT_SECONDS = 10

interface DockerContainerOptions {
  startTime: string
  entrance: Entrance
  /** Environment, as `NAME=value`. */
  env?: readonly string[] | undefined
  /** Signal that the image asks for, in any of Docker's forms. */
  stopSignal?: string | undefined
  logger: Logger
  /** Number of the machine's memory kills before the start. Absent: it is unknown, or other jobs' kills count in it. */
  killsBefore?: number | undefined
  /** Says that the image is for another architecture than this machine's; undefined if it is for this one. */
  foreign?: string | undefined
  /** Path on the disk that the container writes to. */
  dataDir: string
  /** True if the host also runs other jobs, so that the use of its disk says nothing about this one. */
  isHostShared?: boolean
  /** Attached output of a container that this agent process has started. */
  stream?: NodeJS.ReadableStream
  /** Set if the container never ran. */
  ended?: Ended
}

/** A container of the engine, running or ended. */
export class DockerContainer implements Container {
  readonly startTime: string
  readonly env: readonly string[]
  readonly stopSignal: string
  readonly entrance: Entrance
  readonly #container: Docker.Container
  readonly #logger: Logger
  readonly #stream: NodeJS.ReadableStream | undefined
  readonly #ended: Ended | undefined
  readonly #dataDir: string
  readonly #isHostShared: boolean
  readonly #killsBefore: number
  readonly #foreign: string | undefined
  /** True if this agent has sent SIGKILL. */
  #killed = false

  constructor(container: Docker.Container, options: DockerContainerOptions) {
    this.#container = container
    this.entrance = options.entrance
    this.startTime = timestamp(new Date(options.startTime))
    this.env = options.env ?? []
    this.stopSignal = signalName(options.stopSignal || DEFAULT_STOP_SIGNAL)
    this.#logger = options.logger
    this.#stream = options.stream
    this.#ended = options.ended
    this.#dataDir = options.dataDir
    this.#isHostShared = options.isHostShared ?? false
    this.#foreign = options.foreign
    this.#killsBefore = options.killsBefore ?? Number.POSITIVE_INFINITY
  }

  /**
   * Yields the output. The attached stream is exact. The engine's logs are not: a follow can miss the last bytes when
   * the container ends. So the logs are read once more from there afterwards.
   */
  async *output(from: number): AsyncGenerator<Uint8Array, void, void> {
    if (this.#ended !== undefined) return
    let position = from
    let last: number | undefined
    let exact = false
    try {
      for await (const piece of skip(payloads(this.#stream ?? (await this.#logs())), from)) {
        position += piece.byteLength
        last = piece.at(-1)
        yield piece
      }
      // A broken connection looks like the end of the stream, but the container still runs.
      exact = this.#stream !== undefined && !(await this.#state()).Running
    } catch (error) {
      this.#logger.warn({ err: error }, "the output stream broke; continuing from the engine's copy")
    }
    if (exact) return
    await this.wait()
    yield* resume(payloads(await this.#logs()), position, last)
  }

  async #logs(): Promise<NodeJS.ReadableStream> {
    return await withTimeout(CALL_SECONDS, this.#container.logs({ follow: true, stdout: true, stderr: true }))
  }

  async #state(): Promise<Docker.ContainerInspectInfo["State"]> {
    return (await withTimeout(CALL_SECONDS, this.#container.inspect())).State
  }

  async wait(): Promise<Ended> {
    if (this.#ended !== undefined) return this.#ended
    for (let failures = 0; ; ) {
      try {
        const waiting = new AbortController()
        // The state is checked even if the engine does not answer the wait.
        await withTimeout(WAIT_SECONDS, this.#container.wait({ abortSignal: waiting.signal })).catch(() =>
          waiting.abort(),
        )
        const found = await withTimeout(CALL_SECONDS, this.#container.inspect())
        if (!found.State.Running) return await this.#result(found)
        failures = 0
      } catch (error) {
        if (errorStatus(error) === 404) return REMOVED
        this.#logger.warn({ err: error }, "the engine does not answer; retrying")
        failures++
      }
      // The engine may be restarting. The container may continue without it.
      const seconds = backoffSeconds(failures + 1, ENGINE_RETRY_SECONDS)
      await waitUnlessAborted(systemClock, seconds, new AbortController().signal)
    }
  }

  /** Returns the result, and that the disk is full if the container may have failed for that. */
  async #result(found: Docker.ContainerInspectInfo): Promise<Ended> {
    const settled = await this.#settled(found)
    if (settled === undefined) return REMOVED
    const ended = toEnded(settled)
    if (ended.exitCode === 0) return ended
    const whys = [
      ended.message,
      isNotStarted(ended.exitCode) ? this.#foreign : undefined,
      await whyDiskFull(this.#dataDir),
    ]
    const message = whys.filter(Boolean).join("; ")
    return message === "" ? ended : { ...ended, message }
  }

  /**
   * Returns the state again, shortly after a kill whose cause is unknown. Returns undefined for a removed container:
   * a removal kills it first. Else the cause may be its memory. On cgroup v2 the engine often
   * misses a kill that ends the container (https://github.com/containerd/containerd/issues/8893), but the kernel counts it.
   */
  async #settled(found: Docker.ContainerInspectInfo): Promise<Docker.ContainerInspectInfo | undefined> {
    const { ExitCode, OOMKilled } = found.State
    if (ExitCode !== KILLED_EXIT_CODE || OOMKilled || this.#killed) return found
    await waitUnlessAborted(systemClock, AFTERMATH_SECONDS, new AbortController().signal)
    const later = await ifFound(this.#container.inspect())
    const isOom = (memoryKills() ?? 0) > this.#killsBefore
    return later !== undefined && isOom ? { ...later, State: { ...later.State, OOMKilled: true } } : later
  }

  async signal(which: "stop" | "kill"): Promise<boolean> {
    if (which === "kill") this.#killed = true
    try {
      const signal = which === "kill" ? "SIGKILL" : this.stopSignal
      await withTimeout(CALL_SECONDS, this.#container.kill({ signal }))
      return true
    } catch (error) {
      // 404: removed, 409: not running.
      if (errorStatus(error) !== 404 && errorStatus(error) !== 409) throw error
      return false
    }
  }

  async read(signal: AbortSignal): Promise<Reading | undefined> {
    if (this.#ended !== undefined) return undefined
    const late = new AbortController()
    // `one-shot`: without it the engine measures twice, a second apart. dockerode's types lack `abortSignal`.
    const options = { stream: false, "one-shot": true, abortSignal: AbortSignal.any([signal, late.signal]) } as const
    try {
      const stats = await withTimeout(STATS_SECONDS, this.#container.stats(options))
      const diskGib = this.#isHostShared ? undefined : await usedDiskGib(this.#dataDir)
      const reading = readingOf(stats)
      return reading === undefined || diskGib === undefined ? reading : { ...reading, diskGib }
    } finally {
      late.abort()
    }
  }

  async remove(): Promise<void> {
    await ifFound(this.#container.remove({ force: true, v: true }))
  }
}

/** Yields the bytes of stdout and stderr from Docker's multiplexed stream: one piece for each chunk, because the engine may send every line in its own frame. */
async function* payloads(stream: AsyncIterable<string | Buffer>): AsyncGenerator<Buffer, void, void> {
  for await (const frames of framesOf(stream)) {
    const piece = Buffer.concat(frames.map(({ payload }) => payload))
    if (piece.byteLength > 0) yield piece
  }
}

async function* skip(pieces: AsyncIterable<Buffer>, bytes: number): AsyncGenerator<Buffer, void, void> {
  let left = bytes
  for await (const piece of pieces) {
    const rest = piece.subarray(left)
    left = Math.max(0, left - piece.byteLength)
    if (rest.byteLength > 0) yield rest
  }
}

/**
 * Yields the rest after `position`. If the engine broke off, it may have ended the piece with a newline of its own.
 * Then another byte is at that place.
 */
async function* resume(pieces: AsyncIterable<Buffer>, position: number, last: number | undefined) {
  let doubtful = last === NEWLINE
  for await (const piece of skip(pieces, doubtful ? position - 1 : position)) {
    const rest = doubtful && piece[0] === NEWLINE ? piece.subarray(1) : piece
    doubtful = false
    if (rest.byteLength > 0) yield rest
  }
}

const REMOVED: Ended = { exitCode: KILLED_EXIT_CODE, message: "the container was removed, but not by Berth" }

/** Docker says OOMKilled also if only another process than the first one was killed. */
function toEnded({ State, HostConfig }: Docker.ContainerInspectInfo): Ended {
  const { ExitCode: exitCode, OOMKilled, Error: message } = State
  if (!OOMKilled) return { exitCode, ...(message !== "" && { message }) }
  const mebibytes = Math.floor((HostConfig.Memory ?? 0) / MIB)
  const limit = mebibytes > 0 ? `its ${mebibytes} MiB of memory` : "the memory of its machine"
  const what =
    exitCode === 0
      ? `a process was killed for memory (OOMKilled): the container exceeded ${limit}`
      : `OOMKilled: a process of the container exceeded ${limit}`
  return { exitCode, message: `${what}; raise resources.memory`, ...(exitCode !== 0 && { cause: "OutOfMemory" }) }
}
