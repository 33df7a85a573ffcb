import { type ChildProcess, spawn } from "node:child_process"
import { mkdir, rm } from "node:fs/promises"
import { constants } from "node:os"
import { join } from "node:path"
import { PassThrough } from "node:stream"
import { setTimeout as sleep } from "node:timers/promises"
import { systemClock, timestamp } from "../../core/apis/clock.ts"
import type { RunOrder } from "../../core/protocol/protocol.ts"
import { readIfThere, replaceFile } from "../disk.ts"
import { KILLED_EXIT_CODE } from "../exit-codes.ts"
import { processesWith, processIdentity, signalGroup, signalProcess } from "../processes.ts"
import { unpack } from "../workdir.ts"
import { type Container, type Ended, RunError, type Runtime } from "./runtime.ts"

/** PATH of commands. They never get the agent's own environment. */
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/**
 * Variable in the environment of all of a job's processes, by which those are found that have left its process group.
 * Its value is the agent's folder.
 */
const MARK = "BERTH_JOB_IN"

/** Time in which killed processes must have ended, seconds. */
const KILL_SECONDS = 10

/** Maximum unread output, bytes. A command that writes more has to wait. */
const BUFFER_BYTES = 1024 * 1024

/** Process group of the current attempt, as stored on the disk. */
interface GroupRecord {
  attempt: number
  group: number
  /** Identity of the group's leader. */
  identity: string
  startTime: string
}

/**
 * Runs the command on the host itself, without its image. It is for machines without a container engine, in development
 * only. Each attempt has its own process group, so that all its processes can be ended. A later agent can only end it,
 * not continue it.
 */
export class ProcessRuntime implements Runtime {
  readonly name = "process"
  readonly #dataDir: string

  constructor(dataDir: string) {
    this.#dataDir = dataDir
  }

  prepare({ run }: RunOrder): Promise<void> {
    if ((run.command ?? []).length > 0) return Promise.resolve()
    const message =
      "the job has no command, and this machine has no container engine: " +
      `Berth can't read the entrypoint of ${run.image}. Start Docker, or set spec.command.`
    return Promise.reject(new RunError("ContainerFailed", message))
  }

  mount({ run }: RunOrder): Promise<void> {
    const volumes = Object.keys(run.volumes ?? {})
    if (volumes.length === 0) return Promise.resolve()
    const message = `volumes ${volumes.join(", ")} can't be mounted: this machine has no container engine`
    return Promise.reject(new RunError("VolumeMountFailed", message))
  }

  renew(): Promise<void> {
    return Promise.resolve()
  }

  flush(): Promise<void> {
    return Promise.resolve()
  }

  deleteCheckpoints(): Promise<void> {
    return Promise.resolve()
  }

