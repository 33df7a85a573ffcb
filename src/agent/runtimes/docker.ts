import type { Readable } from "node:stream"
import { text } from "node:stream/consumers"
import { pipeline } from "node:stream/promises"
import Docker from "dockerode"
import { extract } from "tar-stream"
import { backoffSeconds } from "../../apis/backoff.ts"
import { systemClock, timestamp } from "../../apis/clock.ts"
import { DEFAULT_WORKDIR_PATH } from "../../apis/job.ts"
import type { Logger } from "../../apis/logger.ts"
import { containerPart } from "../../apis/memory.ts"
import { GROUP } from "../../apis/meta.ts"
import { whyDiskFull } from "../disk-space.ts"
import type { Buckets, RegistryAccess, RunOrder } from "../protocol.ts"
import { waitUnlessAborted } from "../timers.ts"
import { VolumeDriver } from "../volumes/driver.ts"
import { type FileOwner, repacked } from "../workdir.ts"
import { type Container, type Ended, type PrepareOptions, RunError, type Runtime } from "./runtime.ts"

/** Default path of Docker's socket. */
export const DEFAULT_DOCKER_SOCKET = "/var/run/docker.sock"

/**
 * Labels of Berth's containers: the Launch, the attempt, and the public key of the agent that created the container.
 */
export const LAUNCH_LABEL = `${GROUP}/launch`
export const ATTEMPT_LABEL = `${GROUP}/attempt`
export const AGENT_LABEL = `${GROUP}/agent`

/**
 * Log driver of containers. Its copy of the output lets a later agent catch up. `local` keeps every byte (json-file
 * doesn't), in at most two files of this size.
 */
const LOG_CONFIG = { Type: "local", Config: { "max-size": "100m", "max-file": "2", compress: "false" } }

const NEWLINE = 0x0a

/** Network of containers on a host of several jobs. They reach the internet, and not each other. */
const SHARED_HOST_NETWORK = "berth-jobs"

/** Maximum number of processes and threads of a container. It stops a fork bomb before it stops the host. */
const PIDS_LIMIT = { vm: 32_768, sharedHost: 4096 }

const MIB = 1024 * 1024
const GIB = 1024 * MIB

/** Signal SIGKILL as an exit code. */
const KILLED_EXIT_CODE = 137

/** Time that the engine may take to remove a container after it has killed the container, seconds. */
const REMOVAL_SECONDS = 1

const PULL_TRIES = 3
const PULL_RETRY_SECONDS = { baseSeconds: 2, capSeconds: 20 }
const ENGINE_RETRY_SECONDS = { baseSeconds: 0.5, capSeconds: 10 }

/** Timeout of a call to the engine, seconds. */
const CALL_SECONDS = 120

/** Time in which the engine must take a working directory, seconds. */
const PUT_SECONDS = 600

/** Largest /etc/passwd that is read, bytes. */
const PASSWD_BYTES = 1024 * 1024

/** Maximum delay between two checks of a container's state, seconds, also if the engine does not answer a wait. */
const WAIT_SECONDS = 10

/** Pull errors that no retry fixes, in the messages of Docker and of registries. */
const FINAL_PULL_ERROR =
  /not found|manifest unknown|denied|unauthorized|invalid reference|no matching manifest|not exist|no space left/i

/**
 * Errors of a start that are the machine's fault: the engine has no runtime for GPUs, or NVIDIA's runtime finds no
 * driver. The rest of that runtime's errors is the image's fault, such as a requirement for a newer driver
 * (https://github.com/NVIDIA/libnvidia-container/blob/main/src/cli/main.c and Docker's daemon/devices.go).
 */
const MACHINE_ERROR =
  /could not select device driver|nvidia-container-cli(\.real)?: (initialization|detection|device|driver|ldcache) error|unresolvable CDI device|failed to initialize NVML/i

