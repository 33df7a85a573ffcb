import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { existsSync, rmSync } from "node:fs"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DRIVER_SOCKET } from "../../src/agent/volumes/driver.ts"
import { goProgram } from "../go-program.ts"
import { until } from "../harness/eventually.ts"
import { RCLONE } from "../rclone.ts"
import { buildImage, librariesOf, missingForContainers } from "./images.ts"

/** Parts of tests and benchmarks that mount buckets by the agent's volume driver. */

/** Programs of Debian's packages fuse3 and busybox-static, and the FUSE device. */
const PROGRAMS = ["/usr/bin/fusermount3", "/bin/busybox", "/dev/fuse"]

/** Returns the reason why buckets can't be mounted here, or undefined. */
export async function missingForMounts(): Promise<string | undefined> {
  const lacking = PROGRAMS.filter((path) => !existsSync(path))
  return (
    (await missingForContainers()) ??
    (process.getuid?.() === 0 ? undefined : "only root may mount") ??
    (lacking.length > 0 ? `${lacking.join(", ")} missing` : undefined)
  )
}

/** Timeout of a suite's hook while another suite has the engine's volumes, in milliseconds. */
export const VOLUMES_WAIT_MS = 600_000

/**
 * Waits until no other suite uses the engine's volumes: an engine has one Berth driver, because a VM runs one job. A
 * name among Linux' abstract sockets is free again after any end of its process. A driver that was killed leaves its
 * socket, and then the engine takes 15 s for each list of volumes, also in other suites. So none is left.
 */
export async function engineVolumes(): Promise<Disposable> {
  const server = createServer()
  const isOurs = async (): Promise<boolean> => {
    server.listen("\0berth-test-volumes")
    return await once(server, "listening").then(
      () => true,
      () => false,
    )
  }
  await until("no other suite mounts buckets", isOurs, VOLUMES_WAIT_MS / 1000)
  const removeSocket = (): void => rmSync(DRIVER_SOCKET, { force: true })
  removeSocket()
  return {
    [Symbol.dispose]: () => {
      removeSocket()
      server.close()
    },
  }
}

/** Builds an image with the programs that Berth's own image has for volumes. */
export async function buildRcloneImage(image: string): Promise<void> {
  const [fusermount, busybox] = PROGRAMS as [string, string]
  await buildImage(image, {
    Dockerfile: 'FROM scratch\nCOPY . /\nRUN ["/bin/sh", "-c", "/bin/busybox ln -s busybox /bin/cat"]\n',
    "usr/bin/rclone": await readFile(await goProgram(RCLONE)),
    "usr/bin/fusermount3": await readFile(fusermount),
    "bin/sh": await readFile(busybox),
    "bin/busybox": await readFile(busybox),
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\n",
    ...(await librariesOf(fusermount)),
  })
}

/** Returns a folder whose mounts propagate, as for everything that systemd mounts. */
export async function sharedDisk(): Promise<string> {
  const disk = await mkdtemp(join(tmpdir(), "berth-volumes-"))
  execFileSync("mount", ["--bind", disk, disk])
  execFileSync("mount", ["--make-shared", disk])
  return disk
}

/** Removes such a folder, also with mounts of a driver that was killed. */
export async function removeSharedDisk(disk: string): Promise<void> {
  execFileSync("umount", ["--recursive", "--lazy", disk])
  await rm(disk, { recursive: true, force: true })
}
