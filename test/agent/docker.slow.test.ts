import { once } from "node:events"
import { readFile } from "node:fs/promises"
import { connect, createServer, type Socket } from "node:net"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import type { Run } from "../../src/core/apis/job.ts"
import type { Launch } from "../../src/core/apis/launch.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { until } from "../harness/eventually.ts"
import { noDisk, smallDisk } from "../small-disk.ts"
import { engineWith } from "./engines.ts"
import { containersOf, docker } from "./images.ts"
import {
  agentLongSuite,
  agentSuite,
  containers,
  fixture,
  gateway,
  images,
  kill,
  logShows,
  newDisk,
  pass,
  prepareAgents,
  runVm,
  shell,
  start,
  startProcess,
  WAIT,
} from "./suite.ts"

prepareAgents()

/** Starts a proxy to the real engine whose connections can be cut. */
async function breakableEngine() {
  const socket = join(await newDisk(), "docker.sock")
  const open = new Set<Socket>()
  const server = createServer((near) => {
    const far = connect("/var/run/docker.sock")
    for (const end of [near, far]) {
      open.add(end)
      end.on("error", () => end.destroy()).on("close", () => open.delete(end))
    }
    near.pipe(far).pipe(near)
  }).listen(socket)
  await once(server, "listening")
  const breakAll = (): void => {
    for (const end of open) end.destroy()
  }
  const close = (): void => {
    server.close()
    breakAll()
  }
  return { socket, breakAll, close }
}

/**
 * Starts a proxy to the real engine that answers each pull like an engine on a full disk
 * (https://docs.docker.com/reference/api/engine/version/v1.47/#tag/Image/operation/ImageCreate).
 */
async function engineOnFullDisk() {
  let pulls = 0
  const engine = await engineWith((req, res) => {
    if (req.method !== "POST" || req.url?.includes("/images/create") !== true) return false
    pulls++
    const message = "failed to register layer: write /layer: no space left on device"
    res.end(`${JSON.stringify({ errorDetail: { message }, error: message })}\n`)
    return true
  })
  return { ...engine, pulls: () => pulls }
}

containers.describe("an agent with the docker runtime", () => {
  agentSuite("docker")
  agentLongSuite("docker")
})

describe("an agent whose machine is at fault", () => {
  const offer: Launch["spec"]["offer"] = {
    ...{ cloud: "azure", region: "here", instanceType: "gpus", architecture: "amd64", provisioning: "onDemand" },
    ...{ cpu: 4, memoryGib: 16, hourlyPriceUsd: 1, minimumBilledSeconds: 60 },
    gpu: { model: "T4", count: 1, vramGib: 16 },
  }

  // The engine of this machine has no runtime for GPUs.
  containers.it("reports an engine without GPUs as the machine's failure, not the container's", async () => {
    const { finish } = await runVm("docker", shell("echo ran", { maxRetries: 5 }), { spec: { offer } })
    expect(finish).toMatchObject({ reason: "MachineFailed" })
    expect(finish?.message).toMatch(/could not select device driver/)
  })

  containers.it("gives a machine with accelerators of other makers no GPU", async () => {
    const gpu = { model: "AWS:Inferentia1", count: 1, vramGib: 8 }
    const { finish } = await runVm("docker", shell("echo ran"), { spec: { offer: { ...offer, gpu } } })
    expect(finish).toMatchObject({ reason: "Succeeded" })
  })

  containers.it.skipIf(noDisk !== "")(`says that the disk is full${noDisk}`, async () => {
    const disk = await smallDisk(16)
    try {
      const launch = await fixture.launch(shell(`echo began; ${WAIT}; exit 3`))
      const { exit } = await start(launch, { runtime: "docker", dataDir: disk.path })
      await logShows(launch, "began")
      await disk.fill()
      await pass(launch, "docker", disk.path)
      const { finish } = await exit
      expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode: 3 })
      expect(finish?.message).toMatch(/^exit code 3: the VM's disk of 1 GiB is full; request more by resources.disk$/)
    } finally {
      await disk.remove()
    }
  })
})

