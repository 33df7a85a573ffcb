import { backoffSeconds } from "../core/apis/backoff.ts"
import { type Clock, secondsBetween, timestamp } from "../core/apis/clock.ts"
import { LIMITS } from "../core/apis/field-limits.ts"
import type { Run, Workdir } from "../core/apis/job.ts"
import type { Finish, FinishCause, FinishReason } from "../core/apis/launch.ts"
import type { Logger } from "../core/apis/logger.ts"
import { matchingRule } from "../core/apis/retry-rules.ts"
import type { IdleLimit } from "../core/apis/usage.ts"
import type { BootConfig, RunOrder } from "../core/protocol/protocol.ts"
import type { Disk } from "./disk.ts"
import { failureText, KILLED_EXIT_CODE } from "./exit-codes.ts"
import { withKeep } from "./kept.ts"
import { readLastLine } from "./last-line.ts"
import { type Container, type Ended, RunError, type Runtime } from "./runtimes/runtime.ts"
import type { Sessions } from "./sessions/sessions.ts"
import type { Spool } from "./spool.ts"
import { timer, waitUnlessAborted } from "./timers.ts"
import { idleText } from "./usage/idle-guard.ts"
import type { Meter } from "./usage/meter.ts"

/** Delay between the stop signal and SIGKILL of a job that sets none, seconds. */
export const STOP_GRACE_SECONDS = 10

/**
 * Time for the uploads of a run that was cancelled, timed out or preempted, seconds. If the VM ends, it is the stop's
 * grace.
 */
const STOPPED_FLUSH_SECONDS = 60

/** Time without output after which the output of an ended container counts as complete, seconds. */
const OUTPUT_SILENCE_SECONDS = 30

/**
 * Longest wait for the order at a container's end, seconds. Only an agent that was restarted, and that has not reached the
 * gateway, doesn't have it. Without the order the secrets are unknown, so the finish has no line of the output.
 */
const ORDER_SECONDS = 10

const ATTEMPT_RETRY_SECONDS = { baseSeconds: 1, capSeconds: 30 }

export interface RunOptions {
  runtime: Runtime
  disk: Disk
  spool: Spool
  /** Measures the containers. */
  meter: Pick<Meter, "start" | "finish">
  /** Lets people into the container while it runs. */
  sessions: Pick<Sessions, "admitTo">
  clock: Clock
  logger: Logger
  /** Limits of the VM. */
  vm: Pick<BootConfig, "lifetimeSeconds" | "budgetSeconds">
  /** Order of the gateway; needed only to start a container. */
  order: Promise<RunOrder>
  /** Requests the order again. */
  reorder: () => Promise<RunOrder>
  /** Fetches the run's working directory to the disk. Returns early if the signal is aborted. */
  fetchWorkdir: (workdir: Workdir, signal: AbortSignal) => Promise<void>
  /** Aborted with a StopCause when the container has to be stopped. */
  stop: AbortController
  /** Called after a write to the disk's state. */
  onChange: () => void
  /** Default of the job's `terminationGraceSeconds`. */
  stopGraceSeconds: number
  /** Aborted, after `stop`, when the VM is about to end. The reason is the number of seconds that the container has. */
  hurry: AbortSignal
}

/**
 * Runs the container, attempt after attempt, to its end. Continues from the state of an earlier agent of this disk.
 * Resolves with the finish after it is on the disk.
 */
export async function runToEnd(options: RunOptions): Promise<Finish> {
  const { clock, logger, disk, onChange } = options
  const timeout = armTimeout(options)
  try {
    return await runAttempts(options, timeout.arm)
  } catch (error) {
    const time = timestamp(clock.now())
    const end = error instanceof StoppedError ? stoppedFinish(options, error.cause, time) : failedFinish(error, time)
    const finish = withUsage(end, options)
    logger.warn({ err: error, reason: finish.reason }, "the run ended without a result of its container")
    disk.update({ finish })
    onChange()
    return finish
  } finally {
    timeout.cancel()
  }
}

