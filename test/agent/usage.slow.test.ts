import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { containerIn, GPUS_LABEL } from "../../src/agent/runtimes/gpu-helper.ts"
import type { Finish } from "../../src/core/apis/launch.ts"
import { until } from "../harness/eventually.ts"
import { engineWith, engineWithGpus } from "./engines.ts"
import { buildGpuImage, helperOf, TWO_GPUS, useShown } from "./gpus.ts"
import { containersOf, docker } from "./images.ts"
import {
  containers,
  fixture,
  gateway,
  images,
  logShows,
  pass,
  prepareAgents,
  runVm,
  shell,
  start,
  WAIT,
} from "./suite.ts"

prepareAgents()

/** Samples that are short enough for a test. */
const SAMPLED = { sampleSeconds: 0.25 }

let gpuImage = ""

async function finishOnDisk(dataDir: string): Promise<Finish | undefined> {
  return (JSON.parse(await readFile(join(dataDir, "state.json"), "utf8")) as { finish?: Finish }).finish
}

containers.describe("an agent that measures its container", () => {
  beforeAll(async () => {
    gpuImage = await buildGpuImage(images?.tools ?? "")
  })
  afterAll(async () => {
    await docker.getImage(gpuImage).remove({ force: true, noprune: true })
  })

  it("ends an idle container at its limit while no gateway runs, and reports it afterwards", async () => {
    const idle = "trap 'echo bye; exit 3' TERM; echo began; while true; do sleep 0.1; done"
    const launch = await fixture.launch(shell(idle, { idleLimit: { cpuPercent: 90 }, maxRetries: 3 }))
    const { exit, dataDir } = await start(launch, { runtime: "docker", ...SAMPLED, idleSeconds: 2 })
    await logShows(launch, "began")
    await gateway.stop()
    try {
      await until("the container ends", async () => (await finishOnDisk(dataDir)) !== undefined)
      expect(await containersOf(launch)).toEqual([])
    } finally {
      await gateway.restart()
    }
    const { cause, finish } = await exit
    expect(cause).toBe("finished")
    expect(finish).toMatchObject({ reason: "DeadlineExceeded", cause: "Idle", exitCode: 3 })
    expect(finish?.message).toMatch(/^CPU at most 90 % for 2 s; it was stopped\. Raise idleLimit\.seconds/)
    expect(finish?.usage?.seconds).toBeGreaterThanOrEqual(1)
    expect((await gateway.logOf(launch)).toString()).toBe("began\nbye\n")
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "DeadlineExceeded", cause: "Idle" })
  })

  it("has the use of GPUs from a helper without any rights, and none of its containers at the end", async () => {
    const engine = await engineWithGpus()
    try {
      const launch = await fixture.launch(shell(`echo began; ${WAIT}`), { offer: TWO_GPUS })
      const options = { runtime: "docker", dockerSocket: engine.socket, gpuImage, ...SAMPLED } as const
      const { exit, dataDir } = await start(launch, options)
      await logShows(launch, "began")
      const id = await helperOf(launch)
      await useShown(id)
      const helper = docker.getContainer(id)
      const { HostConfig, Mounts } = await helper.inspect()
      expect(HostConfig).toMatchObject({ Privileged: false, NetworkMode: "none", CapDrop: ["ALL"], Binds: null })
      expect(HostConfig).toMatchObject({ CapAdd: null, PidMode: "", SecurityOpt: ["no-new-privileges"] })
      expect(Mounts).toEqual([])
      const [asked] = engine.created.filter(({ Labels }) => GPUS_LABEL in Labels)
      expect(asked?.HostConfig["DeviceRequests"]).toEqual([
        { Driver: "", Count: -1, Capabilities: [["gpu", "utility"]] },
      ])
      await pass(launch, "docker", dataDir)
      const { finish } = await exit
      expect(finish).toMatchObject({ reason: "Succeeded", usage: { gpuMean: 60, vramPeakMib: 3000 } })
      expect(await containersOf(launch)).toEqual([])
    } finally {
      await engine.close()
    }
  })

  it("does not know the use of GPUs without a helper, and never takes them for idle", async () => {
    const engine = await engineWithGpus()
    try {
      const run = shell("sleep 3; echo done", { idleLimit: {} })
      const options = { spec: { offer: TWO_GPUS }, dockerSocket: engine.socket, ...SAMPLED, idleSeconds: 1 }
      const { exit, log } = await runVm("docker", run, options)
      expect(exit.finish?.reason).toBe("Succeeded")
      // It was measured. How often depends on how soon the engine answers.
      expect(exit.finish?.usage?.seconds).toBeGreaterThan(0)
      expect(exit.finish?.usage).not.toHaveProperty("gpuMean")
      expect(log).toBe("done\n")
    } finally {
      await engine.close()
    }
  })

  it("runs a container to its end with an engine that never answers a measurement, and has no use of it", async () => {
    const engine = await engineWith((req) => req.url?.includes("/stats") === true)
    try {
      const run = shell("sleep 2; echo done", { idleLimit: {} })
      const options = { dockerSocket: engine.socket, ...SAMPLED, idleSeconds: 1 }
      const { exit, log } = await runVm("docker", run, options)
      expect(exit.finish?.reason).toBe("Succeeded")
      expect(exit.finish?.usage).toBeUndefined()
      expect(log).toBe("done\n")
    } finally {
      await engine.close()
    }
  })

  it("finds its own container by the mounts that it has in the host's network", async () => {
    const container = await docker.createContainer({
      Image: images?.tools ?? "",
      Entrypoint: ["cat", "/proc/self/mountinfo"],
      Cmd: [],
      // A terminal's output is not in frames.
      Tty: true,
      HostConfig: { NetworkMode: "host" },
    })
    try {
      await container.start()
      await container.wait()
      expect(containerIn((await container.logs({ stdout: true })).toString())).toBe(container.id)
    } finally {
      await container.remove({ force: true })
    }
  })
})