describe("an agent that is killed", () => {
  containers.it(
    "is followed by one that reports the last line, without a secret that was rotated meanwhile",
    async () => {
      const ref = { name: "rotated", namespace: fixture.namespace }
      const data = (value: string) => ({ token: Buffer.from(value).toString("base64") })
      const secret = { metadata: ref, type: "berth.dev/env", data: data("first-value") } as unknown as Secret
      await fixture.client.create(SECRETS, secret)
      const secretEnv = { TOKEN: { secret: "rotated", key: "token" } }
      const launch = await fixture.launch(shell(`echo began; ${WAIT}; echo "no $TOKEN"; exit 4`, { secretEnv }))
      const dataDir = await newDisk()
      const agent = await startProcess(launch, "docker", dataDir)
      await logShows(launch, "began")
      await kill(agent)
      await pass(launch, "docker", dataDir)
      await fixture.client.patch(SECRETS, ref, { merge: { data: data("second-value") } })
      const { exit } = await start(launch, { runtime: "docker", dataDir })
      expect((await exit).finish).toMatchObject({ reason: "ContainerFailed", exitCode: 4, lastLine: "no ***" })
      expect(await readFile(join(dataDir, "state.json"), "utf8")).not.toContain("first-value")
    },
  )

  containers.it("finds its running container again, with every byte, and reports once", async () => {
    // The first part is long enough for several agents to start and end in it. It ends after the last one started.
    const said = (from: number, to: number): string => `for i in $(seq ${from} ${to}); do echo line $i; sleep 0.1; done`
    const script = `${said(1, 40)}; ${WAIT}; ${said(41, 60)}; printf end`
    const launch = await fixture.launch(shell(script))
    const dataDir = await newDisk()
    for (const line of ["line 5\n", "line 20\n"]) {
      const agent = await startProcess(launch, "docker", dataDir)
      await logShows(launch, line)
      await kill(agent)
      expect((await containersOf(launch)).map(({ State }) => State)).toEqual(["running"])
    }
    const before = await fixture.agentOf(launch)
    const { exit } = await start(launch, { runtime: "docker", dataDir })
    await logShows(launch, "line 40\n")
    await pass(launch, "docker", dataDir)
    expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
    const lines = Array.from({ length: 60 }, (_, index) => `line ${index + 1}\n`).join("")
    expect((await gateway.logOf(launch)).toString()).toBe(`${lines}end`)
    const after = await fixture.agentOf(launch)
    expect(after).toMatchObject({ retryCount: 0, startTime: before?.startTime, signingKey: before?.signingKey })
    expect(await containersOf(launch)).toEqual([])
  })

  containers.it("catches up with a container that ends in the middle of a lot of output", async () => {
    const launch = await fixture.launch(shell("echo began; sleep 3; seq 1 100000; printf end"))
    const dataDir = await newDisk()
    const agent = await startProcess(launch, "docker", dataDir)
    await logShows(launch, "began")
    await kill(agent)
    const { exit } = await start(launch, { runtime: "docker", dataDir })
    expect((await exit).finish?.reason).toBe("Succeeded")
    const numbers = Array.from({ length: 100_000 }, (_, index) => `${index + 1}\n`).join("")
    expect((await gateway.logOf(launch)).toString() === `began\n${numbers}end`).toBe(true)
  })

  containers.it("reports a container that ended while no agent was there", async () => {
    const launch = await fixture.launch(shell(`echo began; ${WAIT}; printf unseen; exit 5`))
    const dataDir = await newDisk()
    const agent = await startProcess(launch, "docker", dataDir)
    await logShows(launch, "began")
    await kill(agent)
    await pass(launch, "docker", dataDir)
    await until("the container ends", async () => (await containersOf(launch))[0]?.State === "exited")
    const { exit } = await start(launch, { runtime: "docker", dataDir })
    expect((await exit).finish).toMatchObject({ reason: "ContainerFailed", exitCode: 5 })
    expect((await gateway.logOf(launch)).toString()).toBe("began\nunseen")
  })

  containers.it("counts a container that a user removed as a failed attempt", async () => {
    const launch = await fixture.launch(shell("echo began; sleep 60"))
    const { exit } = await start(launch, { runtime: "docker" })
    await logShows(launch, "began")
    for (const { Id } of await containersOf(launch)) await docker.getContainer(Id).remove({ force: true })
    const message = "exit code 137 (SIGKILL): the container was removed, but not by Berth"
    expect((await exit).finish).toMatchObject({ reason: "ContainerFailed", exitCode: 137, message })
  })
})

