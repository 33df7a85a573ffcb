import { type Clock, secondsBetween, timestamp } from "../core/apis/clock.ts"
import { defined } from "../core/apis/defined.ts"
import { openBootConfig } from "../core/protocol/messages.ts"
import type { BootConfig, NextRequest, NextResponse } from "../core/protocol/protocol.ts"
import { whyNotReusable } from "../core/reuse/reuse.ts"
import { whyUnfit } from "./clean.ts"
import { type LaunchContext, whenAborted } from "./context.ts"
import type { AgentState, Disk } from "./disk.ts"
import { GatewayClient } from "./gateway-client.ts"
import { GatewayError, RefusedError, retrySeconds } from "./gateway-connection.ts"
import { preemptionNotice } from "./preemption.ts"
import type { VmLeaveCause } from "./run.ts"
import { timer, waitUnlessAborted } from "./timers.ts"

/** Minimum delay between two questions, seconds, because something on the way may answer each at once. */
const LEAST_SECONDS = 1

const RETRY_SECONDS = { baseSeconds: 1, capSeconds: 10 }

/** Time for the last message of a VM that has no time, or nothing to ask for; seconds. */
const LAST_MESSAGE_SECONDS = 5

/** Time for the last question of a VM that no Launch has taken over, seconds. The operator terminates it after 30 s. */
const LAST_QUESTION_SECONDS = 20

/** End of the wait after a run: another Launch has the VM, or it powers off. */
export interface AfterRun {
  /** Boot config of the Launch that has the VM now. */
  next?: BootConfig
  /** Reason why the VM takes no other job. Absent: its job did not ask for that, or there is a `next`. */
  why?: string
}

/** Returns true if the VM is cleaned and waits for another job after its run. Pure. */
export function isKept(state: AgentState): boolean {
  return state.reuse !== undefined && state.finishStored && whyNotReusable(state) === undefined
}

/**
 * Cleans the VM after a run whose finish is stored, and waits for another job, if this run's job asks for that. An agent
 * that is restarted continues, as long as the time is not over.
 */
export async function afterRun(context: LaunchContext, disk: Disk): Promise<AfterRun> {
  if (disk.state.reuse === undefined) return {}
  if (!isKept(disk.state)) return defined({ why: whyNotReusable(disk.state) })
  const idling = new Idling(context, disk)
  try {
    const after = await idling.run()
    if (after.why !== undefined) context.logger.info({ why: after.why }, `${after.why}; powering off`)
    return after
  } finally {
    await idling.close()
  }
}

/** Reason for which a VM stops to wait. */
interface Stop {
  why: string
  /** Time for the last message, seconds. */
  seconds: number
  /** True if the VM can still run a job that it is given by the answer to its last message. */
  takes: boolean
}

const STOPS: Record<VmLeaveCause, Stop> = {
  expired: { why: "the lifetime of the last job's VM is over", seconds: LAST_MESSAGE_SECONDS, takes: true },
  budget: { why: "the last job's maxCostUsd is spent", seconds: LAST_MESSAGE_SECONDS, takes: true },
  shutdown: { why: "the VM was shut down", seconds: LAST_MESSAGE_SECONDS, takes: false },
  refused: { why: "the gateway rejected this VM", seconds: 0, takes: false },
  unreached: { why: "the VM never reached the gateway", seconds: 0, takes: false },
}

/** One VM after a run, from its clean-up to its next job or its end. */
class Idling {
  readonly #context: LaunchContext
  readonly #disk: Disk
  readonly #client: GatewayClient
  /** Aborted with a Stop when the VM stops to wait. */
  readonly #stop = new AbortController()
  readonly #quit = new AbortController()
  readonly #watch: Promise<void>
  #cancelTimer = (): void => {}