async function runAttempts(options: RunOptions, armTimer: () => void): Promise<Finish> {
  const { clock, disk, stop, logger, onChange } = options
  for (;;) {
    const { unflushed } = disk.state
    if (unflushed !== undefined) return await flush(options, unflushed)
    const container = await presentContainer(options, armTimer)
    const supervised = await superviseAttempt(options, container)
    const { ended } = supervised
    const finish = await conclude(options, container, supervised)
    // Written at once, before the container is removed, so that no later agent decides about this attempt again.
    disk.update({
      stage: "ended",
      ...(ended.exitCode !== 0 && { lastExitCode: ended.exitCode }),
      ...(finish !== undefined && { unflushed: finish }),
    })
    // A report without the finish would only delay that.
    if (finish === undefined) onChange()
    if (finish?.keptUntil === undefined) await removeQuietly(container, logger)
    if (finish !== undefined) continue
    await waitUnlessAborted(clock, backoffSeconds(disk.state.attempt, ATTEMPT_RETRY_SECONDS), stop.signal)
    throwIfStopped(stop.signal)
  }
}

/** Returns the finish after an attempt; undefined if a retry is left. */
async function conclude(
  options: RunOptions,
  container: Container,
  { ended, stopped, ignored }: Supervised,
): Promise<Finish | undefined> {
  const { attempt, limits } = options.disk.state
  const time = timestamp(options.clock.now())
  const end =
    stopped === undefined
      ? finishAfter(ended, { left: (limits?.maxRetries ?? 0) + 1 - attempt, rules: limits?.retryRules }, time)
      : stoppedFinish(options, stopped, time, { ended, ignored })
  const said = end?.reason === "ContainerFailed" ? await withLastLine(end, options, container) : end
  const isOwnEnd = stopped === undefined || stopped === "timeout" || stopped === "idle"
  const finish = said && withUsage(said, options)
  return finish && isOwnEnd ? withKeep(finish, options) : finish
}

async function removeQuietly(container: Container, logger: Logger): Promise<void> {
  await container.remove().catch((error: unknown) => logger.warn({ err: error }, "failed to remove the container"))
}

/** Adds what the run has used, if any of its containers was measured. */
function withUsage(finish: Finish, { meter }: RunOptions): Finish {
  const usage = meter.finish()
  return usage === undefined ? finish : { ...finish, usage }
}

/** Adds the last line of the attempt's output, without secrets. */
async function withLastLine(finish: Finish, options: RunOptions, { env }: Container): Promise<Finish> {
  const { clock, disk, logger, spool } = options
  const { promise: late, resolve } = Promise.withResolvers<undefined>()
  const cancel = timer(clock, ORDER_SECONDS, () => resolve(undefined))
  try {
    const order = await Promise.race([options.order, late])
    if (order === undefined) return finish
    const lastLine = await readLastLine(spool, disk.state.outputStart, { order, env })
    return lastLine === undefined ? finish : { ...finish, lastLine }
  } catch (error) {
    logger.warn({ err: error }, "failed to read the last line of the output")
    return finish
  } finally {
    cancel()
  }
}

/**
 * Returns the finish after it is on the disk. Before that, all written files are uploaded, or the upload has failed.
 */
async function flush(options: RunOptions, unflushed: Finish): Promise<Finish> {
  const { runtime, disk, logger } = options
  using limit = flushLimit(options)
  let finish = unflushed
  try {
    await runtime.flush(limit.signal)
  } catch (error) {
    logger.error({ err: error }, "not all written files are in their buckets")
    finish = unflushedFinish(unflushed, error)
  }
  // The uploads took no part of the time.
  if (unflushed.keptUntil !== undefined) finish = withKeep(finish, options)
  // The caller sends it after the log.
  disk.update({ finish })
  return finish
}

/** Returns the finish after a failed upload. A success becomes a failure; other reasons stay. */
function unflushedFinish(finish: Finish, error: unknown): Finish {
  const why = error instanceof Error ? error.message : String(error)
  if (finish.reason === "Succeeded") return { ...finish, reason: "VolumeFlushFailed", message: cutMessage(why) }
  return { ...finish, message: cutMessage([finish.message, why].filter(Boolean).join("; ")) }
}

/**
 * Returns a signal that is aborted after the time for uploads. They have unlimited time, but only a grace time after
 * `stop`.
 */
function flushLimit({ clock, stop, stopGraceSeconds }: RunOptions): Disposable & { signal: AbortSignal } {
  const limit = new AbortController()
  let cancel = (): void => {}
  const begin = (): void => {
    const cause = stop.signal.reason as StopCause
    const seconds = isLeaving(cause) ? stopGraceSeconds : STOPPED_FLUSH_SECONDS
    cancel = timer(clock, seconds, () => limit.abort())
  }
  stop.signal.addEventListener("abort", begin, { once: true })
  if (stop.signal.aborted) begin()
  return {
    signal: limit.signal,
    [Symbol.dispose]: () => {
      stop.signal.removeEventListener("abort", begin)
      cancel()
    },
  }
}

