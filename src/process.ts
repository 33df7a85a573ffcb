/** Time a program may take to stop after its signal, seconds. The process then ends whatever hangs. */
const STOP_SECONDS = 9

/** Time that what a program has left open may keep the process alive after its end, seconds. */
const LINGER_SECONDS = 1

/** One Ctrl-C may arrive several times: from the terminal, and from each program in between that passes it on. */
const SAME_SIGNAL_MS = 1000

/** Options of a command's process. */
export interface ProcessOptions {
  /** Command, as error messages name it. */
  command: string
  /** Set for a program with stop limits of its own, such as an agent that still has results to upload. */
  hasOwnLimits?: boolean
}

/**
 * Runs a command and sets the exit code of this process: the command's own, 130 when a signal stopped it, 1 for an error.
 * @param run is given a function that starts to listen for SIGINT and SIGTERM; before that call they end the process
 */
export async function runProcess(
  { command, hasOwnLimits = false }: ProcessOptions,
  run: (stopSignal: () => AbortSignal) => Promise<number>,
): Promise<void> {
  const stopping = new AbortController()
  try {
    process.exitCode = await run(() => listen(stopping, hasOwnLimits ? undefined : () => giveUp(command)))
  } catch (error) {
    process.exitCode = stopping.signal.aborted ? 130 : 1
    if (!stopping.signal.aborted)
      console.error(`berth ${command}: ${error instanceof Error ? describe(error) : String(error)}`)
  }
  setTimeout(() => process.exit(), LINGER_SECONDS * 1000).unref()
}

/** Aborts at the first SIGINT or SIGTERM, for a stop in order. Another Ctrl-C after that ends the process at once. */
function listen(stopping: AbortController, giveUp: (() => void) | undefined): AbortSignal {
  let stoppedAt = 0
  const stop = (name: NodeJS.Signals): void => {
    if (!stopping.signal.aborted) {
      stoppedAt = performance.now()
      if (giveUp !== undefined) setTimeout(giveUp, STOP_SECONDS * 1000).unref()
    } else if (name === "SIGINT" && performance.now() - stoppedAt > SAME_SIGNAL_MS) process.exit(130)
    stopping.abort(new Error(`stopped by ${name}`))
  }
  process.on("SIGINT", stop)
  process.on("SIGTERM", stop)
  return stopping.signal
}

function giveUp(command: string): void {
  console.error(`berth ${command}: not everything ended within ${STOP_SECONDS} s; this process ends now`)
  process.exit(1)
}

/** Formats an error for a person; with its stack only where the fault is Berth's own. */
function describe(error: Error): string {
  const cause = error.cause instanceof Error ? `\n  because: ${error.cause.message}` : ""
  const isOurs = error instanceof TypeError || error instanceof ReferenceError
  return `${isOurs ? (error.stack ?? error.message) : error.message}${cause}`
}
