import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect } from "vitest"
import { type AgentExit, type AgentOptions, runAgent } from "../../src/agent/main.ts"
import type { Volume } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { goProgram } from "../go-program.ts"
import { eventually } from "../kube/fixtures.ts"
import { missingTool } from "../needing.ts"
import { RCLONE } from "../rclone.ts"
import { type Fixture, type TestGateway, testLogger } from "./harness.ts"
import { buildImage, buildImages, docker, librariesOf, missingForContainers } from "./images.ts"

/** Programs of Debian's packages fuse3 and busybox-static, and the FUSE device. */
const PROGRAMS = ["/usr/bin/fusermount3", "/bin/busybox", "/dev/fuse"]

/** Returns the reason why tests that mount buckets can't run here, or undefined. */
export async function missingForVolumes(): Promise<string | undefined> {
  const lacking = PROGRAMS.filter((path) => !existsSync(path))
  return (
    (await missingForContainers()) ??
    (process.getuid?.() === 0 ? undefined : "only root may mount") ??
    (lacking.length > 0 ? `${lacking.join(", ")} missing` : undefined) ??
    missingTool("rclone")
  )
}

/** Agents that mount buckets into containers, each on a disk of its own. */
export interface VolumeVms {
  start: (
    gateway: TestGateway,
    script: string,
    volumes: Record<string, Volume>,
    options?: Partial<AgentOptions>,
  ) => Promise<{ launch: StoredLaunch; exit: Promise<AgentExit>; dataDir: string }>
  /** Expects that nothing of a VM is left on this machine. */
  expectNothingLeft: (launch: StoredLaunch) => Promise<void>
  remove: () => Promise<void>
}

/** Timeout of a suite's hook while another suite has the engine's volumes, in milliseconds. */
export const VOLUMES_WAIT_MS = 600_000

/**
 * Waits until no other suite uses the engine's volumes: an engine has one Berth driver, because a VM runs one job. A
 * name among Linux' abstract sockets is free again after any end of its process.
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
  await eventually("no other suite mounts buckets", isOurs, VOLUMES_WAIT_MS / 1000)
  return { [Symbol.dispose]: () => void server.close() }
}

/** Returns VMs that hold the engine's volumes until they are removed. */
export async function volumeVms(fixture: Fixture): Promise<VolumeVms> {
  const volumes = await engineVolumes()
  const image = `berth-test/rclone:${process.pid}`
  const disks: string[] = []
  const launches: string[] = []
  const images = await buildImages()
  await buildRcloneImage(image)
  return {
    start: async (gateway, script, volumes, options) => {
      await removeDrivers(launches)
      const dataDir = await sharedDisk()
      disks.push(dataDir)
      const launch = await fixture.launch({ image: images.tools, command: ["sh", "-c", script], volumes })
      launches.push(launch.metadata.name)
      const userData = JSON.stringify({ ...(JSON.parse(gateway.userData(launch)) as object), volumesImage: image })
      const logger = testLogger()
      const exit = runAgent({ userData, runtime: "docker", logger, dataDir, ...options })
      exit.catch(() => undefined)
      return { launch, exit, dataDir }
    },
    expectNothingLeft: async ({ metadata: { name } }) => {
      expect(await docker.listContainers({ all: true, filters: { name: [name] } })).toEqual([])
      expect(await readFile("/proc/mounts", "utf8")).not.toContain(name)
    },
    remove: async () => {
      await removeDrivers(launches)
      await images.remove()
      await docker.getImage(image).remove({ force: true, noprune: true })
      for (const disk of disks) {
        await removeSharedDisk(disk)
      }
      volumes[Symbol.dispose]()
    },
  }
}

/**
 * Removes drivers, even one that failed to release a volume in time. A VM takes its driver along; here the engine
 * stays.
 */
async function removeDrivers(launches: readonly string[]): Promise<void> {
  for (const launch of launches) {
    const filters = { name: [`berth-${launch}-volumes`] }
    for (const { Id } of await docker.listContainers({ all: true, filters })) {
      await docker.getContainer(Id).remove({ force: true, v: true })
    }
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
