import { once } from "node:events"
import { existsSync } from "node:fs"
import { readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { systemBootClock } from "../../src/agent/host/lease.ts"
import { processIdentity } from "../../src/agent/processes.ts"
import { AGENT_VERSION } from "../../src/agent/session.ts"
import { REFUSED_EXIT_CODE } from "../../src/core/machines/commands.ts"
import { BEAT_SECONDS } from "../../src/core/machines/machine.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { until } from "../harness/eventually.ts"
import { filesOf, hostClocks, joinedHost, ownMachine, prepareHosts, startHost, startHostProcess } from "./hosts.ts"
import { fixture, gateway, kill, logShows, newDisk, prepareAgents, shell } from "./suite.ts"

prepareAgents()
prepareHosts()

const FOREVER = "echo began; while true; do sleep 0.1; done"

async function jsonIn(dataDir: string, name: string): Promise<Record<string, unknown>> {
  return JSON.parse(await readFile(join(dataDir, name), "utf8")) as Record<string, unknown>
}

/** Starts a host, without an engine, that joins as a new machine. */
function joined(options: Partial<Parameters<typeof joinedHost>[0]> = {}) {
  return joinedHost({ runtime: "process", ...options })
}

describe("a host that joins as a machine", () => {
  it("runs one job after another, each with keys, state and log of its own", async () => {
    const { machine, dataDir, exit, stop } = await joined()
    const first = await machine.launch(shell("echo first; touch left"))
    await machine.freed(first)
    expect(await filesOf({ dataDir })).toEqual(["host-state.json", "host.json"])
    const second = await machine.launch(shell("echo second; ls; exit 3"))
    await machine.freed(second)
    const launches = [first, second]
    const logs = await Promise.all(launches.map(async (launch) => (await gateway.logOf(launch)).toString()))
    expect(logs).toEqual(["first\n", "second\n"])
    const agents = await Promise.all(launches.map((launch) => fixture.agentOf(launch)))
    expect(agents.map((agent) => agent?.finish?.reason)).toEqual(["Succeeded", "ContainerFailed"])
    expect(new Set(agents.map((agent) => agent?.signingKey)).size).toBe(2)
    expect(agents.map((agent) => agent?.signingKey)).not.toContain((await machine.host())?.signingKey)
    stop()
    expect(await exit).toEqual({ cause: "stopped" })
  })

  it("says what it has, which run it has, and that its agent was stopped", async () => {
    const warnings: string[] = []
    const logger = createLogger({ level: "warn", name: "host", destination: { write: (line) => warnings.push(line) } })
    const { machine, stop, exit } = await joined({ logger })
    const launch = await machine.launch(shell("echo began; sleep 1"))
    await logShows(launch, "began")
    const before = await machine.host()
    expect(before).toMatchObject({ running: launch.metadata.name, version: AGENT_VERSION })
    expect(before?.facts.cpu).toBeGreaterThan(0)
    expect(before?.facts.memoryGib).toBeGreaterThan(0)
    await machine.freed(launch)
    expect((await machine.host())?.unfit).toBeUndefined()
    stop()
    await exit
    expect(await machine.host()).toMatchObject({
      ...{ freed: launch.metadata.name, unfit: "the machine's agent was stopped: start it again" },
    })
    // The gateway has answered the last message: it was not held.
    expect(warnings).toEqual([])
  })

  it("keeps its keys where only its user can read them, and not the join token", async () => {
    const { machine, dataDir, stop, exit } = await joined()
    await machine.waits()
    for (const name of await filesOf({ dataDir })) {
      expect((await stat(join(dataDir, name))).mode & 0o777).toBe(0o600)
      expect(await readFile(join(dataDir, name), "utf8")).not.toContain("bmj1.")
    }
    stop()
    await exit
  })

  it("repeats its join with the same keys when an answer is lost", async () => {
    const machine = await ownMachine()
    machine.lostAnswers = 1
    const { stop, exit } = await startHost({ runtime: "process", token: await machine.token() })
    await machine.waits()
    stop()
    expect(await exit).toEqual({ cause: "stopped" })
  })

  it("needs no token after a restart, and ignores the one that it has used", async () => {
    const machine = await ownMachine()
    const token = await machine.token()
    const first = await startHost({ runtime: "process", token })
    await machine.waits()
    const keys = (await machine.host())?.signingKey
    first.stop()
    await first.exit
    for (const options of [{}, { token }]) {
      expect((await machine.host())?.unfit).toBeDefined()
      const again = await startHost({ runtime: "process", dataDir: first.dataDir, ...options })
      await until("it waits again", async () => (await machine.host())?.unfit === undefined)
      again.stop()
      await again.exit
    }
    expect((await machine.host())?.signingKey).toBe(keys)
  })

  it("takes new keys with a later token", async () => {
    const { machine, dataDir, stop, exit } = await joined()
    await machine.waits()
    stop()
    await exit
    const keys = (await machine.host())?.signingKey
    const again = await startHost({ runtime: "process", dataDir, token: await machine.token() })
    await machine.waits()
    expect((await machine.host())?.joinNumber).toBe(2)
    expect((await machine.host())?.signingKey).not.toBe(keys)
    again.stop()
    await again.exit
  })

  it("needs a token on a new disk", async () => {
    const { exit } = await startHost({ runtime: "process" })
    await expect(exit).rejects.toThrow("this host has not joined as a machine yet: give it a join token")
  })

  it("ends with a message for its owner if the token was used already", async () => {
    const { machine, stop, exit } = await joined()
    await machine.waits()
    const token = await machine.token()
    const other = await startHost({ runtime: "process", token })
    await until("the other host has joined", async () => (await machine.host())?.joinNumber === 2)
    const dataDir = await newDisk()
    const child = startHostProcess("process", dataDir, { token })
    expect(await once(child, "exit")).toEqual([REFUSED_EXIT_CODE, null])
    expect(await child.said).toContain(
      `Berth rejects this host as machine ${machine.name}. The join token was used, or a later one was made.`,
    )
    expect(await filesOf({ dataDir })).toEqual([])
    other.stop()
    await other.exit
    stop()
    // Its place is the other one's.
    expect((await exit).cause).toBe("refused")
  })

  it("ends with a message for its owner if the token has expired", async () => {
    const machine = await ownMachine()
    const { exit } = await startHost({ runtime: "process", token: await machine.token({ expiresIn: -1 }) })
    expect(await exit).toEqual({ cause: "refused", message: expect.stringContaining("The join token has expired.") })
  })
})

describe("a host with a job", () => {
  it("ends it on request, and is free", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, stop, exit } = await joined({ clock, bootClock })
    const launch = await machine.launch(shell(`trap 'echo bye; exit 0' TERM; ${FOREVER}`))
    await logShows(launch, "began")
    await machine.stop()
    clock.advance(BEAT_SECONDS)
    await machine.freed(launch)
    expect((await gateway.logOf(launch)).toString()).toBe("began\nbye\n")
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({
      ...{ reason: "Stopped", message: "Berth ended the run on this machine" },
    })
    stop()
    await exit
  })

  it("ends it when its agent is stopped, and reports that", async () => {
    const { machine, dataDir, stop, exit } = await joined()
    const launch = await machine.launch(shell(`trap 'echo bye; exit 3' TERM; ${FOREVER}`))
    await logShows(launch, "began")
    stop()
    expect(await exit).toEqual({ cause: "stopped" })
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Stopped", exitCode: 3 })
    expect((await gateway.logOf(launch)).toString()).toBe("began\nbye\n")
    expect(await machine.host()).toMatchObject({ freed: launch.metadata.name, unfit: expect.any(String) })
    expect(await filesOf({ dataDir })).toEqual(["host-state.json", "host.json"])
  })

  it("ends it and forgets everything when the machine is removed", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, dataDir, exit } = await joined({ clock, bootClock })
    const launch = await machine.launch(shell(`echo $$; ${FOREVER}`))
    await logShows(launch, "began")
    const pid = Number.parseInt((await gateway.logOf(launch)).toString(), 10)
    expect(processIdentity(pid)).toBeDefined()
    await machine.remove()
    clock.advance(BEAT_SECONDS)
    expect(await exit).toEqual({
      cause: "refused",
      message: expect.stringContaining(`Berth rejects this host as machine ${machine.name}. The machine was removed`),
    })
    expect(processIdentity(pid)).toBeUndefined()
    expect(await filesOf({ dataDir })).toEqual([])
  })
})