  constructor(context: LaunchContext, disk: Disk) {
    const { config, clock, leave } = context
    this.#context = context
    this.#disk = disk
    this.#client = new GatewayClient(config, disk.keys, clock)
    whenAborted(leave.signal, () => this.#stop.abort(STOPS[leave.signal.reason as VmLeaveCause]))
    // Before the clean-up, so that a notice is known before the VM is offered to anyone.
    this.#watch = this.#watchForPreemption()
  }

  async run(): Promise<AfterRun> {
    const { clock, logger } = this.#context
    const { idleSeconds, isHostShared } = this.#disk.state.reuse ?? { idleSeconds: 0, isHostShared: false }
    if (this.#disk.state.idleTime === undefined) {
      const unfit = await whyUnfit(this.#context, this.#disk, { isHostShared, signal: this.#stop.signal })
      if (unfit !== undefined)
        return await this.#leave({ why: unfit, seconds: LAST_QUESTION_SECONDS, takes: false }, unfit)
    }
    const since = this.#disk.state.idleTime ?? timestamp(clock.now())
    const left = idleSeconds - Math.max(0, secondsBetween(since, clock.now()))
    logger.info({ seconds: left }, "nothing of the job is left on this VM; it waits for another one")
    const over: Stop = { why: `no job within ${idleSeconds} s`, seconds: LAST_QUESTION_SECONDS, takes: true }
    this.#cancelTimer = timer(clock, left, () => this.#stop.abort(over))
    return (await this.#ask()) ?? (await this.#leave(this.#stop.signal.reason as Stop))
  }

  async close(): Promise<void> {
    this.#cancelTimer()
    this.#quit.abort()
    await Promise.all([this.#watch, this.#client.close()])
  }

  async #watchForPreemption(): Promise<void> {
    const { config, clock, logger, metadataUrl: url } = this.#context
    if (config.spotCloud === undefined) return
    const options = { cloud: config.spotCloud, clock, logger, ...(url !== undefined && { url }) }
    if ((await preemptionNotice(options, this.#quit.signal)) === undefined) return
    // A job that was bound in this moment learns of the notice by its own watch, and gets another VM.
    const stop: Stop = { why: "the cloud takes this VM back", seconds: LAST_MESSAGE_SECONDS, takes: true }
    this.#stop.abort(stop)
  }

  /** Asks for a job until there is one, or no use in asking. Returns undefined if the VM stops to wait. */
  async #ask(): Promise<AfterRun | undefined> {
    const { clock } = this.#context
    const stop = this.#stop.signal
    for (;;) {
      const asked = clock.monotonic()
      const answer = await this.#send({}, stop)
      if (answer === undefined) return undefined
      if (answer instanceof RefusedError) return { why: answer.message }
      const next = await this.#opened(answer)
      if (next !== undefined) return { next }
      if (!answer.isAwaited) return { why: "Berth has no other job for this VM" }
      await waitUnlessAborted(clock, asked + LEAST_SECONDS - clock.monotonic(), stop)
    }
  }

  /** Says that the VM leaves, or that it is unfit. A job that was bound before that has the VM all the same. */
  async #leave({ why, seconds, takes }: Stop, unfit?: string): Promise<AfterRun> {
    using late = deadline(this.#context.clock, seconds)
    const answer = await this.#send(unfit === undefined ? { isLeaving: true } : { unfit }, late.signal)
    if (!takes || answer === undefined || answer instanceof RefusedError) return { why }
    const next = await this.#opened(answer)
    return next === undefined ? { why } : { next }
  }

  /** Sends a message until it is answered. Returns undefined if the signal is aborted before. */
  async #send(
    about: Omit<NextRequest, "launch">,
    signal: AbortSignal,
  ): Promise<NextResponse | RefusedError | undefined> {
    const { clock, logger } = this.#context
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        return await this.#client.next(about, signal)
      } catch (error) {
        if (signal.aborted) return undefined
        if (error instanceof RefusedError) return error
        if (!(error instanceof GatewayError)) throw error
        logger.warn({ err: error }, "failed to reach the gateway, which knows this VM's next job; retrying")
        await waitUnlessAborted(clock, retrySeconds(error, tries, RETRY_SECONDS), signal)
      }
    }
    return undefined
  }

  async #opened({ next }: NextResponse): Promise<BootConfig | undefined> {
    if (next === undefined) return undefined
    try {
      return await openBootConfig(next, this.#disk.keys.encryption)
    } catch (error) {
      this.#context.logger.error({ err: error }, "the next job of this VM can't be read; another VM has to run it")
      return undefined
    }
  }
}

/** Returns a signal that is aborted after some seconds, unless it is disposed of before. */
function deadline(clock: Clock, seconds: number): Disposable & { signal: AbortSignal } {
  const late = new AbortController()
  const cancel = timer(clock, seconds, () => late.abort())
  return { signal: late.signal, [Symbol.dispose]: cancel }
}
