import { execFile } from "node:child_process"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { Readable } from "node:stream"
import { finished } from "node:stream/promises"
import { promisify } from "node:util"
import type Docker from "dockerode"
import { pack } from "tar-stream"
import { CALL_SECONDS, errorStatus, ifFound, withTimeout } from "./engine.ts"
import { EntryError } from "./runtime.ts"

/**
 * Tools for people whose image has none: busybox, which the agent's image has for that. They have the rights of the job's
 * own container, and no more.
 */

/** Busybox in the agent's image; on a machine for development, that of Debian. It is one static program. */
const BUSYBOX = ["/berth/busybox", "/bin/busybox"]

/** Image of the tools on this machine. It comes from no registry. */
const IMAGE = "berth-toolbox:1"

/** Folder of the tools in a copy of a container. */
export const TOOLS_FOLDER = "/.berth"

/** Longest sleep that busybox takes, seconds. */
const FOREVER = "2147483647"

/** A container in which the tools run. */
export interface Toolbox {
  container: Docker.Container
  /** Environment of each tool, as `NAME=value`. */
  env: string[]
}

/** Returns busybox and a link for each of its programs, as a tar of a folder. @throws EntryError */
async function packTools(folder: string): Promise<Readable> {
  const path = BUSYBOX.find((one) => existsSync(one))
  if (path === undefined) throw new EntryError("this agent has no toolbox: it has no busybox")
  const { stdout } = await promisify(execFile)(path, ["--list"])
  const content = await readFile(path)
  const tar = pack()
  tar.entry({ name: `${folder}/busybox`, mode: 0o755 }, content)
  for (const name of stdout.trim().split("\n"))
    if (name !== "busybox") tar.entry({ name: `${folder}/${name}`, type: "symlink", linkname: "busybox" })
  tar.finalize()
  return Readable.from(tar)
}

/** Puts the tools into a container that has not started. @throws EntryError */
export async function putTools(container: Docker.Container): Promise<void> {
  const tar = await packTools(TOOLS_FOLDER.slice(1))
  await withTimeout(CALL_SECONDS, container.putArchive(tar, { path: "/" }))
}

/** Returns the command with which a container does nothing that has the tools in a folder. */
export function sleepIn(folder: string): string[] {
  return [`${folder}/busybox`, "sleep", FOREVER]
}

/**
 * Starts a container with the tools beside a running one, in its namespaces: it sees the same processes, ports and volumes,
 * as the same user with the same rights. The root of its files is `/proc/1/root`.
 * @param user user and group, by number, because the tools' image has no names
 * @throws EntryError
 */
export async function startBeside(
  docker: Docker,
  { target, user, name, labels }: { target: string; user: string; name: string; labels: Record<string, string> },
): Promise<Toolbox> {
  const { HostConfig } = await withTimeout(CALL_SECONDS, docker.getContainer(target).inspect())
  const { CapAdd, CapDrop, SecurityOpt, LogConfig } = HostConfig
  const { Memory, MemorySwap, PidsLimit } = HostConfig
  const shared = `container:${target}`
  const container = docker.getContainer(name)
  const spec: Docker.ContainerCreateOptions = {
    name,
    Image: IMAGE,
    Entrypoint: sleepIn("/bin"),
    Cmd: [],
    User: user,
    Labels: labels,
    HostConfig: {
      ...{ PidMode: shared, NetworkMode: shared, VolumesFrom: [target] },
      ...{ CapAdd, CapDrop, SecurityOpt, LogConfig },
      // A host may also run other jobs.
      ...{ Memory, MemorySwap, PidsLimit },
    },
  }
  await create(docker, spec)
  await withTimeout(CALL_SECONDS, container.start()).catch((error: unknown) => {
    // 304: it runs already.
    if (errorStatus(error) !== 304) throw error
  })
  return { container, env: ["PATH=/bin"] }
}

/** Number of times that the image is made, because an agent that ends removes it. */
const IMAGE_TRIES = 3

async function create(docker: Docker, spec: Docker.ContainerCreateOptions): Promise<void> {
  for (let tries = 1; ; tries++) {
    await requireImage(docker)
    try {
      await withTimeout(CALL_SECONDS, docker.createContainer(spec))
      return
    } catch (error) {
      // 409: another session has created it.
      if (errorStatus(error) === 409) return
      if (errorStatus(error) !== 404 || tries === IMAGE_TRIES) throw error
    }
  }
}

async function requireImage(docker: Docker): Promise<void> {
  if ((await ifFound(docker.getImage(IMAGE).inspect())) !== undefined) return
  const [repo, tag] = IMAGE.split(":")
  const tar = await packTools("bin")
  const progress = (await withTimeout(CALL_SECONDS, docker.importImage(tar, { repo, tag }))) as Readable
  progress.resume()
  await withTimeout(CALL_SECONDS, finished(progress))
}

/** Removes the tools' image, unless another job's container is of it. */
export async function removeToolboxImage(docker: Docker): Promise<void> {
  try {
    await ifFound(docker.getImage(IMAGE).remove())
  } catch (error) {
    if (errorStatus(error) !== 409) throw error
  }
}
