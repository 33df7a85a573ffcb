import { type Clock, secondsBetween, systemClock, timestamp } from "../apis/clock.ts"
import type { Finish } from "../apis/launch.ts"
import { parseUserData } from "./bootstrap.ts"
import { Disk, makeDataDir } from "./disk.ts"
import { acquireLock } from "./lock.ts"
import type { Logger } from "./logger.ts"
import type { LeaveCause } from "./outcome.ts"
import { alarm, pause } from "./pause.ts"
import { STOP_GRACE_SECONDS } from "./run.ts"
import { LAST_WORD_SECONDS, Session, type SessionContext } from "./session.ts"

/** From the end of the lifetime until the agent leaves, whatever still hangs; beyond the stop's grace, seconds. */
const HARD_END_SECONDS = 20

export interface AgentOptions {
  /** The agent's folder on the VM's disk; made when it isn't there. */
  dataDir: string
  /** What the VM was started with (renderUserData). */
  userData: string
  /** Aborted when the VM is being shut down. */
  signal?: AbortSignal
  /** Absent: docker when an engine answers, else process. `docker` waits for the engine. */
  runtime?: "docker" | "process"
  dockerSocket?: string
  /** Of the cloud's metadata service; default: where all clouds have it. */
  metadataUrl?: string
  logger: Logger
  clock?: Clock
  /** Between SIGTERM and SIGKILL, seconds. Default 10. */
  stopGraceSeconds?: number
  /** From a shutdown to the agent's end at most, seconds. Default: as long as uploads of what was written may take. */
  shutdownSeconds?: number
  /** How long the log may hold up the finish, seconds. Default 60. */
  flushSeconds?: number
  /** Bytes of output kept on the disk. Default 128 MiB. */
  spoolBytes?: number
}

/** Why the agent has nothing more to do: the VM is to power off. */
export interface AgentExit {
  /** `finished`: the gateway has stored the finish. The others: nobody may know how the run ended, but it has. */
  cause: "finished" | LeaveCause
  finish?: Finish
}

/**
 * A VM's main: runs the one container that the gateway orders and tells how it goes, until the result is stored.
 * Resolves when the VM is to power off; nothing of the run is left then. Rejects with TypeError for unreadable
 * user data and with AgentBusyError when another agent works in the folder.
 */
export async function runAgent(options: AgentOptions): Promise<AgentExit> {
  const config = parseUserData(options.userData)
  const clock = options.clock ?? systemClock
  // Armed before anything else can hang.
  const leave = new AbortController()
  const expire = (): void => leave.abort("expired" satisfies LeaveCause)
  const cancelLifetime = alarm(clock, config.lifetimeSeconds, expire)
  const done = new AbortController()
  const shutDown = (): void => leave.abort("shutdown" satisfies LeaveCause)
  options.signal?.addEventListener("abort", shutDown, { once: true })
  if (options.signal?.aborted === true) shutDown()
  try {
    makeDataDir(options.dataDir)
    using _lock = acquireLock(options.dataDir)
    const hardEnd = afterLeaving(clock, leave.signal, { done: done.signal, options })
    return await Promise.race([runOnDisk({ ...options, config, clock, leave }), hardEnd])
  } finally {
    done.abort()
    cancelLifetime()
    options.signal?.removeEventListener("abort", shutDown)
  }
}

function hardEndSeconds(cause: LeaveCause, { stopGraceSeconds = STOP_GRACE_SECONDS, shutdownSeconds }: AgentOptions) {
  if (cause === "shutdown" && shutdownSeconds !== undefined) return shutdownSeconds
  return 2 * stopGraceSeconds + LAST_WORD_SECONDS + HARD_END_SECONDS
}

/** Resolves some seconds after the order to leave: a hanging engine must not keep a VM alive. */
async function afterLeaving(
  clock: Clock,
  leave: AbortSignal,
  { done, options }: { done: AbortSignal; options: AgentOptions },
): Promise<AgentExit> {
  await pause(clock, Number.POSITIVE_INFINITY, AbortSignal.any([leave, done]))
  const cause = leave.reason as LeaveCause
  await pause(clock, hardEndSeconds(cause, options), done)
  return { cause }
}

/** Opens what an earlier agent may have left, and goes on from there. */
async function runOnDisk(context: SessionContext): Promise<AgentExit> {
  const { config, clock, leave, dataDir, logger } = context
  const disk = await Disk.open(dataDir, timestamp(clock.now()), (error) => {
    logger.error({ err: error }, "state not written: a restart of the agent would not know of it")
  })
  // The lifetime is the VM's, not this agent's: an earlier one may have used up a part.
  const age = Math.max(0, secondsBetween(disk.state.bootTime, clock.now()))
  const cancelLifetime = alarm(clock, config.lifetimeSeconds - age, () => leave.abort("expired" satisfies LeaveCause))
  try {
    if (!disk.state.finishStored) await new Session(context, disk).run()
    const { finish, finishStored } = disk.state
    const cause = finishStored ? "finished" : (leave.signal.reason as LeaveCause)
    return { cause, ...(finish !== undefined && { finish }) }
  } finally {
    cancelLifetime()
  }
}
