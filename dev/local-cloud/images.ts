import { execFile, spawn } from "node:child_process"
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import Docker from "dockerode"
import { onAborted } from "../../src/core/apis/abort.ts"

const run = promisify(execFile)

/** Timeout of a pull, seconds. A person waits for this start, so a slower registry counts as unavailable. */
const PULL_SECONDS = 60

/** Path of the static busybox of Debian's busybox-static, Alpine and others. */
const HOST_BUSYBOX = "/bin/busybox"

/** Label of an image that was built here, with the file that it was built from. */
const MADE_FROM_LABEL = "dev.berth.made-from"

/** Origin of an image in the engine, or the reason why it could not be obtained. */
export type ObtainedImage =
  | { image: string; from: "engine" | "registry" }
  /** Built from a busybox of this host, now or by an earlier start, because the pull failed. */
  | { image: string; from: string; pullError?: string }
  | { image: string; from: undefined; pullError: string }

/**
 * Ensures that the engine has an image, and pulls it if it is missing. If a busybox image can't be pulled, builds it
 * from this host's static busybox.
 * @param socketPath of the Docker engine
 */
export async function obtainImage(socketPath: string, image: string): Promise<ObtainedImage> {
  const docker = new Docker({ socketPath })
  const labels = await labelsOf(docker, image)
  if (labels !== undefined) return { image, from: labels[MADE_FROM_LABEL] ?? "engine" }
  try {
    await pull(docker, image)
    return { image, from: "registry" }
  } catch (error) {
    const pullError = messageOf(error)
    const isMade = /^busybox(:|$)/.test(image) && (await makeFromBusybox(docker, image))
    return { image, from: isMade ? HOST_BUSYBOX : undefined, pullError }
  }
}

/** Returns the engine's own message, without the prefix of the client library. */
function messageOf(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string }
  return (json?.message ?? message ?? String(error)).replace(/^\(HTTP code \d+\) [^-]* - /, "").trim()
}

/** Returns undefined if the engine does not have the image. */
async function labelsOf(docker: Docker, image: string): Promise<Record<string, string> | undefined> {
  try {
    return (await docker.getImage(image).inspect()).Config?.Labels ?? {}
  } catch (error) {
    if (error instanceof Error && "statusCode" in error && error.statusCode === 404) return undefined
    throw error
  }
}

async function pull(docker: Docker, image: string): Promise<void> {
  const abortSignal = AbortSignal.timeout(PULL_SECONDS * 1000)
  const stream = await docker.pull(image, { abortSignal })
  await new Promise<void>((resolve, reject) => {
    onAborted(abortSignal, () => reject(new Error(`timeout after ${PULL_SECONDS} s`)))
    docker.modem.followProgress(stream, (error) => (error === null ? resolve() : reject(error)))
  })
}

/** Returns false if this host has no statically linked busybox. */
async function makeFromBusybox(docker: Docker, image: string): Promise<boolean> {
  const root = await mkdtemp(join(tmpdir(), "berth-image-"))
  try {
    await layOut(root)
    const tar = spawn(HOST_BUSYBOX, ["tar", "-c", "-f", "-", "-C", root, "."], { stdio: ["ignore", "pipe", "ignore"] })
    const [repo, tag = "latest"] = image.split(":")
    const changes = ['CMD ["sh"]', `LABEL ${MADE_FROM_LABEL}=${HOST_BUSYBOX}`]
    const answer = await docker.importImage(tar.stdout, { repo, tag, changes })
    await new Promise<void>((resolve, reject) =>
      docker.modem.followProgress(answer, (error) => (error === null ? resolve() : reject(error))),
    )
    if (await runs(docker, image)) return true
    await docker.getImage(image).remove()
    return false
  } catch {
    // The caller reports that there is no image, and why the pull failed.
    return false
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

/** Writes the files of an image: busybox, and a link for each of its commands. */
async function layOut(root: string): Promise<void> {
  const { stdout } = await run(HOST_BUSYBOX, ["--list"])
  const commands = stdout.split("\n").filter((name) => /^[\w[.-]+$/.test(name) && name !== "busybox")
  await chmod(root, 0o755)
  await mkdir(join(root, "bin"))
  await mkdir(join(root, "tmp"))
  await chmod(join(root, "tmp"), 0o1777)
  await copyFile(HOST_BUSYBOX, join(root, "bin", "busybox"))
  await Promise.all(commands.map((name) => symlink("busybox", join(root, "bin", name))))
}

/** A dynamically linked busybox does not run in an image without libraries. */
async function runs(docker: Docker, image: string): Promise<boolean> {
  const container = await docker.createContainer({ Image: image, Cmd: ["sh", "-c", "true"], NetworkDisabled: true })
  try {
    await container.start()
    return ((await container.wait()) as { StatusCode: number }).StatusCode === 0
  } finally {
    await container.remove({ force: true })
  }
}
