import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { open } from "node:fs/promises"
import { setTimeout as sleep } from "node:timers/promises"
import { TransientError } from "../../src/core/outbound/errors.ts"
import type { VmFolder } from "./folder.ts"
import { PRINT_IDENTITY } from "./processes.ts"

/**
 * Becomes the agent, once in a VM's life. The shell writes its identity to a draft and links it to the process file.
 * The link fails if that file exists. Then the shell executes the agent, which keeps the shell's identity. So any
 * number of starts, from any processes and after any crash, run one agent. $1: the process file; the rest: the agent's
 * argv.
 */
const BOOT = `draft="$1.$$"
{ ${PRINT_IDENTITY}; } >"$draft" && ln "$draft" "$1" 2>/dev/null && rm -f "$draft" || { rm -f "$draft"; exit; }
shift
exec "$@"`

/** Poll interval of the process file in milliseconds, and the number of polls. */
const POLL_MS = 10
const POLLS = 1000

/** PATH of the agent and of its descendants; enough for any POSIX system. */
const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/** Start options of all VMs. */
export interface Agent {
  /** Program and arguments. It gets `--data-dir DIR` and reads DIR/user-data.json. */
  agentCommand: readonly string[]
  /** Environment variables in addition to PATH and HOME. */
  agentEnvironment?: Readonly<Record<string, string>>
}

/**
 * Starts the VM's agent unless it was ever started. It runs in a session of its own, which outlives this process, and
 * inherits nothing of its environment. Returns when the agent's identity is known. Throws TransientError if none
 * starts.
 */
export async function powerOn(folder: VmFolder, { agentCommand, agentEnvironment }: Agent): Promise<void> {
  const log = await open(folder.agentLog, "a", 0o600)
  try {
    const argv = ["-c", BOOT, "berth-vm", folder.processFile, ...agentCommand, "--data-dir", folder.disk]
    const child = spawn("/bin/sh", argv, {
      cwd: folder.disk,
      // HOME is the VM's disk, because the user's own home has credentials.
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

/** Waits until the child is the VM's agent, or has ended because another agent exists. */
async function recorded(folder: VmFolder, child: ChildProcess): Promise<void> {
  for (let poll = 0; poll < POLLS; poll++) {
    const ended = child.exitCode !== null || child.signalCode !== null
    const agent = await folder.process()
    if (ended && agent === undefined) {
      const advice = `${folder.agentLog} may show why (is the disk full?)`
      throw new TransientError("BootFailed", `the VM's process ended before it was its agent; ${advice}`)
    }
    if (ended || (typeof agent === "object" && agent.pid === child.pid)) return
    await sleep(POLL_MS)
  }
  const seconds = (POLLS * POLL_MS) / 1000
  throw new TransientError("BootFailed", `the VM's agent did not start within ${seconds} s; is this machine too busy?`)
}
