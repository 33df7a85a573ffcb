import Docker from "dockerode"
import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { waitUnlessAborted } from "../timers.ts"
import { DEFAULT_DOCKER_SOCKET, DockerRuntime } from "./docker.ts"
import { ProcessRuntime } from "./process.ts"
import { RunError, type Runtime } from "./runtime.ts"

/** Time that a VM's engine may take to start, seconds. */
const ENGINE_START_SECONDS = 300

const PING_SECONDS = 5

export interface RuntimeOptions {
  /** `docker` waits for the engine; absent: docker if an engine answers now, else process. */
  runtime?: "docker" | "process" | undefined
  /** Path of the engine's socket. */
  dockerSocket?: string | undefined
  launch: string
  /** True if an earlier Launch had the VM. */
  isTakeover: boolean
  /** Public key of the agent. */
  agent: string
  dataDir: string
  /** PEM of authorities to trust in addition to the public ones. */
  ca?: string | undefined
  /** Image with rclone for volumes. */
  volumesImage?: string | undefined
  /** Time without progress of a pull after which it fails, seconds. Default 300. */
  pullPatienceSeconds?: number | undefined
  /** Image that runs `nvidia-smi`. Default: the image of the agent's own container. */
  gpuImage?: string | undefined
  clock: Clock
  logger: Logger
}

/** Returns true if a Docker Engine answers at this socket. */
export async function engineAnswers(socketPath: string = DEFAULT_DOCKER_SOCKET): Promise<boolean> {
  try {
    await new Docker({ socketPath, timeout: PING_SECONDS * 1000 }).ping()
    return true
  } catch {
    // After any error this engine can't run containers.
    return false
  }
}

/**
 * Returns the requested runtime, or the one that this machine has. Rejects with RunError if the engine does not start.
 */
export async function detectRuntime(options: RuntimeOptions, signal: AbortSignal): Promise<Runtime> {
  const {
    launch,
    isTakeover,
    agent,
    dataDir,
    logger,
    clock,
    dockerSocket: socketPath = DEFAULT_DOCKER_SOCKET,
  } = options
  if (options.runtime === "process") return new ProcessRuntime(dataDir)
  const deadline = clock.monotonic() + ENGINE_START_SECONDS
  while (!(await engineAnswers(socketPath))) {
    if (options.runtime === undefined) return new ProcessRuntime(dataDir)
    if (signal.aborted || clock.monotonic() > deadline) {
      throw new RunError("AgentFailed", `no Docker Engine answers at ${socketPath}`)
    }
    await waitUnlessAborted(clock, 1, signal)
  }
  const { volumesImage, ca, pullPatienceSeconds, gpuImage } = options
  const parts = { ca, volumesImage, pullPatienceSeconds, gpuImage, clock, logger }
  return new DockerRuntime({ launch, isTakeover, agent, socketPath, dataDir, ...parts })
}
