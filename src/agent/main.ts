import { type Clock, secondsBetween, systemClock, timestamp } from "../core/apis/clock.ts"
import type { Finish } from "../core/apis/launch.ts"
import { parseUserData } from "../core/protocol/messages.ts"
import type { BootConfig } from "../core/protocol/protocol.ts"
import { type AgentOptions, type LaunchContext, type LaunchOptions, whenAborted } from "./context.ts"
import { acquireLock, type Boot, Disk, makeDataDir, readBoot, writeBoot } from "./disk.ts"
import { type AfterRun, afterRun } from "./idle.ts"
import { keptSecondsLeft } from "./kept.ts"
import { afterLeaving, endTimers } from "./leaving.ts"
import type { LeaveCause } from "./run.ts"
import { Session } from "./session.ts"

export type { AgentOptions } from "./context.ts"
export { AGENT_VERSION } from "./session.ts"

/** Cause of the agent's end. The VM powers off then. */
export interface AgentExit {
  /** Last Launch that had the VM. */
  launch: string
  /**
   * `finished`: the gateway has stored the finish. Otherwise the run has ended, and the gateway may not have the
   * result.
   */
  cause: "finished" | LeaveCause
  finish?: Finish
  /** Reason why the VM takes no other job. Absent: its job did not ask for that. */
  why?: string
}

/**
 * Runs the container that the gateway orders and reports its progress until the gateway has stored the result. Then the
 * VM may wait for another job, and runs one Launch after another. Each has keys and state of its own. Resolves when the VM
 * can power off and nothing of a run is left.
 * @throws TypeError for unreadable user data
 * @throws AgentBusyError if another agent uses the folder
 */
export async function runAgent(options: AgentOptions): Promise<AgentExit> {
  const userData = parseUserData(options.userData)
  const { dataDir, logger, clock = systemClock, signal } = options
  makeDataDir(dataDir)
  using _lock = acquireLock(dataDir)
  for (let boot = readBoot(dataDir, userData); ; ) {
    const leave = new AbortController()
    const shutDown = (): void => leave.abort("shutdown" satisfies LeaveCause)
    const cancel = signal === undefined ? undefined : whenAborted(signal, shutDown)
    try {
      const { next, isAbandoned: _, ...exit } = await runLaunch({ ...options, clock, leave, after: afterRun }, boot)
      if (next === undefined) return exit
      logger.info({ launch: next.launch, predecessor: boot.config.launch }, `took over launch ${next.launch}`)
      boot = { root: boot.root, since: timestamp(clock.now()), config: next }
      writeBoot(dataDir, boot)
    } finally {
      cancel?.()
    }
  }
}

/** End of a Launch. */
export type LaunchEnd = AgentExit & {
  /** Boot config of the Launch that has the VM now. */
  next?: BootConfig
  /** True if the run did not end in its time. Parts of it may still hang in this process. */
  isAbandoned?: true
}

/** Parts of the run of one Launch. */
export interface LaunchParts {
  clock: Clock
  /** Aborted with a LeaveCause when the run has to end. */
  leave: AbortController
  /** Called when the finish is stored. */
  after?: (context: LaunchContext, disk: Disk) => Promise<AfterRun>
}

/** Runs one Launch until its machine has another one, or nothing more to do for it. */
export async function runLaunch(options: LaunchOptions & LaunchParts, boot: Boot): Promise<LaunchEnd> {
  const { config, root } = boot
  const { clock, leave } = options
  // The lifetime's timer starts before any step that can hang.
  const cancelTimers = endTimers(config, { clock, leave, age: 0 })
  const done = new AbortController()
  const context = { ...options, config, isTakeover: config.launch !== root }
  try {
    const hardEnd = afterLeaving(clock, leave.signal, { done: done.signal, options })
    const ended = hardEnd.then((cause): LaunchEnd => ({ launch: config.launch, cause, isAbandoned: true }))
    return await Promise.race([runOnDisk(context, boot.since ?? timestamp(clock.now())), ended])
  } finally {
    done.abort()
    cancelTimers()
  }
}

/** Opens the state that an earlier agent may have left and continues from it. */
async function runOnDisk(context: LaunchContext & LaunchParts, since: string): Promise<LaunchEnd> {
  const { config, clock, leave, dataDir, logger, after } = context
  const { launch } = config
  const disk = await Disk.open(dataDir, { launch, since }, (error) => {
    logger.error({ err: error }, "failed to write the state; a restarted agent would not have it")
  })
  // The lifetime is the Launch's, not this agent's. An earlier agent may have used a part of it.
  const age = Math.max(0, secondsBetween(disk.state.bootTime, clock.now()))
  const cancelTimers = endTimers(config, { clock, leave, age })
  try {
    if (!disk.state.finishStored || keptSecondsLeft(disk.state, clock) > 0) await new Session(context, disk).run()
    const { finish, finishStored } = disk.state
    const cause = finishStored ? "finished" : (leave.signal.reason as LeaveCause)
    const more = finishStored ? await after?.(context, disk) : {}
    return { launch, cause, ...(finish !== undefined && { finish }), ...more }
  } finally {
    cancelTimers()
  }
}