/** Returns true if the VM ends for this cause, whatever its container does. */
function isLeaving(cause: StopCause): boolean {
  return cause !== "stop" && cause !== "timeout" && cause !== "idle" && cause !== "preempted"
}

function failedFinish(error: unknown, time: string): Finish {
  const message = cutMessage(error instanceof Error ? error.message : String(error))
  if (!(error instanceof RunError)) return { reason: "AgentFailed", message, time }
  return { reason: error.reason, message, ...(error.isTransient && { transient: true }), time }
}

/** The run was stopped while no container ran. */
class StoppedError extends Error {
  override readonly name = "StoppedError"
  override readonly cause: StopCause

  constructor(cause: StopCause) {
    super(cause)
    this.cause = cause
  }
}

function throwIfStopped(signal: AbortSignal): void {
  if (signal.aborted) throw new StoppedError(signal.reason as StopCause)
}

/** Arms the timeout, which counts from the first start, over attempts and reboots. */
function armTimeout({ disk, clock, stop }: RunOptions): { arm: () => void; cancel: () => void } {
  let cancel: (() => void) | undefined
  const arm = (): void => {
    const { startTime, limits } = disk.state
    if (cancel !== undefined || startTime === undefined || limits?.timeoutSeconds === undefined) return
    const elapsed = Math.max(0, secondsBetween(startTime, clock.now()))
    cancel = timer(clock, limits.timeoutSeconds - elapsed, () => stop.abort("timeout" satisfies StopCause))
  }
  return { arm, cancel: () => cancel?.() }
}

/** Returns the container of the current attempt if it exists, or starts the next attempt. */
async function presentContainer(options: RunOptions, onStarted: () => void): Promise<Container> {
  const { disk, runtime } = options
  const { attempt, stage } = disk.state
  if (stage === "ended") return await startAttempt(options, attempt + 1, onStarted)
  const found = await runtime.find(attempt)
  if (found === undefined && stage === "intended") return await startAttempt(options, attempt, onStarted)
  const container = found ?? vanishedContainer(disk.state.startTime ?? timestamp(options.clock.now()))
  recordStart(options, container)
  onStarted()
  return container
}

async function startAttempt(options: RunOptions, attempt: number, onStarted: () => void): Promise<Container> {
  const { disk, runtime, spool, stop } = options
  const order = await untilStopped(options.order, stop.signal)
  await prepareAttempt(options, order)
  if (attempt > 1 && disk.state.attempt !== attempt) await spool.appendLine(`--- attempt ${attempt} ---`)
  disk.update({ attempt, stage: "intended", outputStart: spool.length })
  const container = await runtime.start(order, attempt)
  recordStart(options, container)
  onStarted()
  return container
}

/**
 * Fetches the working directory, prepares the runtime and mounts the buckets, at the same time. Rejects with the first
 * error or stop, and aborts the rest.
 */
async function prepareAttempt({ runtime, stop, reorder, fetchWorkdir }: RunOptions, order: RunOrder): Promise<void> {
  const enough = new AbortController()
  const signal = AbortSignal.any([stop.signal, enough.signal])
  const preparing = { signal, reorder: () => untilStopped(reorder(), signal) }
  const { workdir } = order.run
  const steps = [
    workdir === undefined ? undefined : fetchWorkdir(workdir, signal),
    runtime.prepare(order, preparing),
    runtime.mount(order, preparing),
  ]
  try {
    await untilStopped(Promise.all(steps), stop.signal)
  } finally {
    enough.abort()
  }
}

function recordStart({ disk, onChange }: RunOptions, container: Container): void {
  disk.update({ stage: "started", startTime: disk.state.startTime ?? container.startTime })
  onChange()
}

/** End of an attempt, and why the agent stopped it. */
interface Supervised {
  ended: Ended
  /** Absent: it ended by itself. */
  stopped: StopCause | undefined
  /** Signal that had no effect, and for how long. */
  ignored: string | undefined
}

/** Waits until a container ends and all its output is in the spool. Stops the container at `stop`. */
async function superviseAttempt(options: RunOptions, container: Container): Promise<Supervised> {
  const { stop, meter, sessions, runtime } = options
  const enough = new AbortController()
  const output = copyOutput(options, container, enough.signal)
  const killing = endWhenStopped(options, container)
  const stopMeasuring = meter.start(container, runtime)
  const stopAdmitting = sessions.admitTo(container)
  const ended = await container.wait()
  stopMeasuring()
  stopAdmitting()
  // A container that ended by itself before a signal reached it has its own result.
  const stopped = (await killing.reached()) ? (stop.signal.reason as StopCause) : undefined
  killing.cancel()
  await settleOutput(options, output)
  enough.abort()
  await options.spool.settle()
  return { ended, stopped, ignored: await killing.ignored() }
}

