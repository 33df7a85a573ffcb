import { type ChildProcess, spawn } from "node:child_process"
import { readdir } from "node:fs/promises"
import { text } from "node:stream/consumers"
import { afterAll } from "vitest"
import { type BootClock, systemBootClock } from "../../src/agent/host/lease.ts"
import { type HostExit, type HostOptions, runHost } from "../../src/agent/host/main.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { OwnMachine } from "./own-machine.ts"
import { fixture, gateway, interceptBy, kill, newDisk } from "./suite.ts"

const processes: ChildProcess[] = []
const stops: AbortController[] = []

/** Prepares the tests of a file, after `prepareAgents`. */
export function prepareHosts(): void {
  afterAll(async () => {
    // Left by tests that failed.
    for (const stop of stops) stop.abort()
    await Promise.all(processes.map(kill))
  })
}

/** Creates a machine that no host has joined yet. */
export async function ownMachine(): Promise<OwnMachine> {
  const machine = await OwnMachine.create(fixture)
  interceptBy(machine.handler)
  return machine
}

/** Clocks of a host, which a test moves together. */
export function hostClocks(boot = systemBootClock().boot): { clock: ShiftedClock; bootClock: BootClock } {
  const clock = new ShiftedClock()
  const { seconds } = systemBootClock()
  return { clock, bootClock: { boot, seconds: () => seconds() + clock.ahead } }
}

export interface TestHost {
  dataDir: string
  exit: Promise<HostExit>
  /** Stops its agent, as SIGTERM does. */
  stop: () => void
}

/** Starts a host's agent in this process. */
export async function startHost(options: Partial<HostOptions> & Pick<HostOptions, "runtime">): Promise<TestHost> {
  const dataDir = options.dataDir ?? (await newDisk())
  const stop = new AbortController()
  stops.push(stop)
  const own = { gateway: { gatewayUrl: gateway.url }, logger: silentLogger, signal: stop.signal }
  const exit = runHost({ ...own, ...options, dataDir })
  // The test awaits it, perhaps only after another failure.
  exit.catch(() => undefined)
  return { dataDir, exit, stop: () => stop.abort() }
}

/** Starts a host's agent as a process of its own, which can be killed. */
export function startHostProcess(
  runtime: "docker" | "process",
  dataDir: string,
  { token, node = [], env = {} }: { token?: string; node?: string[]; env?: NodeJS.ProcessEnv } = {},
): ChildProcess & { said: Promise<string> } {
  const args = ["src/main.ts", "host", "--gateway", gateway.url, "--runtime", runtime, "--data-dir", dataDir]
  const child = spawn(process.execPath, [...node, ...args, ...(token === undefined ? [] : ["--token", token])], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, ...env },
  })
  processes.push(child)
  return Object.assign(child, { said: text(child.stderr) })
}

/** Starts the agent of a host that joins as a new machine. */
export async function joinedHost(options: Partial<HostOptions> & Pick<HostOptions, "runtime">) {
  const machine = await ownMachine()
  return { machine, ...(await startHost({ token: await machine.token(), ...options })) }
}

/** Returns the names of the files that a host has, without its lock. */
export async function filesOf({ dataDir }: Pick<TestHost, "dataDir">): Promise<string[]> {
  return (await readdir(dataDir)).filter((name) => !name.startsWith("lock.")).sort()
}
