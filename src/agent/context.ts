import type { Clock } from "../core/apis/clock.ts"
import type { Logger } from "../core/apis/logger.ts"
import type { BootConfig } from "../core/protocol/protocol.ts"
import type { Disk } from "./disk.ts"
import { detectRuntime } from "./runtimes/detect.ts"
import type { Runtime } from "./runtimes/runtime.ts"

export interface AgentOptions extends LaunchOptions {
  /** User data of the VM (renderUserData). */
  userData: string
  /** Aborted when the VM is shut down. */
  signal?: AbortSignal
}

/** Options for the run of each Launch. */
export interface LaunchOptions {
  /** Folder of the agent on the machine's disk. It is created if it does not exist. */
  dataDir: string
  /** Absent: docker if an engine answers, else process. `docker` waits for the engine. */
  runtime?: "docker" | "process"
  dockerSocket?: string
  /** URL of the cloud's metadata service. Default: the address that all clouds use. */
  metadataUrl?: string
  logger: Logger
  clock?: Clock
  /** Delay between SIGTERM and SIGKILL of a job that sets none, seconds. Default 10. */
  stopGraceSeconds?: number
  /**
   * Maximum time from a shutdown to the agent's end, seconds. Default: the time that uploads of written files may take.
   */
  shutdownSeconds?: number
  /** Maximum time that the log may delay the finish, seconds. Default 60. */
  flushSeconds?: number
  /** Time without progress of a pull after which it fails, seconds. Default 300. */
  pullPatienceSeconds?: number
  /** Maximum number of bytes of output on the disk. Default 128 MiB. */
  spoolBytes?: number
  /** Delay between two measurements of the container, seconds. Default 5. */
  sampleSeconds?: number
  /** Time of an idle limit, instead of the job's, seconds. */
  idleSeconds?: number
  /** Image that runs `nvidia-smi`. Default: the image of the agent's own container. */
  gpuImage?: string
  /** Returns the seconds for which a machine may still run the job. Absent: it holds no lease. */
  leaseSeconds?: () => number
}

/** Needs of an agent for one Launch. */
export interface LaunchContext extends LaunchOptions {
  config: BootConfig
  /** True if an earlier Launch had the VM. */
  isTakeover: boolean
  clock: Clock
  /** Aborted with a LeaveCause when the run, and with it its VM, has to end. */
  leave: AbortController
}

/**
 * Returns the runtime of a Launch: the one of its earlier containers, or the one that this machine has. Rejects with
 * RunError if the engine does not start.
 */
export async function openRuntime(context: LaunchContext, disk: Disk, signal: AbortSignal): Promise<Runtime> {
  const { config, isTakeover, clock, dataDir, dockerSocket, pullPatienceSeconds, gpuImage, logger } = context
  const { launch, volumesImage, gatewayCa: ca } = config
  const engine = { dockerSocket, volumesImage, ca, pullPatienceSeconds, gpuImage }
  const options = { launch, isTakeover, agent: disk.keys.signing.x ?? "", dataDir, clock, logger, ...engine }
  return await detectRuntime({ ...options, runtime: disk.state.runtime ?? context.runtime }, signal)
}

/**
 * Calls back when the signal is aborted; at once if it is already. The returned function cancels that. Until then the
 * signal holds the callback, and all that it knows, in memory. (With a second signal as an option it would for ever.)
 */
export function whenAborted(signal: AbortSignal, callback: () => void): () => void {
  signal.addEventListener("abort", callback, { once: true })
  if (signal.aborted) callback()
  return () => signal.removeEventListener("abort", callback)
}
