import { readFileSync } from "node:fs"
import { join } from "node:path"
import { AgentBusyError } from "./lock.ts"
import type { Logger } from "./logger.ts"
import { type AgentOptions, runAgent } from "./main.ts"

/** Where the agent looks for what its VM was started with, in its data folder. */
export const USER_DATA_FILE = "user-data.json"

/** Exit codes beside 0, "power off" (sysexits.h): another agent works in the folder; the user data can't be read. */
export const EXIT_BUSY = 75
export const EXIT_CONFIG = 78

export interface AgentCommandOptions extends Pick<AgentOptions, "dataDir" | "runtime" | "dockerSocket"> {
  /** File with the user data, `-` for standard input. Default: `user-data.json` in the data folder. */
  userData?: string
  logger: Logger
}

/**
 * What `berth agent` does. Resolves with the exit code; the caller must exit with it then, whatever still hangs.
 * SIGTERM and SIGINT mean that the VM is being shut down.
 */
export async function agentCommand({ userData, ...options }: AgentCommandOptions): Promise<number> {
  const { logger, dataDir } = options
  const shutdown = new AbortController()
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => shutdown.abort())
  try {
    const path = userData ?? join(dataDir, USER_DATA_FILE)
    const text = readFileSync(path === "-" ? 0 : path, "utf8")
    const exit = await runAgent({ ...options, userData: text, signal: shutdown.signal })
    logger.info({ ...exit }, "the agent is done: power off")
    return 0
  } catch (error) {
    logger.error({ err: error }, "the agent can't work")
    if (error instanceof AgentBusyError) return EXIT_BUSY
    if (error instanceof TypeError || isNodeError(error)) return EXIT_CONFIG
    return 1
  }
}

/** An error of the operating system, such as a missing file. */
function isNodeError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "syscall" in error
}
