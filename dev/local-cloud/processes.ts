import { execFileSync } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"

/** Permanent identity of a process, in the agent's notation too. A pid alone is not enough: the system reuses it. */
export interface ProcessIdentity {
  pid: number
  /**
   * Linux: id of the boot, a slash, clock ticks since then. Other systems: the start time of ps. Only compared for
   * equality.
   */
  startedAt: string
}

/** A running process (zombies are excluded). `session` is 0 if the system does not report it. */
export interface ProcessEntry extends ProcessIdentity {
  parent: number
  group: number
  session: number
}

/** All processes of this host at one moment, by pid. */
export type ProcessTable = ReadonlyMap<number, ProcessEntry>

const BOOT_ID = "/proc/sys/kernel/random/boot_id"

/** PATH of ps on any system. `LC_ALL` is set because ps prints start times in the language of its environment. */
const PS_ENVIRONMENT = { PATH: "/usr/bin:/bin", LC_ALL: "C" }

/**
 * A shell command that prints the identity of its own shell, for `parseIdentity`. The pid and start time stay the same
 * when the shell becomes another program by `exec`.
 */
export const PRINT_IDENTITY = `echo $$; cat ${BOOT_ID} /proc/$$/stat 2>/dev/null || LC_ALL=C ps -o lstart= -p $$`

/** Parses the output of `PRINT_IDENTITY`; undefined if it was cut short. */
export function parseIdentity(text: string): ProcessIdentity | undefined {
  const [pid, second, third] = text.split("\n").map((line) => line.trim())
  if (!pid || !second || !text.endsWith("\n")) return undefined
  if (third) return { pid: Number(pid), startedAt: `${second}/${parseStat(Number(pid), third)?.startedAt}` }
  return { pid: Number(pid), startedAt: second }
}

export function isAlive(identity: ProcessIdentity, table: ProcessTable): boolean {
  return table.get(identity.pid)?.startedAt === identity.startedAt
}

/**
 * Returns all processes that descend from the leader of a session: the leader, its session, its group, and their
 * descendants. The leader may be dead. A pid that the system has given to another process since is excluded.
 */
export function treeOf(leader: ProcessIdentity, table: ProcessTable): ProcessEntry[] {
  const reused = table.has(leader.pid) && !isAlive(leader, table)
  if (reused) return []
  const members = new Set<number>()
  const belongs = (entry: ProcessEntry) =>
    entry.session === leader.pid || entry.group === leader.pid || entry.pid === leader.pid || members.has(entry.parent)
  for (let before = -1; before !== members.size; ) {
    before = members.size
    for (const entry of table.values()) if (belongs(entry)) members.add(entry.pid)
  }
  return [...table.values()].filter((entry) => members.has(entry.pid))
}

/** Sends a signal. A process that has already ended isn't an error. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error
  }
}

/**
 * Reads the process table from /proc, or from ps if there is no /proc. Synchronous, so that it also works while this
 * process exits, and because hundreds of asynchronous reads take seconds on a busy machine.
 */
export function readProcessTable(): ProcessTable {
  const entries = process.platform === "linux" ? fromProc() : fromPs()
  return new Map(entries.map((entry) => [entry.pid, entry]))
}

function fromProc(): ProcessEntry[] {
  const bootId = readFileSync(BOOT_ID, "utf8").trim()
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name))
  return pids
    .map((pid) => parseStat(Number(pid), readStat(`/proc/${pid}/stat`)))
    .filter((entry) => entry !== undefined)
    .map((entry) => ({ ...entry, startedAt: `${bootId}/${entry.startedAt}` }))
}

function readStat(path: string): string {
  try {
    return readFileSync(path, "utf8")
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // The process ended after it was listed.
    if (code === "ENOENT" || code === "ESRCH") return ""
    throw error
  }
}

/**
 * Parses proc_pid_stat(5). The name in field 2 may contain spaces and parentheses; state is field 3, start time field
 * 22.
 */
function parseStat(pid: number, stat: string): ProcessEntry | undefined {
  const [state, parent, group, session, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
  const startedAt = rest[15]
  if (startedAt === undefined || state === "Z" || state === "X") return undefined
  return { pid, parent: Number(parent), group: Number(group), session: Number(session), startedAt }
}

function fromPs(): ProcessEntry[] {
  const columns = ["-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="]
  return execFileSync("ps", columns, { env: PS_ENVIRONMENT, encoding: "utf8" })
    .split("\n")
    .map((line) => /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(.+?)\s*$/.exec(line))
    .filter((match) => match !== null && !match[4]?.startsWith("Z"))
    .map((match) => ({
      pid: Number(match?.[1]),
      parent: Number(match?.[2]),
      group: Number(match?.[3]),
      session: 0,
      startedAt: match?.[5] ?? "",
    }))
}
