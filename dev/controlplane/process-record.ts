import { processIdentity } from "../../src/agent/processes.ts"

/** Names one process for good: a pid alone may be given to another process later. */
export interface ProcessRecord {
  readonly pid: number
  /** As `processIdentity` has it. */
  readonly startedAt: string
}

/** The record of a living process; undefined when there is none with that pid (an unreaped zombie counts as ended). */
export function recordOf(pid: number): ProcessRecord | undefined {
  const startedAt = processIdentity(pid)
  return startedAt === undefined ? undefined : { pid, startedAt }
}

/** Whether the recorded process still runs (and its pid is not another's by now). */
export function isRunning({ pid, startedAt }: ProcessRecord): boolean {
  return processIdentity(pid) === startedAt
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
