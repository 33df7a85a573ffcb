import { readFile } from "node:fs/promises"
import { expect } from "vitest"
import { type AgentExit, type AgentOptions, runAgent } from "../../src/agent/main.ts"
import type { Run, Volume } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { TestGateway } from "../harness/gateway.ts"
import type { LaunchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { missingTool } from "../needing.ts"
import { buildImages, docker } from "./images.ts"
import { buildRcloneImage, engineVolumes, missingForMounts, removeSharedDisk, sharedDisk } from "./mounts.ts"

/** Returns the reason why tests that mount buckets can't run here, or undefined. */
export async function missingForVolumes(): Promise<string | undefined> {
  return (await missingForMounts()) ?? missingTool("rclone")
}

/** Agents that mount buckets into containers, each on a disk of its own. */
export interface VolumeVms {
  start: (
    gateway: TestGateway,
    script: string,
    volumes: Record<string, Volume>,
    options?: Partial<AgentOptions> & { run?: Partial<Run> },
  ) => Promise<{ launch: StoredLaunch; exit: Promise<AgentExit>; dataDir: string }>
  /** Expects that nothing of a VM is left on this machine. */
  expectNothingLeft: (launch: StoredLaunch) => Promise<void>
  /** Image for the containers of other jobs. */
  image: string
  /** Image of the driver. */
  volumesImage: string
  /** Returns a disk for another agent, to be removed with the VMs. */
  newDisk: () => Promise<string>
  remove: () => Promise<void>
}

/** Returns VMs that hold the engine's volumes until they are removed. */
export async function volumeVms(fixture: LaunchFixture): Promise<VolumeVms> {
  const volumes = await engineVolumes()
  const image = `berth-test/rclone:${process.pid}`
  const disks: string[] = []
  const launches: string[] = []
  const images = await buildImages()
  await buildRcloneImage(image)
  const newDisk = async (): Promise<string> => {
    const disk = await sharedDisk()
    disks.push(disk)
    return disk
  }
  return {
    newDisk,
    volumesImage: image,
    start: async (gateway, script, volumes, { run = {}, ...options } = {}) => {
      await removeDrivers(launches)
      const dataDir = await newDisk()
      const launch = await fixture.launch({ image: images.tools, command: ["sh", "-c", script], volumes, ...run })
      launches.push(launch.metadata.name)
      const userData = JSON.stringify({ ...(JSON.parse(gateway.userData(launch)) as object), volumesImage: image })
      const exit = runAgent({ userData, runtime: "docker", logger: silentLogger, dataDir, ...options })
      exit.catch(() => undefined)
      return { launch, exit, dataDir }
    },
    image: images.tools,
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
