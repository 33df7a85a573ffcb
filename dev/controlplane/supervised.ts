import { type ChildProcess, spawn } from "node:child_process"
import { closeSync, openSync } from "node:fs"
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { createInterface } from "node:readline"
import type { Readable, Writable } from "node:stream"
import { setTimeout as delay } from "node:timers/promises"
import { isRunning, type ProcessRecord, parseRecord, recordOf } from "./process-record.ts"

/**
 * Time for a server to end after SIGTERM, before SIGKILL. Stopping everything has 10 seconds, and SIGKILL makes no
 * server lose acknowledged data.
 */
export const STOP_GRACE_SECONDS = 1

/** Time for all servers of a killed process to end, one after the other. */
const LEFTOVER_SECONDS = 3 * STOP_GRACE_SECONDS + 10

const LOG_TAIL_LINES = 15
const LEFTOVER_POLL_MS = 100

/**
 * Runs a server and ends it when standard input ends. The kernel closes that pipe however this process ends, including
 * by SIGKILL. $1 is the grace in seconds, the rest the command. File descriptor 3 receives the server's pid. File
 * descriptor 4 is never used. It is the standard input of another supervisor, which therefore does not end before this
 * one.
 *
 * The servers are Go programs with a small heap. With Go's defaults a heap may double before the next collection. Then
 * the collector took a quarter of two cores for an API server under load. So the heap may grow fivefold, up to a soft
 * limit, unless the environment sets other values (https://go.dev/doc/gc-guide). The limit is far above the need of
 * 50,000 jobs. Close to it a server does little else than to collect.
 */
const SUPERVISOR = `
grace=$1; shift
export GOGC="\${GOGC:-400}" GOMEMLIMIT="\${GOMEMLIMIT:-4GiB}"
exec 5<&0
"$@" </dev/null 3>&- 4>&- 5<&- &
server=$!
echo "$server" >&3
exec 3>&-
{
  read -r _
  kill -TERM "$server"
  while [ "$grace" -gt 0 ] && kill -0 "$server"; do sleep 1; grace=$((grace - 1)); done
  kill -KILL "$server"
} <&5 >/dev/null 2>&1 4>&- &
watch=$!
wait "$server"
status=$?
kill -KILL "$watch" 2>/dev/null
exit "$status"
`

/** Command to run, and the folders of its log and record. */
export interface ServerCommand {
  readonly name: string
  readonly command: string
  readonly args: readonly string[]
  /** Holds NAME.log, and NAME.log.1 of the previous run. */
  readonly logDirectory: string
  /** Holds NAME.json, the record of its process, by which a later start detects a leftover. */
  readonly runDirectory: string
  /** A server that this one needs to end cleanly. When this process dies, that one outlives this one. */
  readonly needs?: SupervisedServer | undefined
}

/** A server under supervision: it ends with this process at the latest. */
export interface SupervisedServer {
  readonly name: string
  readonly pid: number
  /** Resolves when it has ended, with the exit code or signal; never rejects. */
  readonly ended: Promise<string>
  /** Pipe that keeps the server running while it is open. */
  readonly lifeline: Writable
  /** Returns the last lines of its log. */
  logTail(): Promise<string>
  /** Sends SIGTERM, and SIGKILL after STOP_GRACE_SECONDS. Resolves when the server has ended. */
  stop(): Promise<void>
}

/** Starts a server under a supervisor of its own. Throws if the program can't be run. */
export async function startServer(server: ServerCommand): Promise<SupervisedServer> {
  const { name, logDirectory, runDirectory } = server
  await mkdir(logDirectory, { recursive: true, mode: 0o700 })
  await mkdir(runDirectory, { recursive: true, mode: 0o700 })
  const logPath = join(logDirectory, `${name}.log`)
  await rotate(logPath)
  const supervisor = spawnSupervisor(server, logPath)
  const lifeline = supervisor.stdio[0] as Writable
  const ended = endOf(supervisor)
  const pid = await Promise.race([
    readPid(supervisor),
    ended.then((end) => Promise.reject(new Error(`${name} could not be started: ${end}`))),
  ])
  const recordPath = join(runDirectory, `${name}.json`)
  await writeFile(recordPath, JSON.stringify(recordOf(pid) ?? null), { mode: 0o600 })
  const stop = async () => {
    lifeline.end()
    await ended
    await rm(recordPath, { force: true })
  }
  return { name, pid, ended, lifeline, stop, logTail: () => tail(logPath) }
}

/** Synchronous, so that no event of the child can occur before its listener is added. */
function spawnSupervisor({ command, args, needs }: ServerCommand, logPath: string): ChildProcess {
  const log = openSync(logPath, "a", 0o600)
  const needed = needs?.lifeline.destroyed === false ? needs.lifeline : "ignore"
  try {
    // A session of its own: Ctrl-C in a terminal must reach this process only, which then stops servers in order.
    return spawn("/bin/sh", ["-c", SUPERVISOR, "supervisor", String(STOP_GRACE_SECONDS), command, ...args], {
      detached: true,
      stdio: ["pipe", log, log, "pipe", needed],
    })
  } finally {
    closeSync(log)
  }
}

/**
 * Waits until a server of an earlier, killed process has ended: its supervisor is about to end it. Throws if the server
 * still runs after that time.
 */
export async function awaitLeftover(name: string, runDirectory: string, signal?: AbortSignal): Promise<void> {
  const record = await readRecord(join(runDirectory, `${name}.json`))
  if (!record) return
  const deadline = performance.now() + LEFTOVER_SECONDS * 1000
  while (isRunning(record)) {
    if (performance.now() > deadline) {
      throw new Error(
        `${name} (process ${record.pid}) of an earlier run still uses ${dirname(runDirectory)}: end it with "kill ${record.pid}"`,
      )
    }
    await delay(LEFTOVER_POLL_MS, undefined, { ...(signal && { signal }) })
  }
}

async function readRecord(path: string): Promise<ProcessRecord | undefined> {
  try {
    return parseRecord(await readFile(path, "utf8"))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}

function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message))
    child.once("exit", (code, signal) => resolve(signal ?? `exit code ${code}`))
  })
}

async function readPid(supervisor: ChildProcess): Promise<number> {
  const input = supervisor.stdio[3] as Readable
  for await (const line of createInterface({ input })) return Number(line)
  // The server ended before it reported its pid: its end decides the caller's race.
  return new Promise<never>(() => undefined)
}

async function rotate(path: string): Promise<void> {
  try {
    await rename(path, `${path}.1`)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error
  }
}

async function tail(path: string): Promise<string> {
  try {
    const log = await readFile(path, "utf8")
    return log.trimEnd().split("\n").slice(-LOG_TAIL_LINES).join("\n")
  } catch (error) {
    return `(${path} can't be read: ${error instanceof Error ? error.message : String(error)})`
  }
}
