import { execFile, spawn } from "node:child_process"
import { chmod, copyFile, mkdir, mkdtemp, rm, symlink } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import Docker from "dockerode"

const run = promisify(execFile)

/** A registry that is slower than this is as good as none, for a start that a person waits for. Seconds. */
const PULL_SECONDS = 60

/** Path of the static busybox of Debian's busybox-static, Alpine and others. */
const HOST_BUSYBOX = "/bin/busybox"

/** On an image that was made here: the file that it was made from. */
const MADE_FROM_LABEL = "dev.berth.made-from"

/** Origin of an image in the engine, or the reason why it could not be obtained. */
export type ObtainedImage =
  | { image: string; from: "engine" | "registry" }
  /** Made from a busybox of this host, now or by an earlier start, since it could not be pulled. */
  | { image: string; from: string; pullError?: string }
  | { image: string; from: undefined; pullError: string }

/**
 * Makes sure that the engine has an image: it is there, or is pulled; one of busybox that can't be pulled is made from
 * this host's static busybox.
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

/** The engine's own words, without the client library's before them. */
function messageOf(error: unknown): string {
  const { json, message } = error as { json?: { message?: string }; message?: string }
  return (json?.message ?? message ?? String(error)).replace(/^\(HTTP code \d+\) [^-]* - /, "").trim()
}

/** Undefined when the engine doesn't have the image. */
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
    abortSignal.addEventListener("abort", () => reject(new Error(`not done after ${PULL_SECONDS} s`)), { once: true })
    docker.modem.followProgress(stream, (error) => (error === null ? resolve() : reject(error)))
  })
}

/** Returns false when this host has no busybox that runs without the host's libraries. */
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
    // The caller says that there is no image, and why it could not be pulled.
    return false
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

/** Lays out the files of an image: busybox, and a link to it by the name of each of its commands. */
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

/** A busybox that is linked to libraries doesn't run in an image that has none. */
async function runs(docker: Docker, image: string): Promise<boolean> {
  const container = await docker.createContainer({ Image: image, Cmd: ["sh", "-c", "true"], NetworkDisabled: true })
  try {
    await container.start()
    return ((await container.wait()) as { StatusCode: number }).StatusCode === 0
  } finally {
    await container.remove({ force: true })
  }
}
