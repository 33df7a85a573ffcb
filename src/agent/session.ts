import { join } from "node:path"
import { timestamp } from "../core/apis/clock.ts"
import { defined } from "../core/apis/defined.ts"
import type { Workdir } from "../core/apis/job.ts"
import type { IdleLimit } from "../core/apis/usage.ts"
import { packageVersion } from "../core/package.ts"
import { openBuckets, openOrder } from "../core/protocol/messages.ts"
import { type Buckets, HEARTBEAT_SECONDS, type RegisterResponse, type RunOrder } from "../core/protocol/protocol.ts"
import { type LaunchContext, openRuntime, whenAborted } from "./context.ts"
import type { Disk } from "./disk.ts"
import { GatewayClient } from "./gateway-client.ts"
import { GatewayError, RefusedError, retrySeconds } from "./gateway-connection.ts"
import { isKept } from "./idle.ts"
import { keptSecondsLeft } from "./kept.ts"
import { LAST_REPORT_SECONDS, leaveSeconds } from "./leaving.ts"
import { type PreemptionNotice, preemptionNotice, shutdownNotice } from "./preemption.ts"
import { Reporter, Shipper } from "./report.ts"
import { cutMessage, type LeaveCause, runToEnd, STOP_GRACE_SECONDS, type StopCause } from "./run.ts"
import { RunError, type Runtime } from "./runtimes/runtime.ts"
import { Sessions } from "./sessions/sessions.ts"
import { DEFAULT_SPOOL_BYTES, Spool } from "./spool.ts"
import { timer, waitUnlessAborted } from "./timers.ts"
import { Meter } from "./usage/meter.ts"
import { keepAccess } from "./volumes/renewal.ts"
import { fetchWorkdir } from "./workdir.ts"

/** Version of this agent, as it registers. */
export const AGENT_VERSION = packageVersion()

/** Time that the finish waits for the log while the gateway rejects it, seconds. */
const FLUSH_SECONDS = 60

/** Seconds between two reports of a VM that is kept, by which it learns of sessions. */
const KEPT_REPORT_SECONDS = 5

/** Time to upload what sessions in a kept container have written, seconds. */
const KEPT_FLUSH_SECONDS = 60

/** Time to delete the checkpoints of a job that has succeeded, seconds. */
const CHECKPOINT_SECONDS = 60

/** Time for the engine to remove the run's containers, seconds. */
const CLEAR_SECONDS = 10

/**
 * Time without any registration after which the agent gives up and its VM powers off, seconds. Berth ends such a VM
 * earlier, after the boot deadline, unless Berth itself is down.
 */
const UNREACHED_SECONDS = 1800

const REGISTER_RETRY_SECONDS = { baseSeconds: 1, capSeconds: 30 }

/** Session of one Launch: it registers, runs the container, sends the log and reports. */
export class Session {
  readonly #context: LaunchContext
  readonly #disk: Disk
  readonly #client: GatewayClient
  readonly #meter: Meter
  readonly #reporter: Reporter
  readonly #sessions: Sessions
  /** Aborted with a StopCause when the container has to be stopped. */
  readonly #stop = new AbortController()
  /** Aborted when the VM is about to end, with the number of seconds that the container has. */
  readonly #hurry = new AbortController()
  /** Aborted when the VM is no longer kept for sessions. */
  readonly #release = new AbortController()
  /** Aborted when nothing more has to be sent. */
  readonly #quit = new AbortController()
  readonly #loops: Promise<void>[] = []
  /** Cancel what other objects hold of this session. */
  readonly #cancels: (() => void)[] = []
  #talking = false
  #shipper: Shipper | undefined

