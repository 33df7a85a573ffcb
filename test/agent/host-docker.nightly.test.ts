import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { mkdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { readFacts } from "../../src/agent/host/facts.ts"
import { LAUNCH_LABEL } from "../../src/agent/runtimes/docker.ts"
import { VolumeDriver } from "../../src/agent/volumes/driver.ts"
import { until } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { engineOfSize, engineWith, engineWithGpus } from "./engines.ts"
import { hostClocks, joinedHost, ownMachine, prepareHosts, startHost, startHostProcess } from "./hosts.ts"
import { buildImage, containersOf, docker } from "./images.ts"
import {
  containers,
  fixture,
  gateway,
  images,
  kill,
  logShows,
  newDisk,
  pass,
  prepareAgents,
  shell,
  WAIT,
} from "./suite.ts"

prepareAgents()
prepareHosts()

const FOREVER = "echo began; while true; do sleep 0.1; done"

/** Objects of the machine's owner on the same engine. */
const own = { container: `owner-${randomBytes(4).toString("hex")}`, volume: "", image: "" }

containers.describe("a host with an engine", () => {
  beforeAll(async () => {
    own.image = `${own.container}:1`
    own.volume = `${own.container}-data`
    await buildImage(own.image, { Dockerfile: `FROM ${images?.tools}\n` })
    await docker.createVolume({ Name: own.volume })
    const container = await docker.createContainer({
      ...{ name: own.container, Image: own.image, Entrypoint: ["sleep", "3600"] },
      HostConfig: { Mounts: [{ Type: "volume", Source: own.volume, Target: "/data" }] },
    })
    await container.start()
  })

  afterAll(async () => {
    await docker.getContainer(own.container).remove({ force: true })
    await docker.getVolume(own.volume).remove()
    await docker.getImage(own.image).remove({ force: true, noprune: true })
  })

  async function expectOwnersThings(): Promise<void> {
    expect((await docker.getContainer(own.container).inspect()).State.Running).toBe(true)
    await docker.getVolume(own.volume).inspect()
    await docker.getImage(own.image).inspect()
  }

  it("removes everything of a job, and nothing of its owner", async () => {
    const { machine, stop, exit } = await joinedHost({ runtime: "docker" })
    const first = await machine.launch(shell(`echo first > left; ${WAIT}`))
    await until("it runs", async () => (await containersOf(first)).some(({ State }) => State === "running"))
    const [container] = await containersOf(first)
    const { HostConfig } = await docker.getContainer(container?.Id ?? "").inspect()
    expect(HostConfig.SecurityOpt).toContain("no-new-privileges")
    expect(HostConfig.RestartPolicy?.Name).toMatch(/^(no)?$/)
    await pass(first, "docker", "")
    await machine.freed(first)
    expect(await containersOf(first)).toEqual([])
    const second = await machine.launch(shell("cat left 2> /dev/null || echo nothing"))
    await machine.freed(second)
    expect((await gateway.logOf(second)).toString()).toMatch(/nothing\n$/)
    await expectOwnersThings()
    stop()
    await exit
    await expectOwnersThings()
  })

  it("clears a run at once whose volume driver has ended with the power", async () => {
    const dataDir = await newDisk()
    const launch = `cut-${randomBytes(4).toString("hex")}`
    await mkdir(join(dataDir, "volumes"))
    // As the driver writes it before the first mount.
    const names = { data: { path: "bucket", isCheckpoint: false, isReadOnly: false, options: {} } }
    await writeFile(join(dataDir, "volumes", "volumes.json"), JSON.stringify(names))
    const labels = { [LAUNCH_LABEL]: launch }
    const container = await docker.createContainer({
      name: `berth-${launch}-volumes`,
      Image: own.image,
      Labels: labels,
    })
    await new VolumeDriver({ docker, launch, labels, dataDir, image: undefined, logger: silentLogger }).clear()
    await expect(container.inspect()).rejects.toMatchObject({ statusCode: 404 })
    expect(existsSync(join(dataDir, "volumes"))).toBe(false)
  })

  it("continues its job after its agent was killed", async () => {
    const machine = await ownMachine()
    const dataDir = await newDisk()
    const agent = startHostProcess("docker", dataDir, { token: await machine.token() })
    const launch = await machine.launch(shell(`echo began; ${WAIT}; echo done`))
    await logShows(launch, "began")
    const [before] = await containersOf(launch)
    await kill(agent)
    const { stop, exit } = await startHost({ runtime: "docker", dataDir })
    await until("it has the container again", async () => (await containersOf(launch))[0]?.Id === before?.Id)
    await pass(launch, "docker", dataDir)
    await machine.freed(launch)
    expect((await gateway.logOf(launch)).toString()).toBe("began\ndone\n")
    const state = await fixture.agentOf(launch)
    expect(state).toMatchObject({ retryCount: 0, finish: { reason: "Succeeded" } })
    stop()
    await exit
  })

  it("ends the container before its lease is over, without the gateway", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, dataDir, stop, exit } = await joinedHost({ runtime: "docker", clock, bootClock })
    const launch = await machine.launch(shell(`trap '' TERM; ${FOREVER}`, { terminationGraceSeconds: 600 }))
    await logShows(launch, "began")
    await machine.running(launch)
    await gateway.stop()
    const { lease } = JSON.parse(await readFile(join(dataDir, "host-state.json"), "utf8")) as { lease: { end: number } }
    clock.advance(lease.end - bootClock.seconds() - 31)
    await until("the container is removed", async () => (await containersOf(launch)).length === 0)
    await until("the run's folder is removed", () => !existsSync(join(dataDir, "run")))
    expect(bootClock.seconds()).toBeLessThan(lease.end)
    await gateway.restart()
    clock.advance(30)
    await machine.freed(launch)
    await expectOwnersThings()
    stop()
    await exit
  })

  it("is free only once the engine has removed the container", async () => {
    let isBroken = true
    const engine = await engineWith((req, res) => {
      if (req.method !== "DELETE" || !isBroken) return false
      res.writeHead(500, { "content-type": "application/json" }).end('{"message":"the test says no"}')
      return true
    })
    const { clock, bootClock } = hostClocks()
    const options = { runtime: "docker", dockerSocket: engine.socket, clock, bootClock } as const
    const { machine, stop, exit } = await joinedHost(options)
    const launch = await machine.launch(shell("echo done"))
    await until("it is unfit", async () => (await machine.host())?.unfit !== undefined)
    expect(await machine.host()).toMatchObject({
      running: launch.metadata.name,
      unfit: expect.stringContaining("the machine could not be cleaned after its job"),
    })
    isBroken = false
    clock.advance(30)
    await machine.freed(launch)
    await until("it is fit", async () => (await machine.host())?.unfit === undefined)
    expect(
      await docker.listContainers({ all: true, filters: { label: [`${LAUNCH_LABEL}=${launch.metadata.name}`] } }),
    ).toEqual([])
    stop()
    await exit
    await engine.close()
  })

  it("offers what its engine has", async () => {
    const engine = await engineOfSize(3072)
    const about = { name: "facts", runtime: "docker", dataDir: await newDisk(), logger: silentLogger } as const
    const facts = await readFacts({ ...about, dockerSocket: engine.socket })
    expect(facts).toMatchObject({ memoryGib: 3, cpu: (await docker.info()).NCPU })
    expect(facts.gpu).toBeUndefined()
    await engine.close()
  })

  it("offers the cards that nvidia-smi shows in a container", async () => {
    const name = `${own.container}:gpus`
    const script = "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559'\necho 'NVIDIA H100 80GB HBM3, 81559'\n"
    const dockerfile = `FROM ${images?.tools}\nCOPY nvidia-smi /bin/nvidia-smi\n`
    await buildImage(name, { Dockerfile: dockerfile, "nvidia-smi": script })
    const engine = await engineWithGpus()
    const about = { name: "facts", runtime: "docker", dataDir: await newDisk(), logger: silentLogger } as const
    const facts = await readFacts({ ...about, dockerSocket: engine.socket, gpuImage: name })
    expect(facts.gpu).toEqual({ model: "NVIDIA H100 80GB HBM3", count: 2, vramGib: 80 })
    expect(engine.created[0]?.HostConfig["DeviceRequests"]).toBeDefined()
    await engine.close()
    await docker.getImage(name).remove({ force: true, noprune: true })
  })
})
