import { createServer } from "node:net"
import { dirname, join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { inject } from "vitest"
import { Program } from "../harness/program-process.ts"
import { processesNaming } from "../harness/traces.ts"
import { call, shellJob } from "./rest.ts"

const ROOT = join(import.meta.dirname, "..", "..")

/** Seconds from one SIGTERM until a program and all that it started must have ended. */
const STOP_SECONDS = 10

export type Command = "start" | "demo"

/** Stack of one data directory that a test starts again and again, as a user does. */
export interface StackUnderTest {
  command: Command
  dataDir: string
  /** First of two ports of `npm start`. */
  port: number
  runtime?: "process" | "docker"
  /** Image of the job that keeps the stack busy. Default: alpine, which the runtime `process` ignores. */
  image?: string
}

/** Runs `npm start` or `npm run demo` with their own scripts, and npm's. */
export function startStack(
  { command, dataDir, port, runtime = "process" }: StackUnderTest,
  env = process.env,
): Program {
  const npm = process.env["npm_execpath"]
  if (npm === undefined) throw new Error("this test runs by `npm test`, which says where npm is")
  const script = command === "start" ? ["start"] : ["run", "demo"]
  const ports = command === "start" ? ["--port", String(port)] : []
  const assetsDir = dirname(inject("controlPlaneBinaries").etcd)
  const options = ["--data-dir", dataDir, "--runtime", runtime, "--assets-dir", assetsDir, ...ports]
  return new Program(command, [npm, ...script, "--silent", "--prefix", ROOT, "--", ...options], env)
}

/** Processes and ports that are left ten seconds after SIGTERM; normally none. */
export interface Remains {
  /** Seconds until everything had ended; undefined if something is left. */
  seconds: number | undefined
  processes: string[]
  ports: number[]
}

/** Sends SIGTERM to the program alone, and watches for ten seconds what is left of its stack. */
export async function sendSigterm(program: Program, { dataDir, port, command }: StackUnderTest): Promise<Remains> {
  const sent = performance.now()
  program.send("SIGTERM")
  for (;;) {
    const processes = (await processesNaming(dataDir)).map(({ pid, text }) => `${pid} ${text.slice(0, 200)}`)
    const taken = command === "start" ? await takenPorts([port, port + 1]) : []
    const seconds = (performance.now() - sent) / 1000
    if (processes.length === 0 && taken.length === 0 && !program.running) return { seconds, processes, ports: taken }
    if (seconds > STOP_SECONDS) return { seconds: undefined, processes, ports: taken }
    await delay(50)
  }
}

async function takenPorts(ports: readonly number[]): Promise<number[]> {
  const free = await Promise.all(ports.map(isFree))
  return ports.filter((_, index) => !free[index])
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer().once("error", () => resolve(false))
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)))
  })
}

/** Returns the first of two adjacent ports that are free now. */
export async function freePair(): Promise<number> {
  for (let port = 20_000 + Math.floor(Math.random() * 10_000); ; port += 2) {
    if ((await takenPorts([port, port + 1])).length === 0) return port
  }
}

/** Returns the milliseconds that a start of the stack takes, including a job. Then stops the stack. */
export async function measureStart(stack: StackUnderTest): Promise<number> {
  const begun = performance.now()
  const program = startStack(stack)
  await program.printed(/ready after/)
  const milliseconds = performance.now() - begun
  await sendSigterm(program, stack)
  return milliseconds
}

/** Starts the stack, sends SIGTERM after the delay, and returns what is left. */
export async function stopAt(stack: StackUnderTest, milliseconds: number): Promise<Remains & { output: string }> {
  const program = startStack(stack)
  const busy = stack.command === "start" ? keepBusy(program, stack) : undefined
  await delay(milliseconds)
  const remains = await sendSigterm(program, stack)
  // Leftovers must not disturb the next start.
  if (remains.seconds === undefined) await killAll(stack)
  await busy
  return { ...remains, output: program.output }
}

/** Keeps a job running from the moment when the stack is up, so that a stop must end a VM, too. */
async function keepBusy(program: Program, { dataDir, image }: StackUnderTest): Promise<void> {
  try {
    await program.printed(/Berth is up at/)
    await call(dataDir, "POST", "/jobs", shellJob("busy", "trap '' TERM; echo begun; sleep 1000", image))
  } catch {
    // The stack was stopped before or during the call.
  }
}

/** Sends SIGKILL to every process of the stack. */
export async function killAll({ dataDir }: StackUnderTest): Promise<void> {
  for (const { pid } of await processesNaming(dataDir)) kill(pid)
}

/** Sends SIGKILL to the API server of the stack, which then ends. */
export async function killApiServer({ dataDir }: StackUnderTest): Promise<void> {
  const servers = (await processesNaming(dataDir)).filter(({ text }) => /^\S*kube-apiserver /.test(text))
  if (servers.length !== 1) throw new Error(`${servers.length} API servers run for ${dataDir}`)
  for (const { pid } of servers) kill(pid)
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL")
  } catch {
    // The process has ended since it was listed.
  }
}