  constructor(context: LaunchContext, disk: Disk) {
    const { config, clock, logger, leave } = context
    this.#context = context
    this.#disk = disk
    this.#client = new GatewayClient(config, disk.keys, clock)
    const onIdle = (): void => this.#stop.abort("idle" satisfies StopCause)
    this.#meter = new Meter({ disk, clock, logger, sampleSeconds: context.sampleSeconds, onIdle })
    this.#sessions = new Sessions({
      ...{ config, keys: disk.keys, clock, logger },
      onEntered: () => disk.update({ entered: true }),
      onLost: () => this.#reporter.wake(),
    })
    this.#reporter = new Reporter(
      {
        disk,
        meter: this.#meter,
        client: this.#client,
        clock,
        logger,
        onRefused: (error) => this.#refused(error),
        onStop: () => {
          this.#stop.abort("stop" satisfies StopCause)
          this.#release.abort()
        },
        onSessions: (ids) => this.#sessions.join(ids),
        beforeFinish: async () => {
          await this.#shipper?.drain()
          return this.#shipper?.missing
        },
      },
      HEARTBEAT_SECONDS,
    )
    const onLeave = (): void => {
      const cause = leave.signal.reason as LeaveCause
      const notice = cause === "shutdown" ? shutdownNotice(config.spotCloud, clock) : undefined
      if (notice === undefined) {
        this.#stop.abort(cause satisfies StopCause)
        this.#hurry.abort(leaveSeconds(cause, context))
      } else {
        this.#onPreemption(notice)
      }
    }
    // While the VM waits for another job, nothing may hold this one's secrets.
    this.#cancels.push(whenAborted(leave.signal, onLeave))
  }

  /** Resolves when the finish is stored, or when the VM has to end. */
  async run(): Promise<void> {
    const { clock, logger, dataDir, spoolBytes: limit = DEFAULT_SPOOL_BYTES, leave } = this.#context
    await using spool = await Spool.open(join(dataDir, "output"), {
      clock,
      limit,
      onAppend: () => this.#shipper?.wake(),
      onWriteError: (error) =>
        logger.error({ err: error }, "failed to write output to the disk; a line in the log reports the gap"),
    })
    const onRefused = (error: RefusedError): void => this.#refused(error)
    this.#shipper = new Shipper({ spool, client: this.#client, clock, logger, onRefused })
    if (this.#disk.state.registered) this.#startLoops()
    try {
      const runtime = await this.#openRuntime()
      const order = this.#needsRegistration() ? this.#register(runtime?.name ?? "docker") : undefined
      // Code that needs the order gets the error. A container of an earlier agent continues without the order.
      order?.catch(() => undefined)
      if (runtime !== undefined && order !== undefined) await this.#run(runtime, spool, order)
      if (leave.signal.reason !== "refused") await this.#deliver(order)
      if (runtime !== undefined) await this.#keep(runtime)
      if (runtime !== undefined) await this.#deleteCheckpoints(runtime)
      // A VM that waits for another job is cleaned, and checked, when nothing of this session is left.
      if (runtime !== undefined && !isKept(this.#disk.state)) await this.#clear(runtime)
    } finally {
      this.#quit.abort()
      this.#sessions.close()
      for (const cancel of this.#cancels) cancel()
      await this.#client.close()
      await Promise.all(this.#loops)
    }
  }

  #needsRegistration(): boolean {
    const { finish, registered } = this.#disk.state
    return finish === undefined || !registered
  }

  async #run(runtime: Runtime, spool: Spool, order: Promise<RunOrder>): Promise<void> {
    const { config, clock, logger, stopGraceSeconds = STOP_GRACE_SECONDS } = this.#context
    if (this.#disk.state.finish !== undefined) return
    const onChange = (): void => this.#reporter.wake()
    this.#keepAccess(runtime, order)
    this.#watchForPreemption()
    const reorder = (): Promise<RunOrder> => this.#register(runtime.name)
    const signals = { stop: this.#stop, hurry: this.#hurry.signal }
    const fetchWorkdir = (workdir: Workdir, signal: AbortSignal) => this.#fetchWorkdir(workdir, signal)
    const parts = {
      runtime,
      spool,
      order,
      reorder,
      fetchWorkdir,
      disk: this.#disk,
      meter: this.#meter,
      sessions: this.#sessions,
      ...signals,
    }
    const finish = await runToEnd({ ...parts, vm: config, clock, logger, stopGraceSeconds, onChange })
    this.#loops.push(this.#meter.close())
    logger.info({ finish }, "the run has ended")
  }

  /** Renews the access to the run's buckets before it expires, while uploads are possible. */
  #keepAccess(runtime: Runtime, order: Promise<RunOrder>): void {
    const { clock, logger } = this.#context
    const renewal = { order, runtime, clock, logger, fetch: () => this.#fetchBuckets() }
    this.#loops.push(keepAccess(renewal, this.#quit.signal))
  }

  /**
   * On a spot VM, waits for the preemption notice. Then it reports to the gateway at once, and stops the container with
   * its grace time, or with less if the notice leaves less.
   */
  #watchForPreemption(): void {
    const { config, clock, logger, metadataUrl: url } = this.#context
    if (config.spotCloud === undefined) return
    const options = { cloud: config.spotCloud, clock, logger, ...(url !== undefined && { url }) }
    const watch = preemptionNotice(options, this.#quit.signal).then((notice) => notice && this.#onPreemption(notice))
    this.#loops.push(watch)
  }

  #onPreemption(notice: PreemptionNotice): void {
    this.#context.logger.warn({ ...notice }, "the cloud preempts this VM")
    this.#disk.update({ preemptionNotice: notice.time })
    this.#reporter.wake()
    this.#stop.abort("preempted" satisfies StopCause)
    this.#release.abort()
    this.#hurry.abort(notice.containerSeconds)
  }

  async #fetchWorkdir(workdir: Workdir, signal: AbortSignal): Promise<void> {
    const { clock, dataDir, logger } = this.#context
    try {
      await fetchWorkdir(workdir, { client: this.#client, clock, dataDir, logger, signal })
    } catch (error) {
      if (error instanceof RefusedError) this.#refused(error)
      throw error
    }
  }

  async #fetchBuckets(): Promise<Buckets> {
    try {
      return await openBuckets((await this.#client.volumes()).buckets, this.#disk.keys.encryption)
    } catch (error) {
      if (error instanceof RefusedError) this.#refused(error)
      throw error
    }
  }

  /** Returns undefined if there is no runtime; the finish says so then. */
  async #openRuntime(): Promise<Runtime | undefined> {
    const { clock, logger } = this.#context
    const { state } = this.#disk
    try {
      const found = await openRuntime(this.#context, this.#disk, this.#stop.signal)
      if (state.runtime === undefined) this.#disk.update({ runtime: found.name })
      return found
    } catch (error) {
      if (!(error instanceof RunError)) throw error
      logger.error({ err: error }, "no container runtime is available")
      const finish = { reason: error.reason, message: cutMessage(error.message), time: timestamp(clock.now()) }
      if (state.finish === undefined) this.#disk.update({ finish })
      return undefined
    }
  }

  /** Registers, retrying while the VM lives, and opens the order. */
  async #register(runtime: string): Promise<RunOrder> {
    const { heartbeatSeconds, order } = await this.#registration(runtime)
    const { keys, state } = this.#disk
    this.#reporter.heartbeatSeconds = heartbeatSeconds
    if (!state.registered) this.#disk.update({ registered: true })
    const opened = await openOrder(order, keys.encryption)
    const { maxRetries = 0, retryRules, timeoutSeconds, terminationGraceSeconds, debug } = opened.run
    const limits = { retryRules, timeoutSeconds, terminationGraceSeconds, debug, idleLimit: this.#idleLimitOf(opened) }
    const reuse = opened.run.reuse && {
      idleSeconds: opened.run.reuse.idleSeconds,
      isHostShared: opened.sharedHost !== undefined,
    }
    this.#disk.update({ limits: { maxRetries, gpus: opened.gpus, ...defined(limits) }, ...defined({ reuse }) })
    this.#startLoops()
    return opened
  }

  #idleLimitOf({ run: { idleLimit } }: RunOrder): IdleLimit | undefined {
    const { idleSeconds: seconds } = this.#context
    return idleLimit === undefined || seconds === undefined ? idleLimit : { ...idleLimit, seconds }
  }

  async #registration(runtime: string): Promise<RegisterResponse> {
    const { clock, leave, logger } = this.#context
    const giveUpAt = this.#disk.state.registered ? undefined : clock.monotonic() + UNREACHED_SECONDS
    for (let tries = 0; ; tries++) {
      leave.signal.throwIfAborted()
      try {
        return await this.#client.register({ version: AGENT_VERSION, runtime })
      } catch (error) {
        if (error instanceof RefusedError) this.#refused(error)
        if (!(error instanceof GatewayError)) throw error
        if (giveUpAt !== undefined && clock.monotonic() > giveUpAt) this.#unreached(error)
        else logger.warn({ err: error }, "failed to register; retrying")
        await waitUnlessAborted(clock, retrySeconds(error, tries, REGISTER_RETRY_SECONDS), leave.signal)
      }
    }
  }

  /** Starts to send reports and the log, once the Launch is bound to our key. */
  #startLoops(): void {
    if (this.#talking) return
    this.#talking = true
    this.#loops.push(this.#reporter.run(this.#quit.signal))
    if (this.#shipper !== undefined) this.#loops.push(this.#shipper.run(this.#quit.signal))
  }

  /** Sends the rest of the log and the finish, until a few seconds after the order to leave. */
  async #deliver(order: Promise<RunOrder> | undefined): Promise<void> {
    const { clock, flushSeconds = FLUSH_SECONDS } = this.#context
    const giveUp = this.#lastReportDeadline()
    if (!this.#disk.state.registered) await settle(order, giveUp)
    // Without a registration the gateway does not know our key, and rejects our messages.
    if (!this.#disk.state.registered) return
    this.#startLoops()
    const deadline = clock.monotonic() + flushSeconds
    while (!giveUp.aborted && clock.monotonic() < deadline) {
      if ((await settle(this.#shipper?.drain(), giveUp)) === true) break
      await waitUnlessAborted(clock, 1, giveUp)
    }
    this.#reporter.releaseFinish()
    await settle(this.#reporter.finishStored, giveUp)
  }

  /**
   * Returns a signal that is aborted some seconds after the order to leave, for a last report. It is aborted at once if
   * the gateway rejects this agent.
   */
  #lastReportDeadline(): AbortSignal {
    const { clock, leave } = this.#context
    const giveUp = new AbortController()
    const begin = (): void => {
      const cause = leave.signal.reason as LeaveCause
      const seconds = cause === "refused" || cause === "unreached" ? 0 : LAST_REPORT_SECONDS
      const cancel = timer(clock, seconds, () => giveUp.abort())
      // Without this the timer would keep this process, and so its VM, alive after the last report.
      whenAborted(this.#quit.signal, cancel)
    }
    this.#cancels.push(whenAborted(leave.signal, begin))
    return giveUp.signal
  }

  /**
   * Keeps the VM after a failure, and lets sessions into a copy of the failed container, until the time is over, Berth ends
   * it, or the VM has to end. Files that were written there are uploaded.
   */
  async #keep(runtime: Runtime): Promise<void> {
    const { clock, leave, logger } = this.#context
    const seconds = keptSecondsLeft(this.#disk.state, clock)
    const entrance = seconds > 0 ? await runtime.kept?.(this.#disk.state.attempt) : undefined
    if (entrance === undefined) return
    logger.info({ seconds }, "the container failed; this VM is kept for sessions")
    const stopAdmitting = this.#sessions.admitTo({ entrance }, KEPT_REPORT_SECONDS)
    this.#reporter.wake()
    await waitUnlessAborted(clock, seconds, AbortSignal.any([this.#release.signal, leave.signal]))
    stopAdmitting()
    this.#sessions.close()
    const enough = new AbortController()
    await this.#within(KEPT_FLUSH_SECONDS, runtime.flush(enough.signal), "failed to upload what sessions have written")
    enough.abort()
  }

  /**
   * Deletes the checkpoints of a job that has succeeded. Before the gateway has the success, another VM may need them.
   */
  async #deleteCheckpoints(runtime: Runtime): Promise<void> {
    const { finish, finishStored } = this.#disk.state
    if (!finishStored || finish?.reason !== "Succeeded") return
    await this.#within(CHECKPOINT_SECONDS, runtime.deleteCheckpoints(), "failed to delete the job's checkpoints")
  }

  async #clear(runtime: Runtime): Promise<void> {
    await this.#within(CLEAR_SECONDS, runtime.clear(), "failed to remove the containers")
  }

  /** Waits for an action of limited time. A failure is only logged. */
  async #within(seconds: number, action: Promise<void>, failure: string): Promise<void> {
    const { clock, logger } = this.#context
    const done = action.catch((error: unknown) => logger.warn({ err: error }, failure))
    const enough = new AbortController()
    await Promise.race([done, waitUnlessAborted(clock, seconds, enough.signal)])
    enough.abort()
  }

  #unreached(error: GatewayError): void {
    const { config, leave, logger } = this.#context
    const gateway = config.gatewayUrl
    logger.error({ err: error, gateway }, `no registration at the gateway for ${UNREACHED_SECONDS} s; ending this VM`)
    leave.abort("unreached" satisfies LeaveCause)
  }

  #refused(error: RefusedError): void {
    this.#context.logger.error({ err: error }, "the gateway rejects this agent; ending this VM")
    this.#context.leave.abort("refused" satisfies LeaveCause)
  }
}

/** Returns the result of the promise; undefined if it rejects or the signal comes first. */
async function settle<Result>(promise: Promise<Result> | undefined, signal: AbortSignal): Promise<Result | undefined> {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>()
  whenAborted(signal, () => resolve(undefined))
  return await Promise.race([Promise.resolve(promise).catch(() => undefined), aborted])
}
