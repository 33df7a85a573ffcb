import Docker from "dockerode"
import { backoffSeconds } from "../../apis/backoff.ts"
import { systemClock } from "../../apis/clock.ts"
import type { Logger } from "../../apis/logger.ts"
import { GROUP } from "../../apis/meta.ts"
import type { Buckets, RegistryAccess, RunOrder } from "../protocol.ts"
import { waitUnlessAborted } from "../timers.ts"
import { VolumeDriver } from "../volumes/driver.ts"
import { type Container, type Ended, type PrepareOptions, RunError, type Runtime } from "./runtime.ts"

/** Where Docker listens unless told otherwise. */
export const DEFAULT_DOCKER_SOCKET = "/var/run/docker.sock"

/** On every container of ours: the Launch, the attempt, and the public key of the agent that made it. */
export const LAUNCH_LABEL = `${GROUP}/launch`
export const ATTEMPT_LABEL = `${GROUP}/attempt`
export const AGENT_LABEL = `${GROUP}/agent`

/**
 * The engine's own copy of the output, which a later agent catches up from. The `local` driver keeps any byte as
 * it is (json-file doesn't), and two files of this size at most.
 */
const LOG_CONFIG = { Type: "local", Config: { "max-size": "100m", "max-file": "2", compress: "false" } }

const NEWLINE = 0x0a

const PULL_TRIES = 3
const PULL_RETRY_SECONDS = { baseSeconds: 2, capSeconds: 20 }
const ENGINE_RETRY_SECONDS = { baseSeconds: 0.5, capSeconds: 10 }

/** How long the engine may take to answer, seconds. */
const CALL_SECONDS = 120

/** A container's state is looked at so often even when its wait is not answered, seconds. */
const WAIT_SECONDS = 10

/** Pull errors that no further try mends; in the words of Docker and of registries. */
const FINAL_PULL_ERROR =
  /not found|manifest unknown|denied|unauthorized|invalid reference|no matching manifest|not exist/i

export interface DockerRuntimeOptions {
  launch: string
  /** The agent's public key: where several VMs share an engine, none touches what is another's. */
  agent: string
  /** Path of the engine's socket. */
  socketPath: string
  /** The agent's folder, by its path on the engine's host. */
  dataDir: string
  /** An image with rclone in it; without it volumes can't be mounted. */
  image: string | undefined
  logger: Logger
}

/** Runs attempts as containers of the local Docker Engine, image and entrypoint unmodified. */
export class DockerRuntime implements Runtime {
  readonly name = "docker"
  readonly #docker: Docker
  readonly #launch: string
  readonly #agent: string
  readonly #logger: Logger
  readonly #volumes: VolumeDriver

  constructor({ launch, agent, socketPath, logger, dataDir, image }: DockerRuntimeOptions) {
    this.#docker = new Docker({ socketPath })
    this.#launch = launch
    this.#agent = agent
    this.#logger = logger
    const labels = { [LAUNCH_LABEL]: launch, [AGENT_LABEL]: agent }
    this.#volumes = new VolumeDriver({ docker: this.#docker, launch, labels, dataDir, image, logger })
  }

  mount(order: RunOrder, signal: AbortSignal): Promise<void> {
    return this.#volumes.mount(order, signal)
  }

  renew(buckets: Buckets): Promise<void> {
    return this.#volumes.renew(buckets)
  }

  flush(signal: AbortSignal): Promise<void> {
    return this.#volumes.flush(signal)
  }

