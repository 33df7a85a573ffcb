import { processIdentity } from "../../src/agent/processes.ts"

/** Permanent identity of a process. A pid alone is not enough: the system reuses it. */
export interface ProcessRecord {
  readonly pid: number
  /** In the form of `processIdentity`. */
  readonly startedAt: string
}

/**
 * Returns the record of a living process; undefined if no process has that pid (an unreaped zombie counts as ended).
 */
export function recordOf(pid: number): ProcessRecord | undefined {
  const startedAt = processIdentity(pid)
  return startedAt === undefined ? undefined : { pid, startedAt }
}

/** Returns true if the recorded process still runs, and no other process has its pid. */
export function isRunning({ pid, startedAt }: ProcessRecord): boolean {
  return processIdentity(pid) === startedAt
}

/** Parses a record that was written as JSON; undefined for anything else (such as a file that a crash truncated). */
export function parseRecord(text: string): ProcessRecord | undefined {
  try {
    const { pid, startedAt } = JSON.parse(text) as Partial<ProcessRecord>
    return Number.isInteger(pid) && typeof startedAt === "string" ? { pid: Number(pid), startedAt } : undefined
  } catch {
    return undefined
  }
}