export interface DockerRuntimeOptions {
  launch: string
  /** Public key of the agent. If several VMs share an engine, each touches only its own containers. */
  agent: string
  /** Path of the engine's socket. */
  socketPath: string
  /** Folder of the agent, by its path on the engine's host. */
  dataDir: string
  /** Image with rclone in it. Without it volumes can't be mounted. */
  image: string | undefined
  logger: Logger
}

/** Runs attempts as containers of the local Docker Engine, with unmodified image and entrypoint. */
export class DockerRuntime implements Runtime {
  readonly name = "docker"
  readonly #docker: Docker
  readonly #launch: string
  readonly #agent: string
  readonly #logger: Logger
  readonly #volumes: VolumeDriver
  readonly #dataDir: string

  constructor({ launch, agent, socketPath, logger, dataDir, image }: DockerRuntimeOptions) {
    this.#dataDir = dataDir
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

  deleteCheckpoints(): Promise<void> {
    return this.#volumes.deleteCheckpoints()
  }

  async prepare(order: RunOrder, { signal, reorder }: PrepareOptions): Promise<void> {
    const image = withTag(order.run.image)
    if (await this.#hasImage(image)) return
    let { registry } = order
    for (let tries = 1; !signal.aborted; tries++) {
      try {
        await this.#pull(image, { signal, registry })
        if (await this.#hasImage(image)) return
        throw new Error("the pull ended early")
      } catch (error) {
        const isOver = hasEnded(registry)
        if (tries === PULL_TRIES || (FINAL_PULL_ERROR.test(messageOf(error)) && !isOver)) {
          throw pullFailed(image, await this.#explained(error), { error, why: registry?.why })
        }
        this.#logger.warn({ err: error, image }, "failed to pull the image; retrying")
        await waitUnlessAborted(systemClock, backoffSeconds(tries + 1, PULL_RETRY_SECONDS), signal)
        if (isOver && !signal.aborted) registry = (await reorder()).registry
      }
    }
  }

  async start(order: RunOrder, attempt: number): Promise<Container> {
    const container = await this.#create(order, attempt)
    if (order.run.workdir !== undefined) await this.#putWorkdir(container, workdirPathOf(order.run))
    // Attached before the start, so that no byte is missed.
    const stream = await within(CALL_SECONDS, container.attach({ stream: true, stdout: true, stderr: true }))
    let failure: unknown
    try {
      await within(CALL_SECONDS, container.start())
    } catch (error) {
      failure = error
    }
    const { State } = await within(CALL_SECONDS, container.inspect())
    const given = { logger: this.#logger, dataDir: this.#dataDir }
    if (failure === undefined) return new DockerContainer(container, { ...given, startTime: State.StartedAt, stream })
    // The container did start; only the answer was lost.
    if (State.Status !== "created") return new DockerContainer(container, { ...given, startTime: State.StartedAt })
    const why = `the container can't be started: ${await this.#explained(failure)}`
    if (order.gpus > 0 && MACHINE_ERROR.test(why)) throw new RunError("MachineFailed", why, failure)
    if (State.ExitCode === 0) throw new RunError("AgentFailed", why, failure)
    const ended = { exitCode: State.ExitCode, message: why }
    return new DockerContainer(container, { ...given, startTime: systemClock.now().toISOString(), ended })
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
    const given = { logger: this.#logger, dataDir: this.#dataDir }
    return new DockerContainer(container, { ...given, startTime: found.State.StartedAt })
  }

  async clear(): Promise<void> {
    const filters = { label: [`${LAUNCH_LABEL}=${this.#launch}`, `${AGENT_LABEL}=${this.#agent}`, ATTEMPT_LABEL] }
    for (const { Id } of await within(CALL_SECONDS, this.#docker.listContainers({ all: true, filters }))) {
      await ifFound(this.#docker.getContainer(Id).remove({ force: true, v: true }))
    }
    await this.#volumes.clear()
  }

  async #create(order: RunOrder, attempt: number): Promise<Docker.Container> {
    const { run, secretEnv, gpus, sharedHost } = order
    const env = { ...run.env, ...secretEnv }
    try {
      return await within(
        CALL_SECONDS,
        this.#docker.createContainer({
          name: this.#nameOf(attempt),
          Image: withTag(run.image),
          ...(isGiven(run.command) && { Entrypoint: run.command }),
          ...(isGiven(run.args) && { Cmd: run.args }),
          ...(run.workdir !== undefined && { WorkingDir: workdirPathOf(run) }),
          Env: Object.entries(env).map(([name, value]) => `${name}=${value}`),
          Labels: { [LAUNCH_LABEL]: this.#launch, [ATTEMPT_LABEL]: String(attempt), [AGENT_LABEL]: this.#agent },
          HostConfig: {
            ...(await this.#limitsOf(sharedHost)),
            CapDrop: ["NET_RAW"],
            SecurityOpt: ["no-new-privileges"],
            LogConfig: LOG_CONFIG,
            Mounts: this.#volumes.mountsOf(order),
            ...(gpus > 0 && { DeviceRequests: [{ Driver: "", Count: gpus, Capabilities: [["gpu"]] }] }),
          },
        }),
      )
    } catch (error) {
      // 400: the Job's fields make no valid container, for example with an image without any command.
      const reason = statusOf(error) === 400 ? "ContainerFailed" : "AgentFailed"
      throw new RunError(reason, `the container can't be created: ${await this.#explained(error)}`, error)
    }
  }

  /** Puts the working directory into a container that has not started, so that the image needs no shell for it. */
  async #putWorkdir(container: Docker.Container, folder: string): Promise<void> {
    const { Config } = await within(CALL_SECONDS, container.inspect())
    const { tar, filled } = repacked(this.#dataDir, folder, await ownerOf(container, Config.User))
    const failed = new AbortController()
    // dockerode does not notice that its input ends with an error.
    filled.catch(() => failed.abort())
    try {
      const put = container.putArchive(tar, { path: "/", abortSignal: failed.signal })
      await within(PUT_SECONDS, Promise.race([put, filled.then(() => put)]))
    } catch (error) {
      tar.destroy()
      await ifFound(container.remove({ force: true, v: true }))
      if (error instanceof RunError) throw error
      const why = await this.#explained(error)
      throw new RunError("WorkdirFailed", `the workdir can't be put into the container: ${why}`, error)
    }
  }

  async #limitsOf(sharedHost: RunOrder["sharedHost"]): Promise<Docker.HostConfig> {
    if (sharedHost !== undefined) {
      const Memory = sharedHost.memoryMib * MIB
      const NetworkMode = await this.#sharedHostNetwork()
      return { Memory, MemorySwap: Memory, PidsLimit: PIDS_LIMIT.sharedHost, NetworkMode }
    }
    const { MemTotal } = (await within(CALL_SECONDS, this.#docker.info())) as { MemTotal: number }
    const Memory = Math.floor(containerPart(MemTotal / GIB) * GIB)
    return { Memory, MemorySwap: Memory, PidsLimit: PIDS_LIMIT.vm, NetworkMode: "bridge" }
  }

  /** Returns the network for jobs that share the engine. Creates it if there is none. */
  async #sharedHostNetwork(): Promise<string> {
    const network = this.#docker.getNetwork(SHARED_HOST_NETWORK)
    if ((await ifFound(network.inspect())) !== undefined) return SHARED_HOST_NETWORK
    const options = {
      Name: SHARED_HOST_NETWORK,
      CheckDuplicate: true,
      Options: { "com.docker.network.bridge.enable_icc": "false" },
    }
    try {
      await within(CALL_SECONDS, this.#docker.createNetwork(options))
    } catch (error) {
      // 409: another agent was faster.
      if (statusOf(error) !== 409) throw error
    }
    return SHARED_HOST_NETWORK
  }

  /** Returns the engine's message, and that the disk is full if it is. */
  async #explained(error: unknown): Promise<string> {
    const message = messageOf(error)
    const why = await whyDiskFull(this.#dataDir, message)
    return why === undefined ? message : `${why}: ${message}`
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
      this.#docker.modem.followProgress(stream, (error, output: PullProgress[]) => {
        const failure = error ?? failureIn(output)
        if (failure === undefined) resolve()
        else reject(failure)
      })
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

function workdirPathOf({ workdir }: RunOrder["run"]): string {
  return workdir?.path ?? DEFAULT_WORKDIR_PATH
}

/** Returns the ids of the user that the container runs as. A user that its /etc/passwd does not have is root. */
async function ownerOf(container: Docker.Container, user: string): Promise<FileOwner> {
  const [name = "", group = ""] = user.split(":")
  if (name === "") return { uid: 0, gid: 0 }
  if (/^\d+$/.test(name)) return { uid: Number(name), gid: /^\d+$/.test(group) ? Number(group) : 0 }
  const line = (await passwdOf(container)).split("\n").find((one) => one.startsWith(`${name}:`))
  const [, , uid = "0", gid = "0"] = line?.split(":") ?? []
  return { uid: Number(uid) || 0, gid: Number(gid) || 0 }
}

/** Returns the text of the container's /etc/passwd; empty if there is none. */
async function passwdOf(container: Docker.Container): Promise<string> {
  const stream = await ifFound(container.getArchive({ path: "/etc/passwd" }))
  if (stream === undefined) return ""
  const parser = extract()
  const feeding = pipeline(stream, parser).catch(() => undefined)
  let passwd = ""
  for await (const entry of parser) {
    const isSmall = entry.header.type === "file" && (entry.header.size ?? 0) <= PASSWD_BYTES
    if (isSmall) passwd = await text(entry as unknown as Readable)
    else entry.resume()
  }
  await feeding
  return passwd
}

/** Line of a pull's progress. After the first layers the engine can report an error only by such a line. */
interface PullProgress {
  error?: string
  errorDetail?: { message?: string }
}

function failureIn(output: readonly PullProgress[] = []): Error | undefined {
  const failed = output.find(({ error }) => error !== undefined)
  return failed && new Error(failed.errorDetail?.message ?? failed.error)
}

interface PullOptions {
  signal: AbortSignal
  registry: RegistryAccess | undefined
}

/**
 * Returns the credentials in the engine's form (https://docs.docker.com/reference/api/engine/#section/Authentication).
 */
function authConfigOf({ registry, username, password, token }: RegistryAccess): object {
  if (token !== undefined) return { serveraddress: registry, registrytoken: token }
  return { serveraddress: registry, ...(username !== undefined && { username, password }) }
}

/** Returns true if the access has expired, so that a new one may succeed. */
function hasEnded({ expiration }: Partial<RegistryAccess> = {}): boolean {
  return expiration !== undefined && Date.parse(expiration) <= systemClock.now().getTime()
}

function pullFailed(image: string, message: string, { error, why }: { error: unknown; why: string | undefined }) {
  const reason = why === undefined ? "" : ` (${why})`
  return new RunError("ImagePullFailed", `image ${image} can't be pulled: ${message}${reason}`, error)
}

interface DockerContainerOptions {
  startTime: string
  logger: Logger
  /** Path on the disk that the container writes to. */
  dataDir: string
  /** Attached output of a container that this agent process has started. */
  stream?: NodeJS.ReadableStream
  /** Set if the container never ran. */
  ended?: Ended
}

class DockerContainer implements Container {
  readonly startTime: string
  readonly #container: Docker.Container
  readonly #logger: Logger
  readonly #stream: NodeJS.ReadableStream | undefined
  readonly #ended: Ended | undefined
  readonly #dataDir: string
  /** True if this agent has sent SIGKILL. */
  #killed = false

  constructor(container: Docker.Container, options: DockerContainerOptions) {
    this.#container = container
    this.startTime = timestamp(new Date(options.startTime))
    this.#logger = options.logger
    this.#stream = options.stream
    this.#ended = options.ended
    this.#dataDir = options.dataDir
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
        // The state is checked even if the engine does not answer the wait.
        await within(WAIT_SECONDS, this.#container.wait({ abortSignal: waiting.signal })).catch(() => waiting.abort())
        const found = await within(CALL_SECONDS, this.#container.inspect())
        if (!found.State.Running) return (await this.#wasRemoved(found.State)) ? REMOVED : await this.#result(found)
        failures = 0
      } catch (error) {
        if (statusOf(error) === 404) return REMOVED
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
    const ended = endedOf(found)
    const why = ended.exitCode === 0 ? undefined : await whyDiskFull(this.#dataDir)
    return why === undefined ? ended : { ...ended, message: [ended.message, why].filter(Boolean).join("; ") }
  }

  /** Returns true if the container was killed because somebody removed it. A removal kills the container first. */
  async #wasRemoved({ ExitCode, OOMKilled }: { ExitCode: number; OOMKilled: boolean }): Promise<boolean> {
    if (ExitCode !== KILLED_EXIT_CODE || OOMKilled || this.#killed) return false
    await waitUnlessAborted(systemClock, REMOVAL_SECONDS, new AbortController().signal)
    return (await ifFound(this.#container.inspect())) === undefined
  }

  async signal(name: "SIGTERM" | "SIGKILL"): Promise<boolean> {
    if (name === "SIGKILL") this.#killed = true
    try {
      await within(CALL_SECONDS, this.#container.kill({ signal: name }))
      return true
    } catch (error) {
      // 404: removed, 409: not running.
      if (statusOf(error) !== 404 && statusOf(error) !== 409) throw error
      return false
    }
  }

  async remove(): Promise<void> {
    await ifFound(this.#container.remove({ force: true, v: true }))
  }
}

/**
 * Yields the bytes of stdout and stderr from Docker's multiplexed stream: frames of an 8-byte header (stream, then the
 * length at byte 4, big-endian) and a payload. Unlike docker-modem's demuxStream it waits for its reader.
 */
async function* payloads(stream: AsyncIterable<string | Buffer>): AsyncGenerator<Buffer, void, void> {
  let buffer: Buffer = Buffer.alloc(0)
  let left = 0
  for await (const chunk of stream) {
    buffer = Buffer.concat([buffer, chunk as Buffer])
    // One piece for each chunk, because the engine may send every line in its own frame.
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

/** Adds the default tag to an image without one. Without a tag the Engine API would pull every tag. */
export function withTag(image: string): string {
  return /[:@]/.test(image.slice(image.lastIndexOf("/") + 1)) ? image : `${image}:latest`
}

function isGiven(list: string[] | undefined): list is string[] {
  return list !== undefined && list.length > 0
}

const REMOVED: Ended = { exitCode: KILLED_EXIT_CODE, message: "the container was removed, but not by Berth" }

function endedOf({ State, HostConfig }: Docker.ContainerInspectInfo): Ended {
  const { ExitCode: exitCode, OOMKilled, Error: message } = State
  if (!OOMKilled) return { exitCode, ...(message !== "" && { message }) }
  const mebibytes = Math.floor((HostConfig.Memory ?? 0) / MIB)
  const limit = mebibytes > 0 ? ` its ${mebibytes} MiB of memory` : " the memory of its machine"
  return { exitCode, message: `OOMKilled: a process of the container exceeded${limit}; raise resources.memory` }
}

/** Adds a timeout to a call. dockerode's promises never settle if the connection breaks within an answer. */
async function within<Result>(seconds: number, call: Promise<Result>): Promise<Result> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`the engine has not answered for ${seconds} s`)), seconds * 1000)
  try {
    return await Promise.race([call, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Returns undefined for Docker's 404. */
async function ifFound<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await within(CALL_SECONDS, result)
  } catch (error) {
    if (statusOf(error) === 404) return undefined
    throw error
  }
}

/** Returns the HTTP status of an error of the Engine API, which dockerode stores in the error. */
function statusOf(error: unknown): number | undefined {
  return (error as { statusCode?: number }).statusCode
}

/** Returns the engine's own message, without dockerode's prefix. */
function messageOf(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string }
  return (json?.message ?? message ?? String(error)).replace(/^\(HTTP code \d+\) [^-]* - /, "")
}
