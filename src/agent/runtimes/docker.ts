import type { Readable } from "node:stream"
import { text } from "node:stream/consumers"
import { pipeline } from "node:stream/promises"
import Docker from "dockerode"
import { extract } from "tar-stream"
import { type Clock, systemClock } from "../../core/apis/clock.ts"
import { DEFAULT_WORKDIR_PATH } from "../../core/apis/job.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { containerPart } from "../../core/apis/memory.ts"
import { GROUP } from "../../core/apis/meta.ts"
import type { Buckets, RunOrder } from "../../core/protocol/protocol.ts"
import { whyDiskFull } from "../disk-space.ts"
import { memoryKills } from "../memory-kills.ts"
import { VolumeDriver } from "../volumes/driver.ts"
import { type FileOwner, repack } from "../workdir.ts"
import { DockerContainer } from "./docker-container.ts"
import { DockerEntrance } from "./docker-entrance.ts"
import { KeptEntrance, removeKeptImage } from "./docker-kept.ts"
import { requireNoContainers, wipeEngine } from "./docker-wipe.ts"
import { CALL_SECONDS, errorMessage, errorStatus, ifFound, MIB, withTimeout } from "./engine.ts"
import { GpuHelper } from "./gpu-helper.ts"
import { containerLimits, containerRights, gpuRequest, ulimits } from "./host-config.ts"
import { takesInit } from "./init.ts"
import { PULL_PATIENCE_SECONDS, pullImage } from "./pull.ts"
import { type Container, type Entrance, type PrepareOptions, RunError, type Runtime } from "./runtime.ts"
import { removeToolboxImage, startBeside, type Toolbox } from "./toolbox.ts"

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

/** Network of containers on a host of several jobs. They reach the internet, and not each other. */
const SHARED_HOST_NETWORK = "berth-jobs"

const GIB = 1024 * MIB

/** Time in which the engine must take a working directory, seconds. */
const PUT_SECONDS = 600

/** Largest /etc/passwd that is read, bytes. */
const PASSWD_BYTES = 1024 * 1024

/**
 * Errors of a start that are the machine's fault: the engine has no runtime for GPUs, or NVIDIA's runtime finds no
 * driver. The rest of that runtime's errors is the image's fault, such as a requirement for a newer driver
 * (https://github.com/NVIDIA/libnvidia-container/blob/main/src/cli/main.c and Docker's daemon/devices.go).
 */
const MACHINE_ERROR =
  /could not select device driver|nvidia-container-cli(\.real)?: (initialization|detection|device|driver|ldcache) error|unresolvable CDI device|failed to initialize NVML/i

/**
 * Parts of a container that an engine may not be able to give, each with the error of a start that says so. Without them
 * a container runs as with `docker run`. `docker-init` is missing where the engine's package has only recommended it.
 * An engine without CAP_SYS_RESOURCE, such as a rootless one, may not raise a limit above its own.
 */
const LACKING = {
  init: /docker-init|container-init/,
  ulimits: /error setting rlimit/,
} as const
type Part = keyof typeof LACKING

/** Names of the layers through which an error of a start has come. */
const START_LAYERS =
  /^(failed to create (shim )?task[^:]*: )?(OCI runtime create failed: )?(runc create failed: )?(unable to start container process: )?/

export interface DockerRuntimeOptions {
  launch: string
  /** True if an earlier Launch had the VM, and may have left images. */
  isTakeover: boolean
  /** Public key of the agent. If several VMs share an engine, each touches only its own containers. */
  agent: string
  /** Path of the engine's socket. */
  socketPath: string
  /** Folder of the agent, by its path on the engine's host. */
  dataDir: string
  /** PEM of authorities to trust in addition to the public ones. */
  ca?: string | undefined
  /** Image with rclone for volumes. Without it volumes can't be mounted. */
  volumesImage: string | undefined
  /** Time without progress of a pull after which it fails, seconds. Default 300. */
  pullPatienceSeconds?: number | undefined
  /** Image that runs `nvidia-smi`. Default: the image of the agent's own container. */
  gpuImage?: string | undefined
  clock: Clock
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
  readonly #gpus: GpuHelper
  readonly #dataDir: string
  readonly #clock: Clock
  readonly #pullPatienceSeconds: number
  /** Parts that this engine can't give. */
  readonly #lacking = new Set<Part>()
  /** True if images that the engine has may be those of an earlier job. */
  #hasOldImages: boolean