describe("a host without an answer of Berth", () => {
  it("ends its job before its lease is over, and is free when Berth answers again", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, dataDir, stop, exit } = await joined({ clock, bootClock })
    const launch = await machine.launch(shell(`trap '' TERM; echo $$; ${FOREVER}`))
    await logShows(launch, "began")
    await machine.running(launch)
    const pid = Number.parseInt((await gateway.logOf(launch)).toString(), 10)
    await gateway.stop()
    const { lease } = (await jsonIn(dataDir, "host-state.json")) as { lease: { end: number } }
    clock.advance(lease.end - bootClock.seconds() - 35)
    expect(processIdentity(pid)).toBeDefined()
    await until("the process has ended", () => processIdentity(pid) === undefined)
    await until("the run's folder is removed", () => !existsSync(join(dataDir, "run")))
    expect(bootClock.seconds()).toBeLessThan(lease.end)
    await gateway.restart()
    clock.advance(BEAT_SECONDS)
    await machine.freed(launch)
    stop()
    await exit
  })

  it("kills its job at once when it wakes up after its lease", async () => {
    let suspended = 0
    const { boot, seconds } = systemBootClock()
    const bootClock = { boot, seconds: () => seconds() + suspended }
    const { machine, stop, exit } = await joined({ bootClock })
    const launch = await machine.launch(shell(`trap '' TERM; echo $$; ${FOREVER}`, { terminationGraceSeconds: 600 }))
    await logShows(launch, "began")
    await machine.running(launch)
    const pid = Number.parseInt((await gateway.logOf(launch)).toString(), 10)
    expect(processIdentity(pid)).toBeDefined()
    // Timers stand still meanwhile.
    suspended = 5000
    await machine.freed(launch)
    expect(processIdentity(pid)).toBeUndefined()
    expect((await fixture.agentOf(launch))?.finish?.message).toMatch(
      /^the machine had no answer from Berth until the end of its lease/,
    )
    stop()
    await exit
  })

  it.each([
    ["its lease is over", () => hostClocks(), 5000],
    ["its machine was rebooted", () => hostClocks("another boot"), 0],
  ])("cleans up, and runs nothing, if it was killed and %s", async (_why, clocks, ahead) => {
    const machine = await ownMachine()
    const dataDir = await newDisk()
    const agent = startHostProcess("process", dataDir, { token: await machine.token() })
    const counted = join(await newDisk(), "runs")
    const launch = await machine.launch(shell(`echo run >> ${counted}; ${FOREVER}`, { maxRetries: 3 }))
    await logShows(launch, "began")
    await machine.running(launch)
    await kill(agent)
    const { clock, bootClock } = clocks()
    clock.advance(ahead)
    const again = await startHost({ runtime: "process", dataDir, clock, bootClock })
    await machine.freed(launch)
    expect(await readFile(counted, "utf8")).toBe("run\n")
    again.stop()
    await again.exit
  })

  it("does not take a job that is older than its lease", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, stop, exit } = await joined({ clock, bootClock })
    await machine.waits()
    // The host is suspended between its message and the answer.
    clock.advance(1000)
    const launch = await machine.launch(shell("echo began"))
    await machine.freed(launch)
    expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Succeeded")
    stop()
    await exit
  })

  it.each([3600, -3600])("runs its jobs with a calendar that is wrong by %d s", async (wrong) => {
    const { clock, bootClock } = hostClocks()
    clock.setWrong(wrong)
    const { machine, stop, exit } = await joined({ clock, bootClock })
    const first = await machine.launch(shell("echo first; sleep 1"))
    await logShows(first, "first")
    clock.setWrong(-wrong)
    await machine.freed(first)
    const second = await machine.launch(shell("echo second"))
    await machine.freed(second)
    for (const launch of [first, second]) expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Succeeded")
    stop()
    await exit
  })
})
