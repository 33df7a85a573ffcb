import { once } from "node:events"
import { existsSync } from "node:fs"
import { readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { systemBootClock } from "../../src/agent/host/lease.ts"
import { processIdentity } from "../../src/agent/processes.ts"
import { REFUSED_EXIT_CODE } from "../../src/core/machines/commands.ts"
import { BEAT_SECONDS } from "../../src/core/machines/machine.ts"
import { until } from "../harness/eventually.ts"
import { filesOf, hostClocks, ownMachine, prepareHosts, startHost, startHostProcess } from "./hosts.ts"
import { fixture, gateway, kill, logShows, newDisk, prepareAgents, shell } from "./suite.ts"

prepareAgents()
prepareHosts()

const FOREVER = "echo began; while true; do sleep 0.1; done"

async function jsonIn(dataDir: string, name: string): Promise<Record<string, unknown>> {
  return JSON.parse(await readFile(join(dataDir, name), "utf8")) as Record<string, unknown>
}

/** Starts a host of a machine that it joins. */
async function joined(options: Partial<Parameters<typeof startHost>[0]> = {}) {
  const machine = ownMachine()
  return { machine, ...(await startHost({ runtime: "process", token: machine.token(), ...options })) }
}

describe("a host that joins as a machine", () => {
  it("runs one job after another, each with keys, state and log of its own", async () => {
    const { machine, dataDir, exit, stop } = await joined()
    const first = await fixture.launch(shell("echo first; touch left"))
    machine.assign(first)
    await machine.freed(first)
    expect(await filesOf({ dataDir })).toEqual(["host-state.json", "host.json"])
    const second = await fixture.launch(shell("echo second; ls; exit 3"))
    machine.assign(second)
    await machine.freed(second)
    const launches = [first, second]
    const logs = await Promise.all(launches.map(async (launch) => (await gateway.logOf(launch)).toString()))
    expect(logs).toEqual(["first\n", "second\n"])
    const agents = await Promise.all(launches.map((launch) => fixture.agentOf(launch)))
    expect(agents.map((agent) => agent?.finish?.reason)).toEqual(["Succeeded", "ContainerFailed"])
    expect(new Set(agents.map((agent) => agent?.signingKey)).size).toBe(2)
    expect(agents.map((agent) => agent?.signingKey)).not.toContain(machine.joined?.signingKey)
    stop()
    expect(await exit).toEqual({ cause: "stopped" })
  })

  it("says what it has, and then who runs and who is gone", async () => {
    const { machine, stop, exit } = await joined()
    const launch = await fixture.launch(shell("true"))
    machine.assign(launch)
    await machine.freed(launch)
    const { name } = launch.metadata
    expect(machine.joined?.facts.cpu).toBeGreaterThan(0)
    expect(machine.joined?.facts.memoryGib).toBeGreaterThan(0)
    const said = machine.beats.map(({ running, freed }) => [running, freed])
    const changes = said.filter((pair, index) => JSON.stringify(pair) !== JSON.stringify(said[index - 1]))
    expect(changes).toEqual([
      [undefined, undefined],
      [name, undefined],
      [undefined, name],
    ])
    stop()
    await exit
    expect(machine.last).toMatchObject({ freed: name, unfit: "the machine's agent was stopped: start it again" })
  })

  it("keeps its keys where only its user can read them, and not the join token", async () => {
    const { machine, dataDir, stop, exit } = await joined()
    await until("it waits", () => machine.last !== undefined)
    for (const name of await filesOf({ dataDir })) {
      expect((await stat(join(dataDir, name))).mode & 0o777).toBe(0o600)
      expect(await readFile(join(dataDir, name), "utf8")).not.toContain("bmj1.")
    }
    stop()
    await exit
  })

  it("repeats its join with the same keys when an answer is lost", async () => {
    const machine = ownMachine()
    machine.lostAnswers = 1
    const { stop, exit } = await startHost({ runtime: "process", token: machine.token() })
    await until("it waits", () => machine.last !== undefined)
    stop()
    expect(await exit).toEqual({ cause: "stopped" })
  })

  it("needs no token after a restart, and ignores the one that it has used", async () => {
    const machine = ownMachine()
    const token = machine.token()
    const first = await startHost({ runtime: "process", token })
    await until("it waits", () => machine.last !== undefined)
    first.stop()
    await first.exit
    const keys = machine.joined?.signingKey
    for (const options of [{}, { token }]) {
      const before = machine.beats.length
      const again = await startHost({ runtime: "process", dataDir: first.dataDir, ...options })
      await until("it waits again", () => machine.beats.length > before)
      expect(machine.last?.unfit).toBeUndefined()
      again.stop()
      await again.exit
    }
    expect(machine.joined?.signingKey).toBe(keys)
  })

  it("takes new keys with a later token", async () => {
    const { machine, dataDir, stop, exit } = await joined()
    await until("it waits", () => machine.last !== undefined)
    stop()
    await exit
    const keys = machine.joined?.signingKey
    machine.beats.length = 0
    const again = await startHost({ runtime: "process", dataDir, token: machine.token() })
    await until("it waits again", () => machine.last !== undefined)
    expect(machine.joined?.signingKey).not.toBe(keys)
    again.stop()
    await again.exit
  })

  it("needs a token on a new disk", async () => {
    const { exit } = await startHost({ runtime: "process" })
    await expect(exit).rejects.toThrow("this host has not joined as a machine yet: give it a join token")
  })

  it.each([
    ["was used already", "join-token-used", { expiresIn: 3600 }],
    ["has expired", "join-token-expired", { expiresIn: -1 }],
  ])("ends with a message for its owner if the token %s", async (why, refusal, { expiresIn }) => {
    const machine = ownMachine()
    const token = machine.token({ expiresIn })
    if (refusal === "join-token-used") {
      const other = await startHost({ runtime: "process", token })
      await until("the other host waits", () => machine.last !== undefined)
      other.stop()
      await other.exit
    }
    const dataDir = await newDisk()
    const child = startHostProcess("process", dataDir, { token })
    const [code] = (await once(child, "exit")) as [number]
    expect(code).toBe(REFUSED_EXIT_CODE)
    expect(await child.said).toContain(`This host is not machine ${machine.name}: the join token ${why}`)
    expect(await filesOf({ dataDir })).toEqual([])
  })
})

describe("a host with a job", () => {
  it("ends it on request, and is free", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, stop, exit } = await joined({ clock, bootClock })
    const launch = await fixture.launch(shell(`trap 'echo bye; exit 0' TERM; ${FOREVER}`))
    machine.assign(launch)
    await logShows(launch, "began")
    machine.stop(launch)
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
    const launch = await fixture.launch(shell(`trap 'echo bye; exit 3' TERM; ${FOREVER}`))
    machine.assign(launch)
    await logShows(launch, "began")
    stop()
    expect(await exit).toEqual({ cause: "stopped" })
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({ reason: "Stopped", exitCode: 3 })
    expect((await gateway.logOf(launch)).toString()).toBe("began\nbye\n")
    expect(machine.last).toMatchObject({ freed: launch.metadata.name, unfit: expect.any(String) })
    expect(await filesOf({ dataDir })).toEqual(["host-state.json", "host.json"])
  })

  it("ends it and forgets everything when the machine is removed", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, dataDir, exit } = await joined({ clock, bootClock })
    const launch = await fixture.launch(shell(`echo $$; ${FOREVER}`))
    machine.assign(launch)
    await logShows(launch, "began")
    const pid = Number.parseInt((await gateway.logOf(launch)).toString(), 10)
    expect(processIdentity(pid)).toBeDefined()
    machine.refusal = "unknown-machine"
    clock.advance(BEAT_SECONDS)
    expect(await exit).toEqual({
      cause: "refused",
      message: expect.stringContaining("there is no such machine any more: as the test says"),
    })
    expect(processIdentity(pid)).toBeUndefined()
    expect(await filesOf({ dataDir })).toEqual([])
  })
})

