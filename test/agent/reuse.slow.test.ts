import { readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import { beforeEach, describe, expect, it } from "vitest"
import type { AgentOptions } from "../../src/agent/main.ts"
import { processIdentity } from "../../src/agent/processes.ts"
import type { Run } from "../../src/core/apis/job.ts"
import type { Launch } from "../../src/core/apis/launch.ts"
import { until } from "../harness/eventually.ts"
import { noDisk, smallDisk } from "../small-disk.ts"
import { reusable } from "./handover.ts"
import { MetadataService } from "./metadata-service.ts"
import {
  fixture,
  gateway,
  handover,
  kill,
  logShows,
  newDisk,
  prepareAgents,
  shell,
  start,
  startProcess,
} from "./suite.ts"

prepareAgents()

beforeEach(() => {
  handover.asked.length = 0
  handover.refusal = undefined
  handover.onAsk = () => undefined
})

/** Starts a VM whose job lets it wait for another one. */
async function warmVm(script: string, { run = {}, spec = {}, idleSeconds, ...options }: WarmOptions = {}) {
  const launch = await fixture.launch(shell(script, { ...reusable(idleSeconds), ...run }), spec)
  return { launch, ...(await start(launch, { runtime: "process", ...options })) }
}

type WarmOptions = Partial<AgentOptions> & { run?: Partial<Run>; spec?: Partial<Launch["spec"]>; idleSeconds?: number }

async function jsonIn(dataDir: string, name: string): Promise<Record<string, unknown>> {
  return JSON.parse(await readFile(join(dataDir, name), "utf8")) as Record<string, unknown>
}

describe("a VM whose job allows its reuse", () => {
  it("runs one Launch after another, each with keys, state and log of its own", async () => {
    const first = await warmVm("echo first")
    await handover.idle(first.launch)
    const second = await handover.successor(first.launch, shell("echo second", reusable()))
    await handover.idle(second)
    const third = await handover.successor(second, shell("echo third; exit 3"))
    expect(await first.exit).toMatchObject({
      ...{ launch: third.metadata.name, cause: "finished" },
      finish: { reason: "ContainerFailed", exitCode: 3 },
    })
    const launches = [first.launch, second, third]
    expect(await Promise.all(launches.map(async (launch) => (await gateway.logOf(launch)).toString()))).toEqual([
      "first\n",
      "second\n",
      "third\n",
    ])
    const agents = await Promise.all(launches.map((launch) => fixture.agentOf(launch)))
    expect(agents.map((agent) => agent?.finish?.reason)).toEqual(["Succeeded", "Succeeded", "ContainerFailed"])
    for (const key of ["signingKey", "encryptionKey"] as const) {
      expect(new Set(agents.map((agent) => agent?.[key])).size).toBe(3)
    }
    expect(agents.map((agent) => agent?.conflictTime)).toEqual([undefined, undefined, undefined])
    for (const name of ["keys.json", "state.json"]) {
      expect(await jsonIn(first.dataDir, name)).toMatchObject({ launch: third.metadata.name })
    }
  })

  it("has only the agent's own files on its disk while it waits, which only the agent's user can read", async () => {
    const { launch, dataDir, exit, shutDown } = await warmVm("echo said; touch left")
    await handover.idle(launch)
    const names = (await readdir(dataDir)).filter((name) => !name.startsWith("lock."))
    expect(names.sort()).toEqual(["keys.json", "state.json"])
    for (const name of names) expect((await stat(join(dataDir, name))).mode & 0o777).toBe(0o600)
    const state = await jsonIn(dataDir, "state.json")
    expect(state["finish"]).toEqual({ reason: "Succeeded", time: expect.any(String) })
    expect(state).not.toHaveProperty("limits")
    shutDown()
    await exit
  })

  it("powers off after its time, and says so", async () => {
    const { launch, exit } = await warmVm("true", { idleSeconds: 1 })
    expect(await exit).toMatchObject({ cause: "finished", why: "no job within 1 s" })
    expect(handover.of(launch)).toEqual([{}, { isLeaving: true }])
  })

  it("runs a job that was bound just before it left", async () => {
    const { launch, exit } = await warmVm("true", { idleSeconds: 1 })
    let next: Awaited<ReturnType<typeof handover.successor>> | undefined
    handover.onAsk = async ({ isLeaving }) => {
      if (isLeaving === true) next = await handover.successor(launch, shell("echo late"))
    }
    expect(await exit).toMatchObject({ launch: next?.metadata.name, finish: { reason: "Succeeded" } })
  })

  it("powers off at once when Berth needs it no longer", async () => {
    const { launch, exit } = await warmVm("true")
    handover.refusal = { isAwaited: false }
    expect(await exit).toMatchObject({ cause: "finished", why: "Berth has no other job for this VM" })
    expect(handover.of(launch)).toEqual([{}])
  })

  it("leaves at once when it is shut down, without a job", async () => {
    const { launch, exit, shutDown } = await warmVm("true")
    await handover.idle(launch)
    shutDown()
    expect(await exit).toMatchObject({
      cause: "finished",
      why: "the VM was shut down",
      finish: { reason: "Succeeded" },
    })
    expect(handover.of(launch)).toEqual([{}, { isLeaving: true }])
  })

  it("leaves at once when the cloud takes it back", async () => {
    const service = new MetadataService()
    const { spec } = await fixture.launch({})
    const offer = { ...spec.offer, cloud: "aws" as const, provisioning: "spot" as const }
    const { launch, exit } = await warmVm("true", { metadataUrl: await service.start(), spec: { offer } })
    try {
      await handover.idle(launch)
      service.preempted = true
      expect(await exit).toMatchObject({ cause: "finished", why: "the cloud takes this VM back" })
      expect(handover.of(launch)).toEqual([{}, { isLeaving: true }])
      expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Succeeded")
    } finally {
      service.stop()
    }
  })

  it("keeps on asking during an outage of the gateway", async () => {
    const { launch, exit } = await warmVm("true")
    await handover.idle(launch)
    await gateway.stop()
    const next = await handover.successor(launch, shell("echo after"))
    await gateway.restart()
    expect(await exit).toMatchObject({ launch: next.metadata.name, finish: { reason: "Succeeded" } })
  })

  it.each<[string, Partial<Run>, string]>([
    ["a job that was stopped", shell("echo began; sleep 600", reusable()), "a VM is not reused after Stopped"],
    [
      "a job whose volumes can't be mounted",
      shell("true", { ...reusable(), volumes: { v: { bucket: "b", mountPath: "/b" } } }),
      "a VM is not reused after VolumeMountFailed",
    ],
  ])("powers off after %s", async (_what, run, why) => {
    const launch = await fixture.launch(run)
    const { exit } = await start(launch, { runtime: "process" })
    if (run.volumes === undefined) {
      await logShows(launch, "began")
      await fixture.end(launch)
    }
    const ended = await exit
    if (ended.cause === "finished") expect(ended.why).toBe(why)
    expect(handover.asked).toEqual([])
  })

  it("never asks for another job if its own has no reuse", async () => {
    const launch = await fixture.launch(shell("true"))
    const { exit } = await start(launch, { runtime: "process" })
    expect((await exit).why).toBeUndefined()
    expect(handover.asked).toEqual([])
  })

  it("gives the next job its own lifetime", async () => {
    const { launch, exit } = await warmVm("true", { spec: { lifetimeSeconds: 60 } })
    const run = shell("sleep 600", { terminationGraceSeconds: 1 })
    const next = await handover.successor(launch, run, { lifetimeSeconds: 2 })
    const why = "the VM reached the end of its lifetime of 2 s"
    expect(await exit).toMatchObject({
      launch: next.metadata.name,
      finish: { reason: "DeadlineExceeded", message: why },
    })
  })

  it.skipIf(noDisk !== "")(`is unfit for another job if its disk is more than half full${noDisk}`, async () => {
    const disk = await smallDisk(16)
    try {
      await disk.fill()
      await disk.empty()
      const { spec } = await fixture.launch({})
      const offer = { ...spec.offer, cloud: "aws" as const }
      const dataDir = join(disk.path, "agent")
      const script = `dd if=/dev/zero of=${disk.path}/left bs=1M count=9 2> /dev/null`
      const { launch, exit } = await warmVm(script, { dataDir, spec: { offer } })
      const why = "the VM's disk of 1 GiB is 56 % full without its job; another job gets it up to 50 %"
      expect((await exit).why).toMatch(
        /^the VM's disk of 1 GiB is 5\d % full without its job; another job gets it up to 50 %$/,
      )
      expect(handover.of(launch)).toEqual([{ unfit: expect.stringContaining(why.slice(0, 24)) }])
    } finally {
      await disk.remove()
    }
  })
})

describe("an agent that is killed on an idle VM", () => {
  it("is followed by one that waits for the rest of the time, and runs the next job", async () => {
    const launch = await fixture.launch(shell("echo once", reusable(60)))
    const dataDir = await newDisk()
    const agent = await startProcess(launch, "process", dataDir)
    await handover.idle(launch)
    const { idleTime } = await jsonIn(dataDir, "state.json")
    await kill(agent)
    const again = await start(launch, { runtime: "process", dataDir })
    await until("it asks again", () => handover.of(launch).length > 1)
    expect((await jsonIn(dataDir, "state.json"))["idleTime"]).toBe(idleTime)
    const next = await handover.successor(launch, shell("echo next"))
    expect(await again.exit).toMatchObject({ launch: next.metadata.name, finish: { reason: "Succeeded" } })
    expect((await gateway.logOf(launch)).toString()).toBe("once\n")
  })

  it("is followed by one that leaves if the time is over", async () => {
    const launch = await fixture.launch(shell("true", reusable(2)))
    const dataDir = await newDisk()
    const agent = await startProcess(launch, "process", dataDir)
    await handover.idle(launch)
    await kill(agent)
    const { idleTime } = await jsonIn(dataDir, "state.json")
    await until("the time is over", () => Date.now() > Date.parse(String(idleTime)) + 2000)
    const { exit } = await start(launch, { runtime: "process", dataDir })
    expect((await exit).why).toBe("no job within 2 s")
    expect(handover.of(launch)).toEqual([{}, { isLeaving: true }])
  })
})

describe("a VM without a container engine", () => {
  it("ends a daemon of its job that has left the process group", async () => {
    const daemon = "setsid sh -c 'echo $$; exec sleep 900 > /dev/null 2>&1' &"
    const { launch, exit, shutDown } = await warmVm(`${daemon} sleep 0.5`)
    await handover.idle(launch)
    const pid = Number((await gateway.logOf(launch)).toString())
    expect(pid).toBeGreaterThan(1)
    expect(processIdentity(pid)).toBeUndefined()
    shutDown()
    await exit
  })
})
