import Docker from "dockerode"
import { TransientError } from "../../src/core/outbound/errors.ts"

/** The label that an agent sets on its containers. Its value is the Launch's name. */
export const LAUNCH_LABEL = "berth.dev/launch"

/**
 * Removes every container of a Launch, running or not. An engine that was shut down runs none. Throws TransientError if
 * the engine does not confirm it.
 * @param socketPath of the Docker engine
 */
export async function removeContainers(socketPath: string, launch: string): Promise<void> {
  const docker = new Docker({ socketPath })
  try {
    const filters = { label: [`${LAUNCH_LABEL}=${launch}`] }
    const containers = await docker.listContainers({ all: true, filters })
    await Promise.all(containers.map(({ Id }) => removeContainer(docker, Id)))
  } catch (error) {
    // A clean stop removes the socket. A refused connection may be a crashed engine, whose containers keep running.
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return
    throw new TransientError(
      "DockerUnavailable",
      `the Docker engine at ${socketPath} did not remove ${launch}'s containers`,
      {
        cause: error,
      },
    )
  }
}

async function removeContainer(docker: Docker, id: string): Promise<void> {
  try {
    await docker.getContainer(id).remove({ force: true, v: true })
  } catch (error) {
    // 404: the container is deleted. 409: its removal is already in progress; the next list shows the result.
    if (error instanceof Error && "statusCode" in error && error.statusCode === 404) return
    throw error
  }
}
