import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type AgentOptions, runAgent } from "../../src/agent/main.ts"
import type { VmCloud } from "../../src/clouds/definitions.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import type { Run } from "../../src/core/apis/job.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { MetadataService } from "./metadata-service.ts"

const fixture = launchFixture("preemption")
const disks: string[] = []
const services: MetadataService[] = []
let gateway: TestGateway

beforeAll(async () => {
  gateway = await startGateway(fixture)
})
afterAll(async () => {
  for (const service of services) service.stop()
  await gateway.close()
  await Promise.all(disks.map((disk) => rm(disk, { recursive: true, force: true })))
})

const ENDS_AT_ONCE = "trap 'echo got SIGTERM; exit 5' TERM"
const SAVES_FOR_LONG = "trap 'sleep 2; echo saved; exit 5' TERM"
const NEVER_ENDS = "trap 'echo stopping' TERM"

/** Default grace time of these agents, seconds: shorter than what a container needs that saves for long. */
const SHORT_GRACE = { stopGraceSeconds: 1 }

async function spotVm(
  cloud: VmCloud,
  metadataUrl: string,
  {
    trap = ENDS_AT_ONCE,
    run = {},
    provisioning = "spot",
    ...more
  }: Partial<AgentOptions> & { trap?: string; run?: Partial<Run>; provisioning?: "spot" | "onDemand" } = {},
) {
  const dataDir = await mkdtemp(join(tmpdir(), "berth-preemption-"))
  disks.push(dataDir)
  const script = `${trap}; echo ready; while true; do sleep 0.1; done`
  const found = await fixture.launch({ image: "none", command: ["sh", "-c", script], ...run })
  const offer = { ...found.spec.offer, cloud, provisioning }
  const launch = { ...found, spec: { ...found.spec, offer } }
  const options = { dataDir, metadataUrl, userData: gateway.userData(launch), runtime: "process" as const }
  const exit = runAgent({ ...options, logger: silentLogger, ...more })
  exit.catch(() => undefined)
  await until("it runs", async () => (await gateway.logOf(launch)).includes("ready"))
  return { launch, exit }
}

describe.each<VmCloud>(["aws", "gcp", "azure"])("a spot VM of %s that is taken back", (cloud) => {
  it("stops its container in order and reports the preemption after the cloud's notice", async () => {
    const service = new MetadataService()
    const { launch, exit } = await spotVm(cloud, await service.start())
    try {
      service.failing = true
      service.forgetTokens()
      await until("it still runs", async () => (await fixture.agentOf(launch))?.startTime !== undefined)
      service.failing = false
      service.preempted = true
      expect((await exit).finish).toMatchObject({ reason: "Preempted", exitCode: 5 })
      const agent = await fixture.agentOf(launch)
      expect(agent?.finish?.reason).toBe("Preempted")
      expect(Date.parse(agent?.preemptionNotice ?? "")).toBeGreaterThan(Date.parse(agent?.startTime ?? "") - 1000)
      expect((await gateway.logOf(launch)).toString()).toBe("ready\ngot SIGTERM\n")
      expect(service.breaches).toEqual([])
    } finally {
      service.stop()
    }
  })
})

describe("a VM of Nebius that is shut down", () => {
  it.each([
    ["spot", { reason: "Preempted", exitCode: 5 }],
    ["onDemand", { reason: "Stopped", exitCode: 5 }],
  ] as const)("has a container that stops in order; %s", async (provisioning, finish) => {
    // The metadata service has no notice of it.
    const stopping = new AbortController()
    const { launch, exit } = await spotVm("nebius", "http://127.0.0.1:1", { provisioning, signal: stopping.signal })
    stopping.abort()
    expect((await exit).finish).toMatchObject(finish)
    const agent = await fixture.agentOf(launch)
    expect(agent?.finish?.reason).toBe(finish.reason)
    expect(agent?.preemptionNotice !== undefined).toBe(finish.reason === "Preempted")
    expect((await gateway.logOf(launch)).toString()).toBe("ready\ngot SIGTERM\n")
  })
})