describe("a host without an answer of Berth", () => {
  it("ends its job before its lease is over, and is free when Berth answers again", async () => {
    const { clock, bootClock } = hostClocks()
    const { machine, dataDir, stop, exit } = await joined({ clock, bootClock })
    const launch = await fixture.launch(shell(`trap '' TERM; echo $$; ${FOREVER}`))
    machine.assign(launch)
    await logShows(launch, "began")
    await machine.running(launch)
    const pid = Number.parseInt((await gateway.logOf(launch)).toString(), 10)
    await gateway.stop()
    const { lease } = (await jsonIn(dataDir, "host-state.json")) as { lease: { end: number } }
    clock.advance(lease.end - bootClock.seconds() - 35)
    expect(processIdentity(pid)).toBeDefined()
    await until("the process is gone", () => processIdentity(pid) === undefined)
    await until("the run's folder is gone", () => !existsSync(join(dataDir, "run")))
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
    const launch = await fixture.launch(shell(`trap '' TERM; echo $$; ${FOREVER}`, { terminationGraceSeconds: 600 }))
    machine.assign(launch)
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
    const machine = ownMachine()
    const dataDir = await newDisk()
    const agent = startHostProcess("process", dataDir, { token: machine.token() })
    const counted = join(await newDisk(), "runs")
    const launch = await fixture.launch(shell(`echo run >> ${counted}; ${FOREVER}`, { maxRetries: 3 }))
    machine.assign(launch)
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
    const launch = await fixture.launch(shell("echo began"))
    let late = 0
    machine.onBeat = () => {
      // The host was suspended between its message and the answer.
      if (late++ < 2) clock.advance(1000)
    }
    machine.assign(launch)
    await machine.freed(launch)
    expect(late).toBeGreaterThan(2)
    expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Succeeded")
    stop()
    await exit
  })

  it.each([3600, -3600])("runs its jobs with a calendar that is wrong by %d s", async (wrong) => {
    const { clock, bootClock } = hostClocks()
    clock.setWrong(wrong)
    const { machine, stop, exit } = await joined({ clock, bootClock })
    const first = await fixture.launch(shell("echo first; sleep 1"))
    machine.assign(first)
    await logShows(first, "first")
    clock.setWrong(-wrong)
    await machine.freed(first)
    const second = await fixture.launch(shell("echo second"))
    machine.assign(second)
    await machine.freed(second)
    for (const launch of [first, second]) expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Succeeded")
    stop()
    await exit
  })
})