/** Resolves when all output is in the spool, or when no more comes. */
async function settleOutput({ clock, spool }: RunOptions, output: Promise<void>): Promise<void> {
  const done = new AbortController()
  const copied = output.then(() => done.abort())
  for (let length = -1; !done.signal.aborted && length < spool.length; ) {
    length = spool.length
    await Promise.race([copied, waitUnlessAborted(clock, OUTPUT_SILENCE_SECONDS, done.signal)])
  }
}

/**
 * Copies the output to the spool. A failure is only logged, because the result of the run matters more than its log.
 */
async function copyOutput(
  { disk, spool, logger }: RunOptions,
  container: Container,
  enough: AbortSignal,
): Promise<void> {
  try {
    const kept = Math.max(0, spool.length - disk.state.outputStart)
    for await (const piece of container.output(kept)) {
      if (enough.aborted) break
      // All output is read even if the disk is full, because the container would wait for its reader.
      await spool.append(piece)
    }
  } catch (error) {
    logger.error({ err: error }, "failed to read the output")
  }
}

/**
 * Sends the stop signal at `stop`, SIGKILL after the grace time, and again, until it is cancelled. `reached` resolves
 * with true if a signal reached a running container. `ignored` resolves with the signal that had no effect and for how
 * long, if the container was killed after it.
 */
function endWhenStopped(options: RunOptions, container: Container) {
  const { clock, disk, logger, stop, stopGraceSeconds, hurry } = options
  let cancel = (): void => {}
  let killAt = Number.POSITIVE_INFINITY
  let reached = Promise.resolve(false)
  let stoppedAt: number | undefined
  let ignored: Promise<string | undefined> | undefined
  const killAfter = (seconds: number): void => {
    cancel()
    killAt = clock.monotonic() + seconds
    cancel = timer(clock, seconds, kill)
  }
  const send = (which: "stop" | "kill", graceSeconds: number): Promise<boolean> => {
    const sent = container.signal(which).catch((error: unknown) => {
      logger.warn({ err: error, signal: which }, "failed to send the signal")
      return true
    })
    reached = Promise.all([reached, sent]).then((all) => all.includes(true))
    killAfter(graceSeconds)
    return sent
  }
  const kill = (): void => {
    const seconds = Math.round(clock.monotonic() - (stoppedAt ?? clock.monotonic()))
    const sent = send("kill", stopGraceSeconds)
    ignored ??= sent.then((wasRunning) =>
      wasRunning && seconds > 0 ? `${container.stopSignal} for ${seconds} s` : undefined,
    )
  }
  const ended = new AbortController()
  const when = (signal: AbortSignal, act: () => void): void => {
    signal.addEventListener("abort", act, { once: true, signal: ended.signal })
    if (signal.aborted) act()
  }
  when(stop.signal, () => {
    stoppedAt = clock.monotonic()
    void send("stop", disk.state.limits?.terminationGraceSeconds ?? stopGraceSeconds)
  })
  when(hurry, () => killAfter(Math.min(killAt - clock.monotonic(), hurry.reason as number)))
  return {
    reached: () => reached,
    ignored: () => ignored,
    cancel: () => {
      ended.abort()
      cancel()
    },
  }
}

async function untilStopped<Result>(promise: Promise<Result>, signal: AbortSignal): Promise<Result> {
  const { promise: stopped, reject } = Promise.withResolvers<never>()
  const stop = (): void => reject(new StoppedError(signal.reason as StopCause))
  signal.addEventListener("abort", stop, { once: true })
  if (signal.aborted) stop()
  try {
    return await Promise.race([promise, stopped])
  } finally {
    signal.removeEventListener("abort", stop)
  }
}

/** Returns a stand-in for a container that was started and that the runtime no longer has. */
function vanishedContainer(startTime: string): Container {
  return {
    startTime,
    stopSignal: "SIGTERM",
    async *output() {},
    wait: () => Promise.resolve({ exitCode: KILLED_EXIT_CODE, message: "the container was removed, but not by Berth" }),
    signal: () => Promise.resolve(false),
    read: () => Promise.resolve(undefined),
    remove: () => Promise.resolve(),
  }
}

