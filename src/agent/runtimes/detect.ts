import Docker from "dockerode"
import type { Clock } from "../../apis/clock.ts"
import type { Logger } from "../../apis/logger.ts"
import { waitUnlessAborted } from "../timers.ts"
import { DEFAULT_DOCKER_SOCKET, DockerRuntime } from "./docker.ts"
import { ProcessRuntime } from "./process.ts"
import { RunError, type Runtime } from "./runtime.ts"

/** How long a VM's engine may take to come up, seconds. */
const ENGINE_START_SECONDS = 300

const PING_SECONDS = 5

export interface RuntimeOptions {
  /** `docker` waits for the engine; absent: docker when an engine answers now, else process. */
  runtime?: "docker" | "process" | undefined
  /** Path of the engine's socket. */
  dockerSocket?: string | undefined
  launch: string
  /** The agent's public key. */
  agent: string
  dataDir: string
  /** An image with rclone in it. */
  image?: string | undefined
  clock: Clock
  logger: Logger
}

/** Whether a Docker Engine answers at this socket. */
export async function engineAnswers(socketPath: string = DEFAULT_DOCKER_SOCKET): Promise<boolean> {
  try {
    await new Docker({ socketPath, timeout: PING_SECONDS * 1000 }).ping()
    return true
  } catch {
    // Whatever the reason: nothing can be run by it.
    return false
  }
}

/** The runtime asked for, or the one that this machine has. Rejects with RunError when the engine doesn't come up. */
export async function detectRuntime(options: RuntimeOptions, signal: AbortSignal): Promise<Runtime> {
  const { launch, agent, dataDir, logger, clock, dockerSocket: socketPath = DEFAULT_DOCKER_SOCKET } = options
  if (options.runtime === "process") return new ProcessRuntime(dataDir)
  const deadline = clock.monotonic() + ENGINE_START_SECONDS
  while (!(await engineAnswers(socketPath))) {
    if (options.runtime === undefined) return new ProcessRuntime(dataDir)
    if (signal.aborted || clock.monotonic() > deadline) {
      throw new RunError("AgentFailed", `no Docker Engine answers at ${socketPath}`)
    }
    await waitUnlessAborted(clock, 1, signal)
  }
  return new DockerRuntime({ launch, agent, socketPath, dataDir, image: options.image, logger })
}