  async start({ run, secretEnv }: RunOrder, attempt: number): Promise<Container> {
    const cwd = join(this.#dataDir, "work")
    // The host has no folder of its own for each job, so `path` has no effect here.
    if (run.workdir !== undefined) await unpack(this.#dataDir, cwd)
    await mkdir(cwd, { recursive: true, mode: 0o700 })
    const child = spawnGroup([...(run.command ?? []), ...(run.args ?? [])], cwd, {
      PATH,
      HOME: cwd,
      ...run.env,
      ...secretEnv,
      [MARK]: this.#dataDir,
    })
    const startTime = timestamp(systemClock.now())
    const running = new GroupContainer(child, startTime, recordPath(this.#dataDir))
    if (child.pid !== undefined) this.#record({ attempt, group: child.pid, startTime })
    return running
  }

  async find(attempt: number): Promise<Container | undefined> {
    const record = readRecord(this.#dataDir)
    if (record?.attempt !== attempt) return undefined
    endRecordedGroup(this.#dataDir)
    // A killed process needs a moment to end, and must not overlap with its successor.
    for (let tries = 0; tries < 100 && processIdentity(record.group) === record.identity; tries++) await sleep(50)
    return lostContainer(record.startTime)
  }

  watchGpus(): Promise<undefined> {
    return Promise.resolve(undefined)
  }

  async clear(): Promise<void> {
    endRecordedGroup(this.#dataDir)
    await rm(join(this.#dataDir, "work"), { recursive: true, force: true })
  }

  /** Ends daemons, too. One that has cleared its environment is not found: this runtime isolates nothing. */
  async wipe(): Promise<void> {
    await this.clear()
    const deadline = systemClock.monotonic() + KILL_SECONDS
    for (;;) {
      const found = processesWith(`${MARK}=${this.#dataDir}`)
      if (found.length === 0) return
      if (systemClock.monotonic() > deadline) throw new Error(`processes ${found.join(", ")} of the job still run`)
      for (const pid of found) signalProcess(pid, "SIGKILL")
      await sleep(50)
    }
  }

  #record({ attempt, group, startTime }: Omit<GroupRecord, "identity">): void {
    // A leader that has ended in the meantime has no identity. Its group is found without one.
    const identity = processIdentity(group) ?? ""
    replaceFile(recordPath(this.#dataDir), JSON.stringify({ attempt, group, identity, startTime }))
  }
}

/**
 * Ends the process group that an agent of this folder has started, with SIGKILL, if any of it still runs. It is for
 * programs that end the VM after its agent has ended. Returns false if there is no such group.
 */
export function endRecordedGroup(dataDir: string): boolean {
  const record = readRecord(dataDir)
  if (record === undefined) return false
  const leader = processIdentity(record.group)
  // Another process has this number now. The kernel does not reuse the number while any process of the group lives.
  if (leader !== undefined && leader !== record.identity) return false
  return signalGroup(record.group, "SIGKILL")
}

function recordPath(dataDir: string): string {
  return join(dataDir, "process.json")
}

function readRecord(dataDir: string): GroupRecord | undefined {
  const text = readIfThere(recordPath(dataDir))
  return text === undefined ? undefined : (JSON.parse(text) as GroupRecord)
}

/** Starts a command as the leader of its own session and process group. */
function spawnGroup(command: string[], cwd: string, env: NodeJS.ProcessEnv): ChildProcess {
  const [program = "", ...parameters] = command
  try {
    return spawn(program, parameters, { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] })
  } catch (error) {
    // Node's own message would quote the argument or the variable.
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error"
    const why = code === "ERR_INVALID_ARG_VALUE" ? "command, args or env hold a NUL character" : code
    throw new RunError("ContainerFailed", `the command can't be started: ${why}`)
  }
}

class GroupContainer implements Container {
  readonly startTime: string
  readonly stopSignal = "SIGTERM"
  readonly #child: ChildProcess
  readonly #recordPath: string
  readonly #output = new PassThrough({ highWaterMark: BUFFER_BYTES })
  readonly #ended = Promise.withResolvers<Ended>()

  constructor(child: ChildProcess, startTime: string, path: string) {
    this.#child = child
    this.startTime = startTime
    this.#recordPath = path
    child.stdout?.pipe(this.#output, { end: false })
    child.stderr?.pipe(this.#output, { end: false })
    child.once("error", (error: NodeJS.ErrnoException) => {
      this.#output.end()
      const exitCode = error.code === "ENOENT" ? 127 : 126
      this.#ended.resolve({ exitCode, message: `the command can't be started: ${error.message}` })
    })
    child.once("exit", (code, signal) => {
      // As with a container: when its first process ends, all others end.
      if (child.pid !== undefined) signalGroup(child.pid, "SIGKILL")
      this.#ended.resolve(toEnded(code, signal))
    })
    child.once("close", () => this.#output.end())
  }

  async *output(): AsyncGenerator<Uint8Array, void, void> {
    for await (const piece of this.#output) yield piece as Buffer
  }

  wait(): Promise<Ended> {
    return this.#ended.promise
  }

  signal(which: "stop" | "kill"): Promise<boolean> {
    const { pid, exitCode, signalCode } = this.#child
    if (pid === undefined || exitCode !== null || signalCode !== null) return Promise.resolve(false)
    // The process has ended, and Node has not reported the end yet.
    if (processIdentity(pid) === undefined) return Promise.resolve(false)
    // As with a container: only the first process gets SIGTERM, and may stop the others in order.
    if (which === "stop") this.#child.kill(this.stopSignal)
    else signalGroup(pid, "SIGKILL")
    return Promise.resolve(true)
  }

  /** A process that has ended takes its counters with it, so a sum over the group would be too small. */
  read(): Promise<undefined> {
    return Promise.resolve(undefined)
  }

  remove(): Promise<void> {
    return rm(this.#recordPath, { force: true })
  }
}

/** Returns a stand-in for an attempt whose agent has ended, so that its output and its exit code are lost. */
function lostContainer(startTime: string): Container {
  const message = "the agent restarted and ended the process, because it can't continue a process on the host"
  return {
    startTime,
    stopSignal: "SIGTERM",
    async *output() {},
    wait: () => Promise.resolve({ exitCode: KILLED_EXIT_CODE, message }),
    signal: () => Promise.resolve(false),
    read: () => Promise.resolve(undefined),
    remove: () => Promise.resolve(),
  }
}

function toEnded(code: number | null, signal: NodeJS.Signals | null): Ended {
  if (code !== null) return { exitCode: code }
  return { exitCode: 128 + (signal === null ? 0 : constants.signals[signal]) }
}
