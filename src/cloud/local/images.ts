import Docker from "dockerode"

/** A registry that is slower than this is as good as none, for a start that a person waits for. Seconds. */
const PULL_SECONDS = 60

/**
 * Makes sure that the engine has these images, pulling those that are missing.
 * @param socketPath of the Docker engine
 * @returns why one can't be had; undefined when all are there
 */
export async function pullMissing(socketPath: string, images: readonly string[]): Promise<string | undefined> {
  const docker = new Docker({ socketPath })
  for (const image of images) {
    if (await isThere(docker, image)) continue
    try {
      await pull(docker, image)
    } catch (error) {
      return `image ${image} can't be pulled: ${error instanceof Error ? error.message : String(error)}`
    }
  }
  return undefined
}

async function isThere(docker: Docker, image: string): Promise<boolean> {
  try {
    await docker.getImage(image).inspect()
    return true
  } catch (error) {
    if (error instanceof Error && "statusCode" in error && error.statusCode === 404) return false
    throw error
  }
}

async function pull(docker: Docker, image: string): Promise<void> {
  const abortSignal = AbortSignal.timeout(PULL_SECONDS * 1000)
  const stream = await docker.pull(image, { abortSignal })
  await new Promise<void>((resolve, reject) => {
    abortSignal.addEventListener("abort", () => reject(new Error(`not done after ${PULL_SECONDS} s`)), { once: true })
    docker.modem.followProgress(stream, (error) => (error === null ? resolve() : reject(error)))
  })
}