  constructor({ launch, isTakeover, agent, socketPath, logger, dataDir, clock, ...options }: DockerRuntimeOptions) {
    const { ca, volumesImage: image, pullPatienceSeconds, gpuImage } = options
    this.#dataDir = dataDir
    this.#clock = clock
    this.#pullPatienceSeconds = pullPatienceSeconds ?? PULL_PATIENCE_SECONDS
    this.#docker = new Docker({ socketPath })
    this.#launch = launch
    this.#hasOldImages = isTakeover
    this.#agent = agent
    this.#logger = logger
    const labels = this.#labels
    this.#volumes = new VolumeDriver({ docker: this.#docker, launch, labels, dataDir, ca, image, logger })
    this.#gpus = new GpuHelper({ docker: this.#docker, launch, labels, image: gpuImage, logger })
  }

  mount(order: RunOrder, options: PrepareOptions): Promise<void> {
    return this.#volumes.mount(order, options.signal, (image) => this.#pullForVolumes(image, options))
  }

  /** Pulls Berth's image for volumes, without credentials. A final failure is an error of the installation. */
  async #pullForVolumes(image: string, options: PrepareOptions): Promise<void> {
    try {
      await this.#pull(image, undefined, options)
    } catch (error) {
      if (!(error instanceof RunError) || error.reason !== "ImagePullFailed") throw error
      const correct = "correct the operator's --volumes-image"
      throw new RunError(
        "VolumeMountFailed",
        `the image for volumes can't be pulled: ${error.message}; ${correct}`,
        error,
      )
    }
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

  /**
   * Pulls the run's image. On a VM that an earlier job had, an image that is there is asked for once more. A tag may have
   * moved since: it is pulled, and only layers that are not there are downloaded. A digest has not, but an image that came
   * with the credentials of the earlier job is for this one only if its own can get it. On a shared host images are its
   * owner's, and may be in no registry.
   */
  async prepare(order: RunOrder, options: PrepareOptions): Promise<void> {
    const remedy = "correct the image's name, or add a connection for its registry"
    const always = this.#hasOldImages && order.sharedHost === undefined
    await this.#pull(withTag(order.run.image), order.registry, { ...options, remedy, always })
    // Later attempts of this run take the same image.
    if (!options.signal.aborted) this.#hasOldImages = false
  }

