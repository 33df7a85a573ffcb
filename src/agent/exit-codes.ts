/**
 * Signals of Linux by number that end a process, on the architectures of all clouds (man 7 signal). Those that are
 * ignored by default, or that stop or continue a process, end none.
 */
const SIGNALS: Readonly<Record<number, string>> = {
  ...{ 1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1" },
  ...{ 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 24: "XCPU", 25: "XFSZ" },
  ...{ 26: "VTALRM", 27: "PROF", 29: "IO", 30: "PWR", 31: "SYS" },
}

/** Exit codes that a shell, and an init, give to a command that can't be started (POSIX, 2.8.2). */
const NOT_STARTED: Readonly<Record<number, string>> = { 126: "command not executable", 127: "command not found" }

/** Offset of a signal's number in the exit code of the process that it ended. */
const SIGNAL_BASE = 128

const SIGBUS = 7

/** Exit code of a process that SIGKILL ended. */
export const KILLED_EXIT_CODE = SIGNAL_BASE + 9

/** Returns an exit code and its meaning, such as `exit code 139 (SIGSEGV)`. Codes without a meaning stand alone. */
export function exitText(exitCode: number): string {
  const meaning = NOT_STARTED[exitCode] ?? signalText(exitCode - SIGNAL_BASE)
  return meaning === undefined ? `exit code ${exitCode}` : `exit code ${exitCode} (${meaning})`
}

/** Returns a signal's name from a number or a name in any of Docker's forms: `15`, `TERM` and `SIGTERM` are the same. */
export function signalName(signal: string): string {
  const known = SIGNALS[Number(signal)]
  return `SIG${known ?? signal.toUpperCase().replace(/^SIG/, "")}`
}

function signalText(number: number): string | undefined {
  const name = SIGNALS[number]
  if (name === undefined) return undefined
  // A page of shared memory that has no room gives SIGBUS to the process that touches it (man 5 tmpfs).
  return number === SIGBUS ? `SIG${name}: is /dev/shm full?` : `SIG${name}`
}
