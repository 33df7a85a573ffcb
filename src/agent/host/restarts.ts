import Docker from "dockerode"
import type { Logger } from "../../core/apis/logger.ts"
import { whenAborted } from "../context.ts"
import { DEFAULT_DOCKER_SOCKET } from "../runtimes/docker.ts"
import { ifFound, withTimeout } from "../runtimes/engine.ts"
import { ownContainer } from "../runtimes/gpu-helper.ts"

/** Time for the engine's answer, seconds. */
const ANSWER_SECONDS = 30

export interface RestartOptions {
  /** Default: the engine's usual one. */
  dockerSocket?: string
  logger: Logger
  /** Aborted when the agent is stopped. */
  signal: AbortSignal
}

/**
 * Keeps the engine from starting this agent's container again once it ends: `--restart always` knows no exit code after which
 * a restart is of no use, as systemd's `RestartPreventExitStatus` does. If the engine refuses that, the agent has to stay,
 * and the promise resolves when it is stopped. Never rejects.
 */
export async function endRestarts(options: RestartOptions): Promise<void> {
  const { dockerSocket: socketPath = DEFAULT_DOCKER_SOCKET, logger, signal } = options
  const id = ownContainer()
  if (id === undefined) return
  try {
    const container = new Docker({ socketPath }).getContainer(id)
    // One of another engine is a machine in a container, and not this agent's own: systemd starts the agent there.
    await withTimeout(ANSWER_SECONDS, ifFound(container.update({ RestartPolicy: { Name: "no" } })))
  } catch (error) {
    const message = "the engine would start this agent again, so it stays without a machine until it is stopped"
    logger.error({ err: error }, message)
    const { promise: stopped, resolve } = Promise.withResolvers<void>()
    whenAborted(signal, resolve)
    await stopped
  }
}
