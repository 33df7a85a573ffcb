import { once } from "node:events"
import { createServer } from "node:net"
import { afterAll, beforeAll, expect, it } from "vitest"
import { engineWith, engineWithGpus } from "./engines.ts"
import { buildGpuImage, helperOf, TWO_GPUS, useShown } from "./gpus.ts"
import { bridgeAddress, containersOf, docker } from "./images.ts"
import { containers, fixture, images, logShows, pass, prepareAgents, runVm, shell, start, WAIT } from "./suite.ts"

prepareAgents()

/** Samples that are short enough for a test. */
const SAMPLED = { sampleSeconds: 0.25 }

/** Shell command that uses one vCPU for at least 0.1 s. */
const WORK = "i=0; while [ $i -lt 150000 ]; do i=$((i + 1)); done"

const MIB = 1024 * 1024

/** Part by which a measurement may differ from what its container is known to use. */
const TOLERANCE = 0.1

function expectNear(measured: number | undefined, known: number): void {
  expect(measured).toBeGreaterThanOrEqual(known * (1 - TOLERANCE))
  expect(measured).toBeLessThanOrEqual(known * (1 + TOLERANCE))
}

let gpuImage = ""

containers.describe("an agent that measures", () => {
  beforeAll(async () => {
    gpuImage = await buildGpuImage(images?.tools ?? "")
  })
  afterAll(async () => {
    await docker.getImage(gpuImage).remove({ force: true, noprune: true })
  })

  it.each([
    { what: "one processor", burner: "work" },
    { what: "one processor in bursts that are shorter than a sample", burner: "work; sleep 0.6; work; sleep 0.6" },
    { what: "two processors", burner: "work & work; wait" },
  ])("finds the use of $what within 10 %", async ({ burner }) => {
    // The kernel's own counters of the shell's processes, in clock ticks, and its uptime.
    const script = [
      `work() { ${WORK}; }`,
      "begin=$(busybox awk '{print $1}' /proc/uptime)",
      `for round in 1 2 3 4 5 6 7 8 9 10; do ${burner}; done`,
      "end=$(busybox awk '{print $1}' /proc/uptime)",
      "busybox awk -v b=$begin -v e=$end '{print \"used\", ($14 + $15 + $16 + $17) / 100 / (e - b)}' /proc/$$/stat",
    ]
    const { exit, log } = await runVm("docker", shell(script.join("\n")), SAMPLED)
    const known = Number(/used (\S+)/.exec(log)?.[1])
    expect(known).toBeGreaterThan(0)
    expectNear(exit.finish?.usage?.cpuMean, known)
  })

  it("finds 200 MiB of memory within 10 %, without the page cache of 200 MiB beside them", async () => {
    const file = `busybox head -c ${200 * MIB} /dev/zero > /file; cat /file > /dev/null`
    const holder = `(busybox head -c ${200 * MIB} /dev/zero; sleep 3) | busybox tail -c ${200 * MIB} > /dev/null`
    const { exit } = await runVm("docker", shell(`${file}; ${holder}`), SAMPLED)
    expectNear(exit.finish?.usage?.memoryPeakMib, 200)
  })

  it("finds what a container sends and receives within 10 %", async () => {
    const sink = createServer((socket) => {
      socket.on("error", () => undefined).on("end", () => socket.end(Buffer.alloc(100 * MIB)))
      socket.resume()
    }).listen(0, "0.0.0.0")
    await once(sink, "listening")
    try {
      const { port } = sink.address() as { port: number }
      const send = `busybox head -c ${200 * MIB} /dev/zero | busybox nc ${await bridgeAddress()} ${port} | busybox wc -c`
      const { exit, log } = await runVm("docker", shell(`sleep 1; ${send}; sleep 1`), SAMPLED)
      expect(log.trim()).toBe(String(100 * MIB))
      expectNear(exit.finish?.usage?.sentGib, 200 / 1024)
      expectNear(exit.finish?.usage?.receivedGib, 100 / 1024)
    } finally {
      sink.close()
    }
  })

  it("does not end one that works in bursts", async () => {
    const bursts = `for burst in 1 2 3 4 5 6 7 8; do ${WORK}; sleep 0.7; done; echo done`
    // Some engines answer once a second. In such a sample, a short burst on a busy machine is less than 5 %.
    const run = shell(bursts, { idleLimit: { cpuPercent: 1 } })
    const { exit, log } = await runVm("docker", run, { ...SAMPLED, idleSeconds: 4 })
    expect(exit.finish?.reason).toBe("Succeeded")
    expect(log).toBe("done\n")
  })

  it("starts its helper for GPUs again after the helper's death, and the container continues", async () => {
    const engine = await engineWithGpus()
    try {
      const launch = await fixture.launch(shell(`echo began; ${WAIT}`), { offer: TWO_GPUS })
      const options = { runtime: "docker", dockerSocket: engine.socket, gpuImage, ...SAMPLED } as const
      const { exit, dataDir } = await start(launch, options)
      await logShows(launch, "began")
      const first = await helperOf(launch)
      await docker.getContainer(first).kill()
      await useShown(await helperOf(launch, first))
      await pass(launch, "docker", dataDir)
      expect((await exit).finish).toMatchObject({ reason: "Succeeded", usage: { gpuMean: 60, vramPeakMib: 3000 } })
      expect(await containersOf(launch)).toEqual([])
    } finally {
      await engine.close()
    }
  })

  it("runs a container to its end with an engine that rejects measurements", async () => {
    const engine = await engineWith((req, res) => {
      if (req.url?.includes("/stats") !== true) return false
      res.writeHead(500).end("{}")
      return true
    })
    try {
      const run = shell("sleep 2; echo done", { idleLimit: {} })
      const { exit, log } = await runVm("docker", run, { dockerSocket: engine.socket, ...SAMPLED, idleSeconds: 1 })
      expect(exit.finish?.reason).toBe("Succeeded")
      expect(exit.finish?.usage).toBeUndefined()
      expect(log).toBe("done\n")
    } finally {
      await engine.close()
    }
  })
})