  async prepare(order: RunOrder, { signal, reorder }: PrepareOptions): Promise<void> {
    const image = withTag(order.run.image)
    if (await this.#hasImage(image)) return
    let { registry } = order
    for (let tries = 1; !signal.aborted; tries++) {
      try {
        await this.#pull(image, { signal, registry })
        if (await this.#hasImage(image)) return
        throw new Error("the pull broke off")
      } catch (error) {
        const isOver = hasEnded(registry)
        if (tries === PULL_TRIES || (FINAL_PULL_ERROR.test(messageOf(error)) && !isOver)) {
          throw pullFailed(image, error, registry)
        }
        this.#logger.warn({ err: error, image }, "image not pulled, trying again")
        await waitUnlessAborted(systemClock, backoffSeconds(tries + 1, PULL_RETRY_SECONDS), signal)
        if (isOver && !signal.aborted) registry = (await reorder()).registry
      }
    }
  }

  async start(order: RunOrder, attempt: number): Promise<Container> {
    const container = await this.#create(order, attempt)
    // Before the start, so that not a byte is missed.
    const stream = await within(CALL_SECONDS, container.attach({ stream: true, stdout: true, stderr: true }))
    let failure: unknown
    try {
      await within(CALL_SECONDS, container.start())
    } catch (error) {
      failure = error
    }
    const { State } = await within(CALL_SECONDS, container.inspect())
    const logger = this.#logger
    if (failure === undefined) return new DockerContainer(container, { startTime: State.StartedAt, logger, stream })
    // Only the answer was lost.
    if (State.Status !== "created") return new DockerContainer(container, { startTime: State.StartedAt, logger })
    const why = `the container can't be started: ${messageOf(failure)}`
    if (State.ExitCode === 0) throw new RunError("AgentFailed", why, failure)
    const ended = { exitCode: State.ExitCode, message: why }
    return new DockerContainer(container, { startTime: systemClock.now().toISOString(), logger, ended })
  }

  async find(attempt: number): Promise<Container | undefined> {
    const container = this.#docker.getContainer(this.#nameOf(attempt))
    const found = await ifFound(container.inspect())
    if (found === undefined) return undefined
    if (found.Config.Labels[AGENT_LABEL] !== this.#agent) {
      throw new RunError("AgentFailed", `container ${this.#nameOf(attempt)} is another agent's; remove it`)
    }
    if (found.State.Status === "created" && found.State.ExitCode === 0) {
      await container.remove({ force: true, v: true })
      return undefined
    }
    return new DockerContainer(container, { startTime: found.State.StartedAt, logger: this.#logger })
  }

  async clear(): Promise<void> {
    const filters = { label: [`${LAUNCH_LABEL}=${this.#launch}`, `${AGENT_LABEL}=${this.#agent}`, ATTEMPT_LABEL] }
    for (const { Id } of await within(CALL_SECONDS, this.#docker.listContainers({ all: true, filters }))) {
      await ifFound(this.#docker.getContainer(Id).remove({ force: true, v: true }))
    }
    await this.#volumes.clear()
  }

  async #create(order: RunOrder, attempt: number): Promise<Docker.Container> {
    const { run, secretEnv, gpus } = order
    const env = { ...run.env, ...secretEnv }
    try {
      return await within(
        CALL_SECONDS,
        this.#docker.createContainer({
          name: this.#nameOf(attempt),
          Image: withTag(run.image),
          ...(isGiven(run.command) && { Entrypoint: run.command }),
          ...(isGiven(run.args) && { Cmd: run.args }),
          Env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
          Labels: { [LAUNCH_LABEL]: this.#launch, [ATTEMPT_LABEL]: String(attempt), [AGENT_LABEL]: this.#agent },
          HostConfig: {
            NetworkMode: "bridge",
            SecurityOpt: ["no-new-privileges"],
            LogConfig: LOG_CONFIG,
            Mounts: this.#volumes.mountsOf(order),
            ...(gpus > 0 && { DeviceRequests: [{ Driver: "", Count: gpus, Capabilities: [["gpu"]] }] }),
          },
        }),
      )
    } catch (error) {
      // 400: what the Job asks for makes no container, such as an image without any command.
      const reason = statusOf(error) === 400 ? "ContainerFailed" : "AgentFailed"
      throw new RunError(reason, `the container can't be created: ${messageOf(error)}`, error)
    }
  }

  async #hasImage(image: string): Promise<boolean> {
    return (await ifFound(this.#docker.getImage(image).inspect())) !== undefined
  }

  async #pull(image: string, { signal, registry }: PullOptions): Promise<void> {
    const options = registry === undefined ? {} : { authconfig: authConfigOf(registry) }
    const stream = (await this.#docker.pull(image, options)) as NodeJS.ReadableStream & { destroy(error?: Error): void }
    const stop = (): void => stream.destroy()
    signal.addEventListener("abort", stop, { once: true })
    try {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      this.#docker.modem.followProgress(stream, (error) => (error === null ? resolve() : reject(error)))
      stream.on("close", () => resolve())
      await promise
    } finally {
      signal.removeEventListener("abort", stop)
    }
  }

  #nameOf(attempt: number): string {
    return `berth-${this.#launch}-${attempt}`
  }
}

interface PullOptions {
  signal: AbortSignal
  registry: RegistryAccess | undefined
}

/** As the engine takes it (https://docs.docker.com/reference/api/engine/#section/Authentication). */
function authConfigOf({ registry, username, password, token }: RegistryAccess): object {
  if (token !== undefined) return { serveraddress: registry, registrytoken: token }
  return { serveraddress: registry, ...(username !== undefined && { username, password }) }
}

/** Whether another access may do where this one does not. */
function hasEnded({ expiration }: Partial<RegistryAccess> = {}): boolean {
  return expiration !== undefined && Date.parse(expiration) <= systemClock.now().getTime()
}

function pullFailed(image: string, error: unknown, { why }: Partial<RegistryAccess> = {}): RunError {
  const reason = why === undefined ? "" : ` (${why})`
  return new RunError("ImagePullFailed", `image ${image} can't be pulled: ${messageOf(error)}${reason}`, error)
}

interface DockerContainerOptions {
  startTime: string
  logger: Logger
  /** The attached output of a container that this very agent has started. */
  stream?: NodeJS.ReadableStream
  /** Set when it never ran. */
  ended?: Ended
}

class DockerContainer implements Container {
  readonly startTime: string
  readonly #container: Docker.Container
  readonly #logger: Logger
  readonly #stream: NodeJS.ReadableStream | undefined
  readonly #ended: Ended | undefined

  constructor(container: Docker.Container, options: DockerContainerOptions) {
    this.#container = container
    this.startTime = options.startTime
    this.#logger = options.logger
    this.#stream = options.stream
    this.#ended = options.ended
  }

  /**
   * The attached stream is exact. What the engine shows as logs is not quite: following them can miss the last
   * bytes when the container ends, so they are read once more from there afterwards.
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
      // A connection that breaks off looks like a stream that ends, but for the container that goes on.
      exact = this.#stream !== undefined && !(await this.#state()).Running
    } catch (error) {
      this.#logger.warn({ err: error }, "output of the container broke off, catching up from the engine's copy")
    }
    if (exact) return
    await this.wait()
    yield* resume(payloads(await this.#logs()), position, last)
  }

  async #logs(): Promise<NodeJS.ReadableStream> {
    return await within(CALL_SECONDS, this.#container.logs({ follow: true, stdout: true, stderr: true }))
  }

  async #state(): Promise<Docker.ContainerInspectInfo["State"]> {
    return (await within(CALL_SECONDS, this.#container.inspect())).State
  }

  async wait(): Promise<Ended> {
    if (this.#ended !== undefined) return this.#ended
    for (let failures = 0; ; ) {
      try {
        const waiting = new AbortController()
        // Not answered: looked at all the same.
        await within(WAIT_SECONDS, this.#container.wait({ abortSignal: waiting.signal })).catch(() => waiting.abort())
        const state = await this.#state()
        if (!state.Running) return endedOf(state)
        failures = 0
      } catch (error) {
        if (statusOf(error) === 404) return { exitCode: 137, message: "the container was removed from outside" }
        this.#logger.warn({ err: error }, "the engine doesn't answer")
        failures++
      }
      // The engine may be starting again: the container may well go on without it.
      const seconds = backoffSeconds(failures + 1, ENGINE_RETRY_SECONDS)
      await waitUnlessAborted(systemClock, seconds, new AbortController().signal)
    }
  }

  async signal(name: "SIGTERM" | "SIGKILL"): Promise<boolean> {
    try {
      await within(CALL_SECONDS, this.#container.kill({ signal: name }))
      return true
    } catch (error) {
      // 404 gone, 409 not running.
      if (statusOf(error) !== 404 && statusOf(error) !== 409) throw error
      return false
    }
  }

  async remove(): Promise<void> {
    await ifFound(this.#container.remove({ force: true, v: true }))
  }
}

/**
 * The bytes of stdout and stderr out of Docker's multiplexed stream: frames of an 8-byte header (stream, then the
 * length at byte 4, big-endian) and a payload. Unlike docker-modem's demuxStream it waits for its reader.
 */
async function* payloads(stream: AsyncIterable<string | Buffer>): AsyncGenerator<Buffer, void, void> {
  let buffer: Buffer = Buffer.alloc(0)
  let left = 0
  for await (const chunk of stream) {
    buffer = Buffer.concat([buffer, chunk as Buffer])
    // One piece for each chunk: the engine may send every line in a frame of its own.
    const found: Buffer[] = []
    while (left > 0 ? buffer.byteLength > 0 : buffer.byteLength >= 8) {
      if (left === 0) {
        left = buffer.readUInt32BE(4)
        buffer = buffer.subarray(8)
      }
      const payload = buffer.subarray(0, left)
      buffer = buffer.subarray(payload.byteLength)
      left -= payload.byteLength
      found.push(payload)
    }
    const piece = Buffer.concat(found)
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
 * The rest after `position`. Where the engine broke off it may have ended the piece with a newline that is not the
 * container's, in place of the byte that comes there.
 */
async function* resume(pieces: AsyncIterable<Buffer>, position: number, last: number | undefined) {
  let doubtful = last === NEWLINE
  for await (const piece of skip(pieces, doubtful ? position - 1 : position)) {
    const rest = doubtful && piece[0] === NEWLINE ? piece.subarray(1) : piece
    doubtful = false
    if (rest.byteLength > 0) yield rest
  }
}

/** The image with the tag that an image without one means; the Engine API would pull every tag there is. */
export function withTag(image: string): string {
  return /[:@]/.test(image.slice(image.lastIndexOf("/") + 1)) ? image : `${image}:latest`
}

function isGiven(list: string[] | undefined): list is string[] {
  return list !== undefined && list.length > 0
}

function endedOf(state: { ExitCode: number; OOMKilled: boolean; Error: string }): Ended {
  if (state.OOMKilled) return { exitCode: state.ExitCode, message: "out of memory: the kernel killed it" }
  return { exitCode: state.ExitCode, ...(state.Error !== "" && { message: state.Error }) }
}

/** dockerode's promises never settle when the connection breaks in the middle of an answer: this one does. */
async function within<Result>(seconds: number, call: Promise<Result>): Promise<Result> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`the engine has not answered for ${seconds} s`)), seconds * 1000)
  try {
    return await Promise.race([call, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Undefined instead of Docker's 404. */
async function ifFound<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await within(CALL_SECONDS, result)
  } catch (error) {
    if (statusOf(error) === 404) return undefined
    throw error
  }
}

/** HTTP status of an error of the Engine API, as dockerode carries it. */
function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode
}

/** The engine's own words, without dockerode's before them. */
function messageOf(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string }
  return json?.message ?? message ?? String(error)
}
