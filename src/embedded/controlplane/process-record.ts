import { execFile } from "node:child_process"
import { readFile } from "node:fs/promises"
import { promisify } from "node:util"

const run = promisify(execFile)

/** Names one process for good: a pid alone may be given to another process later. */
export interface ProcessRecord {
  readonly pid: number
  /** When it started, in the system's own notation; only compared for equality. */
  readonly startedAt: string
}

/** The record of a living process; undefined when there is none with that pid (an unreaped zombie counts as ended). */
export async function recordOf(pid: number): Promise<ProcessRecord | undefined> {
  const startedAt = process.platform === "linux" ? await startFromProc(pid) : await startFromPs(pid)
  return startedAt === undefined ? undefined : { pid, startedAt }
}

/** Whether the recorded process still runs (and its pid is not another's by now). */
export async function isRunning(record: ProcessRecord): Promise<boolean> {
  return (await recordOf(record.pid))?.startedAt === record.startedAt
}

/** Reads a record that was written as JSON; undefined for anything else (a file cut short by a crash). */
export function parseRecord(text: string): ProcessRecord | undefined {
  try {
    const { pid, startedAt } = JSON.parse(text) as Partial<ProcessRecord>
    return Number.isInteger(pid) && typeof startedAt === "string" ? { pid: Number(pid), startedAt } : undefined
  } catch {
    return undefined
  }
}

/** /proc/PID/stat (proc_pid_stat(5)): state is field 3, starttime field 22; the name in field 2 may hold spaces. */
async function startFromProc(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8")
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
    return fields[0] === "Z" || fields[0] === "X" ? undefined : fields[19]
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === "ENOENT" || code === "ESRCH") return undefined
    throw error
  }
}

async function startFromPs(pid: number): Promise<string | undefined> {
  try {
    const { stdout } = await run("ps", ["-o", "stat=,lstart=", "-p", String(pid)])
    const [, state, started] = /^(\S+)\s+(.+)$/.exec(stdout.trim()) ?? []
    return state?.startsWith("Z") ? undefined : started
  } catch (error) {
    // ps exits with 1 when no such process exists.
    if ((error as { code?: unknown }).code === 1) return undefined
    throw error
  }
}
