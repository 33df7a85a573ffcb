import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { open } from "node:fs/promises"
import { setTimeout as sleep } from "node:timers/promises"
import { TransientError } from "../errors.ts"
import type { VmFolder } from "./folder.ts"
import { PRINT_IDENTITY } from "./processes.ts"

/**
 * Becomes the agent, once in a VM's life: the shell writes down who it is, links that to the process file, which fails
 * if it is there, and turns into the agent, which keeps that identity. So starting twice, from any number of processes
 * and after any crash, runs one agent. $1: the process file; the rest: the agent's argv.
 */
const BOOT = `draft="$1.$$"
{ ${PRINT_IDENTITY}; } >"$draft" && ln "$draft" "$1" 2>/dev/null && rm -f "$draft" || { rm -f "$draft"; exit; }
shift
exec "$@"`

/** Milliseconds between two looks at the process file, and how many looks. */
const POLL_MS = 10
const POLLS = 1000

/** Of the agent itself and of what starts it; enough for any POSIX system. */
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/** What a VM is started with, whoever's it is. */
export interface Agent {
  /** Program and arguments; it is given `--data-dir DIR` and reads DIR/user-data.json. */
  agentCommand: readonly string[]
  /** What its environment has besides PATH and HOME. */
  agentEnvironment?: Readonly<Record<string, string>>
}

/**
 * Starts the VM's agent unless it was ever started, in a session of its own that outlives this process, with nothing of this
 * process' environment. Returns when it is known who the agent is. Throws TransientError when none starts.
 */
export async function powerOn(folder: VmFolder, { agentCommand, agentEnvironment }: Agent): Promise<void> {
  const log = await open(folder.agentLog, "a", 0o600)
  try {
    const argv = ["-c", BOOT, "berth-vm", folder.processFile, ...agentCommand, "--data-dir", folder.disk]
    const child = spawn("/bin/sh", argv, {
      cwd: folder.disk,
      // HOME is the VM's disk: in this user's own one are credentials.
      env: { ...agentEnvironment, PATH, HOME: folder.disk },
      detached: true,
      stdio: ["ignore", log.fd, log.fd],
    })
    child.unref()
    await started(child)
    await recorded(folder, child)
  } finally {
    await log.close()
  }
}

async function started(child: ChildProcess): Promise<void> {
  try {
    await once(child, "spawn")
  } catch (error) {
    throw new TransientError("SpawnFailed", "this host could not start a process for the VM", { cause: error })
  }
}

/** Waits until the child is the VM's agent, or has ended because there is one. */
async function recorded(folder: VmFolder, child: ChildProcess): Promise<void> {
  for (let poll = 0; poll < POLLS; poll++) {
    const ended = child.exitCode !== null || child.signalCode !== null
    const agent = await folder.process()
    if (ended && agent === undefined) break
    if (ended || (typeof agent === "object" && agent.pid === child.pid)) return
    await sleep(POLL_MS)
  }
  throw new TransientError("BootFailed", `the VM did not start; ${folder.agentLog} may tell why (is the disk full?)`)
}
