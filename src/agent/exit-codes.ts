/**
 * Signals of Linux by number that end a process, on the architectures of all clouds (man 7 signal). Those that are
 * ignored by default, or that stop or continue a process, end none.
 */
const SIGNALS: Readonly<Record<number, string>> = {
  ...{ 1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1" },
  ...{ 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 24: "XCPU", 25: "XFSZ" },
  ...{ 26: "VTALRM", 27: "PROF", 29: "IO", 30: "PWR", 31: "SYS" },
}

/** Exit codes that a shell, and an init, give to a command that can't be started (POSIX, 2.8.2), and what helps. */
const NOT_STARTED: Readonly<Record<number, { meaning: string; remedy: string }>> = {
  126: { meaning: "command not executable", remedy: "make it executable, for the VM's architecture" },
  127: { meaning: "command not found", remedy: "use a program that the image has, for the VM's architecture" },
}

/** Returns true for the exit codes of a command that could not be started. */
export function isNotStarted(exitCode: number): boolean {
  return NOT_STARTED[exitCode] !== undefined
}

/** Remedies after a signal, if nothing says its cause. Other signals are those of the program's own design. */
const SIGNAL_REMEDIES: Readonly<Record<string, string>> = {
  ILL: "the program needs CPU instructions that this machine lacks; choose another machine, or rebuild it",
  ABRT: "the program ended itself; read the end of its log",
  // A page of shared memory that has no room gives SIGBUS to the process that touches it (man 5 tmpfs).
  BUS: "is /dev/shm full? Raise resources.memory, of which it is a part",
  KILL: "a process of the job killed it; read the end of its log",
  SEGV: "the program or one of its libraries used memory wrongly; correct it, or use other versions",
}

/** Offset of a signal's number in the exit code of the process that it ended. */
const SIGNAL_BASE = 128

/** Exit code of a process that SIGKILL ended. */
export const KILLED_EXIT_CODE = SIGNAL_BASE + 9

/**
 * Returns why a container has failed and what helps, such as `exit code 127 (command not found); use a program …`. A code without
 * a meaning stands alone: the program's output says more.
 * @param cause of the end, with its own remedy, if the runtime knows it
 */
export function failureText(exitCode: number, cause?: string): string {
  const { meaning, remedy } = NOT_STARTED[exitCode] ?? {}
  const signal = SIGNALS[exitCode - SIGNAL_BASE]
  const means = meaning ?? (signal === undefined ? undefined : `SIG${signal}`)
  const code = means === undefined ? `exit code ${exitCode}` : `exit code ${exitCode} (${means})`
  const why = cause === undefined ? code : `${code}: ${cause}`
  const helps = remedy ?? (cause === undefined && signal !== undefined ? SIGNAL_REMEDIES[signal] : undefined)
  return helps === undefined ? why : `${why}; ${helps}`
}

/** Returns a signal's name from a number or a name in any of Docker's forms: `15`, `TERM` and `SIGTERM` are the same. */
export function signalName(signal: string): string {
  const known = SIGNALS[Number(signal)]
  return `SIG${known ?? signal.toUpperCase().replace(/^SIG/, "")}`
}