describe.concurrent("the grace time of a job", () => {
  /** Starts a VM of a cloud that can preempt it. */
  async function preemptible(cloud: VmCloud, options: Parameters<typeof spotVm>[2]) {
    const service = new MetadataService()
    services.push(service)
    const vm = await spotVm(cloud, await service.start(), options)
    const preempt = (): void => {
      service.preempted = true
    }
    return { ...vm, preempt }
  }

  it("lasts its terminationGraceSeconds after a preemption notice", async () => {
    const run = { terminationGraceSeconds: 60 }
    const { launch, exit, preempt } = await preemptible("aws", { trap: SAVES_FOR_LONG, run, ...SHORT_GRACE })
    preempt()
    expect((await exit).finish).toMatchObject({ reason: "Preempted", exitCode: 5 })
    expect((await gateway.logOf(launch)).toString()).toBe("ready\nsaved\n")
  })

  it("ends before the cloud ends the VM, however long it is", async () => {
    const options = { trap: NEVER_ENDS, run: { terminationGraceSeconds: 3600 }, clock: fastClock(10) }
    const { exit, preempt } = await preemptible("gcp", options)
    preempt()
    expect((await exit).finish).toMatchObject({ reason: "Preempted", exitCode: 137 })
  })

  it("ends before the cloud ends the VM, also if the job is being stopped for its timeout", async () => {
    const run = { terminationGraceSeconds: 3600, timeoutSeconds: 3 }
    const { launch, exit, preempt } = await preemptible("azure", { trap: NEVER_ENDS, run, clock: fastClock(10) })
    await until("it gets SIGTERM", async () => (await gateway.logOf(launch)).includes("stopping"))
    preempt()
    expect((await exit).finish).toMatchObject({ reason: "DeadlineExceeded", exitCode: 137 })
    expect((await fixture.agentOf(launch))?.preemptionNotice).toBeDefined()
  })

  it("lasts its terminationGraceSeconds after the timeout, and when the job needs the VM no longer", async () => {
    const run = { terminationGraceSeconds: 60 }
    const timed = await preemptible("aws", {
      trap: SAVES_FOR_LONG,
      run: { ...run, timeoutSeconds: 2 },
      ...SHORT_GRACE,
    })
    expect((await timed.exit).finish).toMatchObject({ reason: "DeadlineExceeded", exitCode: 5 })
    const ended = await preemptible("aws", { trap: SAVES_FOR_LONG, run, ...SHORT_GRACE })
    await fixture.end(ended.launch)
    expect((await ended.exit).finish).toMatchObject({ reason: "Stopped", exitCode: 5 })
  })

  it("is the agent's own for a job that sets none", async () => {
    const { exit, preempt } = await preemptible("aws", { trap: NEVER_ENDS, ...SHORT_GRACE })
    preempt()
    expect((await exit).finish).toMatchObject({ reason: "Preempted", exitCode: 137 })
  })

  it("is cut when the VM shuts down", async () => {
    const power = new AbortController()
    const run = { terminationGraceSeconds: 3600 }
    const options = { trap: NEVER_ENDS, run, signal: power.signal, clock: fastClock(10) }
    const { exit } = await preemptible("aws", options)
    power.abort()
    expect((await exit).finish).toMatchObject({ reason: "Stopped", exitCode: 137 })
  })
})

/** Returns the system's clock with timers that end so many times earlier. */
function fastClock(times: number): Clock {
  return {
    ...systemClock,
    monotonic: () => systemClock.monotonic() * times,
    setTimer: (seconds, callback) => systemClock.setTimer(seconds / times, callback),
  }
}

describe("an on-demand VM", () => {
  it("gets no spotCloud in its user data, so its agent asks no metadata service for preemptions", async () => {
    const launch = await fixture.launch({ image: "none", command: ["true"] })
    const aws = { ...launch, spec: { ...launch.spec, offer: { ...launch.spec.offer, cloud: "aws" } } }
    expect(JSON.parse(gateway.userData(aws))).not.toHaveProperty("spotCloud")
  })
})