/**
 * Cause for which the VM ends: its lifetime has ended, the job's budget is spent, it shuts down, the gateway rejects its agent, or the gateway was
 * never reached.
 */
export type VmLeaveCause = "expired" | "budget" | "shutdown" | "refused" | "unreached"

/** Cause for which a run leaves its machine. One of its owner also ends a run on request, and at the end of its lease. */
export type LeaveCause = VmLeaveCause | "ended" | "lease"

/**
 * Cause for which a container is stopped: the gateway asks for it, the job's timeout is over, the container uses nothing,
 * or its VM ends.
 */
export type StopCause = "stop" | "timeout" | "idle" | "preempted" | LeaveCause

/** Limits whose end stops a container, seconds. */
interface StopLimits {
  timeoutSeconds?: number
  idleLimit?: IdleLimit
  gpus?: number
  lifetimeSeconds: number
  budgetSeconds?: number
}

interface Stopped {
  reason: FinishReason
  cause?: FinishCause
  message: (limits: StopLimits) => string
  /** Advice for a limit of the job itself. */
  helps?: string
}

const STOPPED: Record<StopCause, Stopped> = {
  stop: { reason: "Stopped", message: () => "stopped on request" },
  timeout: {
    reason: "DeadlineExceeded",
    message: ({ timeoutSeconds }) => `the job exceeded its timeout of ${timeoutSeconds} s`,
    helps: "; raise timeoutSeconds if it needs longer",
  },
  idle: {
    reason: "DeadlineExceeded",
    cause: "Idle",
    message: ({ idleLimit = {}, gpus = 0 }) => `${idleText(idleLimit, gpus)}; it was stopped`,
    helps: ". Raise idleLimit.seconds, or remove idleLimit, if it waits on purpose",
  },
  preempted: { reason: "Preempted", message: () => "the cloud preempted the VM" },
  expired: {
    reason: "DeadlineExceeded",
    message: ({ lifetimeSeconds }) => `the VM reached the end of its lifetime of ${lifetimeSeconds} s`,
  },
  budget: {
    reason: "BudgetExceeded",
    message: ({ budgetSeconds }) =>
      `the VM ended after ${budgetSeconds} s, before the job costs more than its maxCostUsd`,
  },
  shutdown: { reason: "Stopped", message: () => "the VM was shut down" },
  refused: { reason: "Stopped", message: () => "the gateway rejected this VM" },
  unreached: { reason: "Stopped", message: () => "the VM never reached the gateway" },
  ended: { reason: "Stopped", message: () => "Berth ended the run on this machine" },
  lease: { reason: "Stopped", message: () => "the machine had no answer from Berth until the end of its lease" },
}

/** Returns the finish of a run that the agent stopped, before or after its start. */
function stoppedFinish(
  { disk, vm }: RunOptions,
  stopCause: StopCause,
  time: string,
  container?: { ended: Ended; ignored: string | undefined },
): Finish {
  const { message, helps = "", ...end } = STOPPED[stopCause]
  const said = message({ ...disk.state.limits, ...vm })
  if (container === undefined) return { ...end, message: `${said}${helps}`, time }
  const { ended, ignored } = container
  const subject = helps === "" ? "the container" : "it"
  const how = ignored === undefined ? "" : `; ${subject} ignored ${ignored} and was killed`
  return { ...end, message: `${said}${how}${helps}`, exitCode: ended.exitCode, time }
}

/** Retries in the same VM, and the rules on failures, which decide before them. */
interface Retries {
  left: number
  rules: Run["retryRules"]
}

/**
 * Returns the finish after an attempt that ended by itself; undefined if a retry is left. A failure that a rule matches
 * ends the run: it gets a new VM, or the job fails.
 */
function finishAfter(ended: Ended, { left, rules = [] }: Retries, time: string): Finish | undefined {
  const { exitCode, message, cause } = ended
  if (exitCode === 0) {
    const warning = message === undefined ? {} : { message: cutMessage(`succeeded, but ${message}`) }
    return { reason: "Succeeded", exitCode, ...warning, time }
  }
  const failure = { reason: "ContainerFailed", exitCode, ...(cause && { cause }) } as const
  if (left > 0 && matchingRule(rules, failure) === undefined) return undefined
  return { ...failure, message: cutMessage(failureText(exitCode, message)), time }
}

/** Cuts a message to the limit of the Launch's status. */
export function cutMessage(message: string): string {
  return message.length <= LIMITS.message ? message : `${message.slice(0, LIMITS.message - 1)}…`
}