  /** Pulls an image that the engine doesn't have. @param options.always pulls it in any case */
  async #pull(
    image: string,
    access: RunOrder["registry"],
    options: PrepareOptions & { remedy?: string; always?: boolean },
  ): Promise<void> {
    const isThere = (await ifFound(this.#docker.getImage(image).inspect())) !== undefined
    if (isThere && options.always !== true) return
    await pullImage(image, access, {
      ...options,
      isAccessOnly: isThere && image.includes("@"),
      docker: this.#docker,
      clock: this.#clock,
      logger: this.#logger,
      patienceSeconds: this.#pullPatienceSeconds,
      explain: (error) => this.#explained(error),
    })
  }

  async start(order: RunOrder, attempt: number): Promise<Container> {
    const container = await this.#create(order, attempt)
    if (order.run.workdir !== undefined) await this.#putWorkdir(container, workdirPathOf(order.run))
    // Attached before the start, so that no byte is missed.
    const stream = await withTimeout(CALL_SECONDS, container.attach({ stream: true, stdout: true, stderr: true }))
    const killsBefore = order.sharedHost === undefined ? memoryKills() : undefined
    let failure: unknown
    try {
      await withTimeout(CALL_SECONDS, container.start())
    } catch (error) {
      failure = error
    }
    const found = await withTimeout(CALL_SECONDS, container.inspect())
    const foreign = await this.#foreignImage(found.Image)
    if (failure === undefined) return this.#running(container, found, { stream, killsBefore, foreign })
    // The container did start; only the answer was lost.
    if (found.State.Status !== "created") return this.#running(container, found, { killsBefore, foreign })
    const start = `the container can't be started: ${(await this.#explained(failure)).replace(START_LAYERS, "")}`
    const why = foreign === undefined ? start : `${start}; ${foreign}`
    const lacking = this.#lackingPart(why)
    if (lacking !== undefined) {
      this.#logger.warn(
        { err: failure, lacking },
        "this engine can't give a part of the container; going on without it",
      )
      this.#lacking.add(lacking)
      await ifFound(container.remove({ force: true, v: true }))
      return await this.start(order, attempt)
    }
    if (order.gpus > 0 && MACHINE_ERROR.test(why)) throw new RunError("MachineFailed", why, failure)
    if (found.State.ExitCode === 0) throw new RunError("AgentFailed", why, failure)
    const ended = { exitCode: found.State.ExitCode, message: why }
    const entrance = this.#entranceOf(container, found)
    const startTime = systemClock.now().toISOString()
    return new DockerContainer(container, { logger: this.#logger, dataDir: this.#dataDir, entrance, startTime, ended })
  }

  #running(
    container: Docker.Container,
    found: Docker.ContainerInspectInfo,
    started: { stream?: NodeJS.ReadableStream; killsBefore?: number | undefined; foreign?: string | undefined } = {},
  ): DockerContainer {
    const { State, Config, HostConfig } = found
    const isHostShared = HostConfig.NetworkMode === SHARED_HOST_NETWORK
    const entrance = this.#entranceOf(container, found)
    const given = { logger: this.#logger, dataDir: this.#dataDir, isHostShared, entrance, ...started }
    // dockerode's types lack it.
    const { StopSignal: stopSignal } = Config as { StopSignal?: string }
    return new DockerContainer(container, { ...given, startTime: State.StartedAt, env: Config.Env, stopSignal })
  }

  /** Returns the way into a running container. Its tools start when a person first needs them. */
  #entranceOf(container: Docker.Container, { Id, Config, Name }: Docker.ContainerInspectInfo): DockerEntrance {
    const toolbox = async (): Promise<Toolbox> => {
      const { uid, gid } = await ownerOf(container, Config.User)
      const name = `${Name.replace("/", "")}-toolbox`
      const labels = { ...this.#labels, [ATTEMPT_LABEL]: "toolbox" }
      return await startBeside(this.#docker, { target: Id, user: `${uid}:${gid}`, name, labels })
    }
    return new DockerEntrance(container, { toolbox })
  }

  async kept(attempt: number): Promise<Entrance | undefined> {
    const container = this.#docker.getContainer(this.#nameOf(attempt))
    if ((await ifFound(container.inspect())) === undefined) return undefined
    const labels = { ...this.#labels, [ATTEMPT_LABEL]: "kept" }
    const name = `${this.#nameOf(attempt)}-kept`
    return new KeptEntrance({ docker: this.#docker, container, launch: this.#launch, name, labels })
  }

  /** Labels of this Launch's containers. */
  get #labels(): Record<string, string> {
    return { [LAUNCH_LABEL]: this.#launch, [AGENT_LABEL]: this.#agent }
  }

  /** Says that an image is for another architecture than this machine's. An engine pulls and starts it all the same. */
  async #foreignImage(id: string): Promise<string | undefined> {
    const { Architecture: architecture } = (await ifFound(this.#docker.getImage(id).inspect())) ?? {}
    const own = process.arch === "x64" ? "amd64" : process.arch
    if (architecture === undefined || architecture === "" || architecture === own) return undefined
    return `the image is for ${architecture}, and this machine is ${own}`
  }

  /** Returns the part of a container for whose lack a start has failed, unless it failed without that part. */
  #lackingPart(why: string): Part | undefined {
    const parts = Object.keys(LACKING) as Part[]
    return parts.find((part) => LACKING[part].test(why) && !this.#lacking.has(part))
  }

  async find(attempt: number): Promise<Container | undefined> {
    const container = this.#docker.getContainer(this.#nameOf(attempt))
    const found = await ifFound(container.inspect())
    if (found === undefined) return undefined
    if (found.Config.Labels[AGENT_LABEL] !== this.#agent) {
      throw new RunError("AgentFailed", `container ${this.#nameOf(attempt)} is another agent's; remove it`)
    }
    const { Status, ExitCode, Error: error } = found.State
    if (Status === "created" && (ExitCode === 0 || this.#lackingPart(error) !== undefined)) {
      await container.remove({ force: true, v: true })
      return undefined
    }
    return this.#running(container, found, { foreign: await this.#foreignImage(found.Image) })
  }

  watchGpus(signal: AbortSignal): Promise<AsyncIterable<string> | undefined> {
    return this.#gpus.watch(signal)
  }

  async clear(): Promise<void> {
    const filters = { label: [`${LAUNCH_LABEL}=${this.#launch}`, `${AGENT_LABEL}=${this.#agent}`, ATTEMPT_LABEL] }
    for (const { Id } of await withTimeout(CALL_SECONDS, this.#docker.listContainers({ all: true, filters }))) {
      await ifFound(this.#docker.getContainer(Id).remove({ force: true, v: true }))
    }
    await removeKeptImage(this.#docker, this.#launch)
    await removeToolboxImage(this.#docker)
    await this.#volumes.clear()
    await this.#gpus.remove()
  }

  async wipe(isHostShared: boolean): Promise<void> {
    await this.clear()
    if (!isHostShared) return await wipeEngine(this.#docker)
    await requireNoContainers(this.#docker, `${LAUNCH_LABEL}=${this.#launch}`)
  }

  async #create(order: RunOrder, attempt: number): Promise<Docker.Container> {
    const { run, secretEnv, gpus, sharedHost } = order
    const env = Object.entries({ ...run.env, ...secretEnv }).map(([name, value]) => `${name}=${value}`)
    const isShared = sharedHost !== undefined
    try {
      const image = (await ifFound(this.#docker.getImage(withTag(run.image)).inspect()))?.Config
      return await withTimeout(
        CALL_SECONDS,
        this.#docker.createContainer({
          name: this.#nameOf(attempt),
          Image: withTag(run.image),
          ...(isGiven(run.command) && { Entrypoint: run.command }),
          ...(isGiven(run.args) && { Cmd: run.args }),
          ...(run.workdir !== undefined && { WorkingDir: workdirPathOf(run) }),
          Env: env,
          Labels: { ...this.#labels, [ATTEMPT_LABEL]: String(attempt) },
          HostConfig: {
            ...containerLimits(await this.#memoryOf(sharedHost), isShared),
            ...(!this.#lacking.has("ulimits") && ulimits()),
            ...containerRights(isShared),
            ...gpuRequest(gpus, [...(image?.Env ?? []), ...env]),
            Init: !this.#lacking.has("init") && takesInit(wordsOf(run, image)),
            NetworkMode: isShared ? await this.#sharedHostNetwork() : "bridge",
            LogConfig: LOG_CONFIG,
            Mounts: this.#volumes.mountsOf(order),
          },
        }),
      )
    } catch (error) {
      // 400: the Job's fields make no valid container, for example with an image without any command.
      const reason = errorStatus(error) === 400 ? "ContainerFailed" : "AgentFailed"
      throw new RunError(reason, `the container can't be created: ${await this.#explained(error)}`, error)
    }
  }

  /** Puts the working directory into a container that has not started, so that the image needs no shell for it. */
  async #putWorkdir(container: Docker.Container, folder: string): Promise<void> {
    const { Config } = await withTimeout(CALL_SECONDS, container.inspect())
    const { tar, filled } = repack(this.#dataDir, folder, await ownerOf(container, Config.User))
    const failed = new AbortController()
    // dockerode does not notice that its input ends with an error.
    filled.catch(() => failed.abort())
    try {
      const put = container.putArchive(tar, { path: "/", abortSignal: failed.signal })
      await withTimeout(PUT_SECONDS, Promise.race([put, filled.then(() => put)]))
    } catch (error) {
      tar.destroy()
      await ifFound(container.remove({ force: true, v: true }))
      if (error instanceof RunError) throw error
      const why = await this.#explained(error)
      throw new RunError("WorkdirFailed", `the workdir can't be put into the container: ${why}`, error)
    }
  }

  /** Returns the memory that the container may use, bytes. */
  async #memoryOf(sharedHost: RunOrder["sharedHost"]): Promise<number> {
    if (sharedHost !== undefined) return sharedHost.memoryMib * MIB
    const { MemTotal } = (await withTimeout(CALL_SECONDS, this.#docker.info())) as { MemTotal: number }
    return Math.floor(containerPart(MemTotal / GIB) * GIB)
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
      await withTimeout(CALL_SECONDS, this.#docker.createNetwork(options))
    } catch (error) {
      // 409: another agent was faster.
      if (errorStatus(error) !== 409) throw error
    }
    return SHARED_HOST_NETWORK
  }

  /** Returns the engine's message, and that the disk is full if it is. */
  async #explained(error: unknown): Promise<string> {
    const message = errorMessage(error)
    const why = await whyDiskFull(this.#dataDir, message)
    return why === undefined ? message : `${why}: ${message}`
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

/** Adds the default tag to an image without one. Without a tag the Engine API would pull every tag. */
export function withTag(image: string): string {
  return /[:@]/.test(image.slice(image.lastIndexOf("/") + 1)) ? image : `${image}:latest`
}

/** Returns the command that a container runs, by Docker's rule: a job's own entrypoint drops the image's command. */
function wordsOf({ command, args }: RunOrder["run"], image: Docker.ImageInspectInfo["Config"] | undefined): string[] {
  const entrypoint = isGiven(command) ? command : [image?.Entrypoint ?? []].flat()
  if (isGiven(args)) return [...entrypoint, ...args]
  return isGiven(command) ? entrypoint : [...entrypoint, ...(image?.Cmd ?? [])]
}

function isGiven(list: string[] | undefined): list is string[] {
  return list !== undefined && list.length > 0
}
