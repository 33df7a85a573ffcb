import { execFileSync } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"

/**
 * Returns an identity that distinguishes a process from a later one with the same number. It is the start time and, on
 * Linux, the boot id. Undefined if there is no such process. A zombie does not count.
 */
export function processIdentity(pid: number): string | undefined {
  return process.platform === "linux" ? linuxIdentity(pid) : portableIdentity(pid)
}

function linuxIdentity(pid: number): string | undefined {
  const stat = statOf(pid)
  // The command's name is in parentheses and may contain any character. Field 3 follows it (man 5 proc).
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
  const [state, startTicks] = [fields[0], fields[19]]
  if (state === "Z" || state === "X" || startTicks === undefined) return undefined
  return `${readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()}/${startTicks}`
}

/** Returns an empty text if there is no such process. */
function statOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8")
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === "ENOENT" || code === "ESRCH") return ""
    throw error
  }
}

function portableIdentity(pid: number): string | undefined {
  try {
    const env = { LC_ALL: "C" }
    const said = execFileSync("ps", ["-o", "stat=,lstart=", "-p", String(pid)], { encoding: "utf8", env })
    const [, state, started] = /^(\S+)\s+(.+)$/.exec(said.trim()) ?? []
    return state?.startsWith("Z") ? undefined : started
  } catch (error) {
    // ps exits with 1 if there is no such process.
    if ((error as { status?: unknown }).status === 1) return undefined
    throw error
  }
}

/**
 * Returns the processes that were started with this variable in their environment, as `NAME=value`. Only those of the own
 * user are found, unless that is root. @throws Error on systems without /proc
 */
export function processesWith(variable: string): number[] {
  if (process.platform !== "linux")
    throw new Error(`processes can't be found by their environment on ${process.platform}`)
  const numbers = readdirSync("/proc").filter((name) => /^[1-9][0-9]*$/.test(name))
  return numbers.map(Number).filter((pid) => environmentOf(pid).includes(variable))
}

/** Returns the environment with which a process was started; empty if it is another user's, a zombie, or has ended. */
function environmentOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0")
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException
    if (["ENOENT", "ESRCH", "EACCES", "EPERM"].includes(code)) return []
    throw error
  }
}

/** Sends a signal to a whole process group. Returns false if there is none. */
export function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  return signalProcess(-group, signal)
}

/** Sends a signal to a process. Returns false if there is none. */
export function signalProcess(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false
    throw error
  }
}
