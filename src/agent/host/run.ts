import { rm } from "node:fs/promises"
import { type Clock, timestamp } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { LEASE_END_SECONDS } from "../../core/machines/machine.ts"
import { whyUnfit } from "../clean.ts"
import type { LaunchOptions } from "../context.ts"
import { Disk, makeDataDir } from "../disk.ts"
import { runLaunch } from "../main.ts"
import type { LeaveCause } from "../run.ts"
import { waitUnlessAborted } from "../timers.ts"
import type { Order } from "./disk.ts"

/** Time between two looks at the lease, seconds. Timers stand still while the machine is suspended. */
const LEASE_CHECK_SECONDS = 5

/** Needs of a host for the run of a Launch. */
export interface HostRun extends LaunchOptions {
  clock: Clock
  /** Folder of the run, in which it may leave nothing. */
  dataDir: string
  /** Returns the seconds that are left of the lease. */
  leaseSeconds: () => number
}

/**
 * Runs a Launch to its end, as the agent of a VM does. Continues one that an earlier agent has begun. Resolves with false
 * if parts of it may still hang in this process. Never rejects.
 * @param leave aborted with a LeaveCause when the run has to end
 */
export async function runOrder(run: HostRun, { config, since }: Order, leave: AbortController): Promise<boolean> {
  const done = new AbortController()
  const watch = endBeforeLease(run, leave, done.signal)
  try {
    makeDataDir(run.dataDir)
    const { cause, isAbandoned } = await runLaunch({ ...run, leave }, { root: config.launch, since, config })
    run.logger.info({ launch: config.launch, cause }, `the run of ${config.launch} is over`)
    return isAbandoned !== true
  } catch (error) {
    run.logger.error({ err: error, launch: config.launch }, `the run of ${config.launch} failed`)
    return true
  } finally {
    done.abort()
    await watch
  }
}

/** Ends the run shortly before the lease is over, unless the gateway's answers extend it. */
async function endBeforeLease(
  { clock, leaseSeconds, logger }: HostRun,
  leave: AbortController,
  done: AbortSignal,
): Promise<void> {
  while (!done.aborted) {
    const left = leaseSeconds() - LEASE_END_SECONDS
    if (left <= 0) {
      logger.error(
        { seconds: leaseSeconds() },
        "no answer from Berth until shortly before the end of the lease; ending the run",
      )
      leave.abort("lease" satisfies LeaveCause)
      return
    }
    await waitUnlessAborted(clock, Math.min(left, LEASE_CHECK_SECONDS), done)
  }
}

/**
 * Removes everything of a Launch from the host, and checks that. What is the owner's stays. Returns why that failed;
 * undefined if nothing is left. Never rejects.
 */
export async function cleanAfter(run: HostRun, { config }: Order): Promise<string | undefined> {
  const { clock, dataDir, logger } = run
  try {
    makeDataDir(dataDir)
    const about = { launch: config.launch, since: timestamp(clock.now()) }
    const disk = await Disk.open(dataDir, about, (error) => logFailedWrite(logger, error))
    const leave = new AbortController()
    const context = { ...run, config, isTakeover: false, leave }
    const why = await whyUnfit(context, disk, { isHostShared: true, signal: leave.signal })
    if (why !== undefined) return why
    await rm(dataDir, { recursive: true, force: true })
    return undefined
  } catch (error) {
    return `the machine could not be cleaned after its job: ${error instanceof Error ? error.message : String(error)}`
  }
}

export function logFailedWrite(logger: Logger, error: unknown): void {
  logger.error({ err: error }, "failed to write the state; a restarted agent would not have it")
}
