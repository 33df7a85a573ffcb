import { readFile } from "node:fs/promises"
import { createServer } from "node:net"
import { dirname, join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { inject } from "vitest"
import { Program } from "./program.ts"
import { processesNaming } from "./traces.ts"

const ROOT = join(import.meta.dirname, "..", "..")

/** What every program of ours promises: it ends so soon after one SIGTERM, with all that it has started, seconds. */
const STOP_SECONDS = 10

export type Command = "start" | "demo"

/** The stack of one data directory, started as a user does it, again and again. */
export interface StackUnderTest {
  command: Command
  dataDir: string
  /** Of `npm start`: this one and the next. */
  port: number
  runtime?: "process" | "docker"
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

/** A REST call to a stack by its environment file; the answer's text. Throws when it is refused. */
export async function call(dataDir: string, method: string, path: string, yaml?: string): Promise<string> {
  const environment = await readFile(join(dataDir, "env"), "utf8")
  const value = (name: string) => new RegExp(`^${name}=(\\S+)$`, "m").exec(environment)?.[1] ?? ""
  const answer = await fetch(`${value("BERTH_URL")}/1${path}`, {
    method,
    headers: { "X-Service-Api-Key": value("BERTH_API_KEY"), "Content-Type": "application/yaml" },
    ...(yaml !== undefined && { body: yaml }),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
  return text
}

/** A job that runs a shell script, as the REST API takes it. */
export function shellJob(name: string, script: string): string {
  return JSON.stringify({ name, image: "alpine", command: ["sh", "-c", script] })
}

/** Resolves as soon as the job has this status. */
export async function untilStatus(dataDir: string, job: string, status: string, seconds = 100): Promise<void> {
  const deadline = performance.now() + seconds * 1000
  for (;;) {
    const said = await call(dataDir, "GET", `/jobs/${job}`)
    if ((JSON.parse(said) as { status: string }).status === status) return
    if (performance.now() > deadline) throw new Error(`${job} is not ${status} after ${seconds} s: ${said}`)
    await delay(100)
  }
}

/** What was there ten seconds after SIGTERM: nothing, if all is well. */
export interface Remains {
  /** Seconds until everything had ended; undefined when something had not. */
  seconds: number | undefined
  processes: string[]
  ports: number[]
}

/** Sends SIGTERM to the program alone, and looks for ten seconds at what is left of its stack. */
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

/** Two ports in a row that are free now. */
export async function freePair(): Promise<number> {
  for (let port = 20_000 + Math.floor(Math.random() * 10_000); ; port += 2) {
    if ((await takenPorts([port, port + 1])).length === 0) return port
  }
}

/** Milliseconds that a start of the stack takes, with a job of its own when it is up; it is stopped again. */
export async function measureStart(stack: StackUnderTest): Promise<number> {
  const begun = performance.now()
  const program = startStack(stack)
  await program.printed(/ready after/)
  const milliseconds = performance.now() - begun
  await sendSigterm(program, stack)
  return milliseconds
}

/** Starts the stack, sends SIGTERM so many milliseconds later, and says what was left. */
export async function stopAt(stack: StackUnderTest, milliseconds: number): Promise<Remains & { output: string }> {
  const program = startStack(stack)
  const busy = stack.command === "start" ? keepBusy(program, stack.dataDir) : undefined
  await delay(milliseconds)
  const remains = await sendSigterm(program, stack)
  // What is left must not be in the way of the next start.
  for (const { pid } of remains.seconds === undefined ? await processesNaming(stack.dataDir) : []) kill(pid)
  await busy
  return { ...remains, output: program.output }
}

/** Has a job run from the moment when the stack is up: its VM must end, too. */
async function keepBusy(program: Program, dataDir: string): Promise<void> {
  try {
    await program.printed(/Berth is up at/)
    await call(dataDir, "POST", "/jobs", shellJob("busy", "trap '' TERM; echo begun; sleep 1000"))
  } catch {
    // It was stopped before, or meanwhile.
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL")
  } catch {
    // It has ended since it was listed.
  }
}