containers.describe("the docker runtime", () => {
  it("loses no output when all connections to the engine break", async () => {
    const engine = await breakableEngine()
    try {
      const launch = await fixture.launch(shell("echo began; sleep 2; seq 1 1000; printf end"))
      const { exit } = await start(launch, { runtime: "docker", dockerSocket: engine.socket })
      await logShows(launch, "began")
      engine.breakAll()
      expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
      const numbers = Array.from({ length: 1000 }, (_, index) => `${index + 1}\n`).join("")
      expect((await gateway.logOf(launch)).toString()).toBe(`began\n${numbers}end`)
    } finally {
      engine.close()
    }
  })

  it("keeps the image's entrypoint and command unless the job replaces them", async () => {
    const image = images?.tools ?? ""
    const said = async (run: Partial<Run>): Promise<string> => (await runVm("docker", { image, ...run })).log
    expect(await said({})).toBe("entrypoint cmd\n")
    expect(await said({ args: ["args"] })).toBe("entrypoint args\n")
    expect(await said({ command: ["/bin/echo", "command"] })).toBe("command\n")
    expect(await said({ command: ["/bin/echo", "command"], args: ["args"] })).toBe("command args\n")
    expect(await said({ command: [], args: [] })).toBe("entrypoint cmd\n")
  })

  it("reports why an image can't be pulled", async () => {
    const image = "127.0.0.1:1/no/such:image"
    const { finish, log } = await runVm("docker", { image }, { pullPatienceSeconds: 1 })
    expect(finish?.reason).toBe("RegistryUnavailable")
    expect(finish?.message).toMatch(
      /^image 127\.0\.0\.1:1\/no\/such:image can't be pulled: .*connection refused; no progress for \d+ s in [2-9] tries$/,
    )
    expect(finish?.message).not.toContain("HTTP code")
    expect(log).toBe("")
  })

  it("reports a disk that is too small for an image, without another pull", async () => {
    const launch = await fixture.launch({ image: "registry.example/large:1" })
    const engine = await engineOnFullDisk()
    try {
      const { exit } = await start(launch, { runtime: "docker", dockerSocket: engine.socket })
      const { finish } = await exit
      expect(finish?.reason).toBe("ImagePullFailed")
      expect(finish?.message).toMatch(
        /image .*large:1 can't be pulled: the VM's disk of .* is full; request more by resources.disk: .*no space left on device/,
      )
      expect(engine.pulls()).toBe(1)
    } finally {
      engine.close()
    }
  })

  it("lets no job use more memory than its machine has, and reports OOMKilled", async () => {
    const { offer } = (await fixture.launch({})).spec
    const spec = { offer: { ...offer, memoryGib: 1 / 32 } }
    const run = shell("exec /bin/busybox dd if=/dev/zero of=/dev/null bs=200M count=1")
    const messages: (string | undefined)[] = []
    let cause: string | undefined
    // On a busy machine the engine misses some kills (https://github.com/containerd/containerd/issues/8893). The kernel's count
    // is of the whole machine, so on a shared host it can't say whose kill it was.
    for (let runs = 0; runs < 3 && !messages.at(-1)?.includes("OOMKilled"); runs++) {
      const { finish } = await runVm("docker", run, { spec })
      expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode: 137 })
      messages.push(finish?.message)
      cause = finish?.cause
    }
    expect(cause).toBe("OutOfMemory")
    expect(messages.at(-1)).toMatch(
      /^exit code 137 \(SIGKILL\): OOMKilled: .* exceeded its 32 MiB of memory; raise resources\.memory$/,
    )
  })

  it("lets no job on a shared host reach the port of another job", async () => {
    const server = await fixture.launch(shell("echo began; exec /bin/busybox nc -l -p 8000 -e /bin/echo reached"))
    const { exit, shutDown } = await start(server, { runtime: "docker" })
    await logShows(server, "began")
    const [found] = await containersOf(server)
    const { NetworkSettings } = await docker.getContainer(found?.Id ?? "").inspect()
    const { IPAddress = "" } = NetworkSettings.Networks["berth-jobs"] ?? {}
    expect(IPAddress).toMatch(/^\d/)
    const { log } = await runVm("docker", shell(`/bin/busybox nc -w 3 ${IPAddress} 8000 || echo refused`))
    // Output and errors of a container come in any order.
    expect(log).toContain("refused\n")
    expect(log).not.toContain("reached")
    shutDown()
    await exit
  })
})
