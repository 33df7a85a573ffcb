import { backoffSeconds } from "../../core/apis/backoff.ts"
import { type Clock, systemClock, timestamp } from "../../core/apis/clock.ts"
import type { MachineFacts } from "../../core/apis/machine.ts"
import { type BeatResponse, claimsIn, type JoinClaims } from "../../core/protocol/machines.ts"
import { generateAgentKeys, openBootConfig } from "../../core/protocol/messages.ts"
import type { BootConfig } from "../../core/protocol/protocol.ts"
import { type LaunchOptions, whenAborted } from "../context.ts"
import { acquireLock, makeDataDir } from "../disk.ts"
import { whyNoSpace } from "../disk-space.ts"
import { type GatewayAddress, GatewayError, RefusedError, retrySeconds } from "../gateway-connection.ts"
import { cutMessage, type LeaveCause } from "../run.ts"
import { engineAnswers } from "../runtimes/detect.ts"
import { DEFAULT_DOCKER_SOCKET } from "../runtimes/docker.ts"
import { AGENT_VERSION } from "../session.ts"
import { AsyncSignal, timer, waitUnlessAborted } from "../timers.ts"
import { HostClient } from "./client.ts"
import { beatOf, isNewJoin, type Present, reactionTo, secondsUntilNext, workOf } from "./decide.ts"
import { HostDisk, type Identity, type Order } from "./disk.ts"
import { readFacts } from "./facts.ts"
import { type BootClock, secondsLeft, systemBootClock } from "./lease.ts"
import { cleanAfter, type HostRun, logFailedWrite, runOrder } from "./run.ts"

const RETRY_SECONDS = { baseSeconds: 1, capSeconds: 30 }

/** Delays between two tries of a clean-up. */
const CLEAN_RETRY_SECONDS = { baseSeconds: 5, capSeconds: 300 }

/** Time for the last message of an agent that is stopped, seconds. */
const LAST_BEAT_SECONDS = 5

/** Time between two looks for an engine that does not answer, seconds. */
const ENGINE_SECONDS = 5

export interface HostOptions extends Omit<LaunchOptions, "leaseSeconds"> {
  gateway: GatewayAddress
  /** Join token. Needed only if the host is not the machine yet. */
  token?: string
  runtime: "docker" | "process"
  /** Aborted when the agent is stopped. */
  signal: AbortSignal
  /** Default: this machine's. */
  bootClock?: BootClock
}

/** Cause of the end of a host's agent. Nothing of a job runs. */
export type HostExit =
  | { cause: "stopped" }
  /** The gateway rejects the host, which has removed its keys. `message` says what its owner can do. */
  | { cause: "refused"; message: string }

/**
 * Runs the jobs of a machine that its owner has joined, one after another, until the agent is stopped. An agent that is
 * restarted continues.
 * @throws TypeError without a join token on a host that is no machine yet, or with a text that is none
 * @throws AgentBusyError if another agent uses the folder
 * @throws Error if a part of a run hangs. Its job has ended; the next agent continues
 */
export async function runHost(options: HostOptions): Promise<HostExit> {
  const { dataDir, logger } = options
  const claims = options.token === undefined ? undefined : claimsIn(options.token)
  makeDataDir(dataDir)
  using _lock = acquireLock(dataDir)
  const disk = new HostDisk(dataDir, (error) => logFailedWrite(logger, error))
  return await new Host(options, disk).run(claims)
}

/** One host, from its join to its end. */
class Host {
  readonly #options: HostOptions & { clock: Clock }
  readonly #disk: HostDisk
  readonly #bootClock: BootClock
  readonly #run: HostRun
  /** Ends a wait between two messages. */
  readonly #news = new AsyncSignal()
  /** Aborted when there is nothing more to say: the agent is stopped, is refused, or can't go on. */
  readonly #quit = new AbortController()
  /** Work for the order on the disk. */
  #work: Promise<void> | undefined
  /** Aborted with a LeaveCause when the run has to end. */
  #leave = new AbortController()
  /** Reason why the last clean-up failed. */
  #unclean: string | undefined
  /** Facts that the gateway has not confirmed; null once it has. */
  #facts: MachineFacts | null | undefined
  #hangs = false

  constructor(options: HostOptions, disk: HostDisk) {
    const { clock = systemClock, bootClock = systemBootClock() } = options
    this.#options = { ...options, clock }
    this.#disk = disk
    this.#bootClock = bootClock
    const leaseSeconds = (): number => this.#leaseSeconds()
    this.#run = { ...this.#options, dataDir: disk.runDir, leaseSeconds }
  }

  async run(claims: JoinClaims | undefined): Promise<HostExit> {
    const cancel = whenAborted(this.#options.signal, () => this.#quit.abort())
    try {
      const refused = await this.#untilRefused(claims)
      this.#end(refused === undefined ? "shutdown" : "refused")
      await this.#work
      if (this.#hangs) throw new Error("a part of the last run hangs; its job has ended, and a new agent continues")
      // An agent that was stopped before its clean-up succeeded continues it at its next start.
      if (refused === undefined || this.#disk.state.order !== undefined) return { cause: "stopped" }
      const message = refusalText(refused, this.#identity)
      this.#disk.forget()
      return { cause: "refused", message }
    } finally {
      cancel()
    }
  }

  get #identity(): Identity {
    const { identity } = this.#disk
    const isJoined = identity?.machineToken !== undefined || this.#options.token !== undefined
    if (identity === undefined || !isJoined)
      throw new TypeError("this host has not joined as a machine yet: give it a join token")
    return identity
  }

  /** Joins, and then talks. Returns the gateway's refusal; undefined when the agent is stopped. */
  async #untilRefused(claims: JoinClaims | undefined): Promise<RefusedError | undefined> {
    if (claims !== undefined && isNewJoin(this.#disk.identity, claims)) await this.#becomeMachine(claims)
    if (this.#quit.signal.aborted) return undefined
    const client = new HostClient(this.#options.gateway, this.#identity)
    try {
      const refused = this.#identity.machineToken === undefined ? await this.#join(client) : undefined
      if (refused !== undefined || this.#quit.signal.aborted) return refused
    } finally {
      await client.close()
    }
    return await this.#talk()
  }

  /** Takes a new identity. What is left of a job of an earlier one is removed first. */
  async #becomeMachine({ expires: _, ...claims }: JoinClaims): Promise<void> {
    const { order } = this.#disk.state
    if (order !== undefined) {
      this.#disk.update({ order: { ...order, hasEnded: true } })
      await this.#workOn(order)
    }
    if (this.#disk.state.order !== undefined) return
    this.#disk.forget()
    this.#disk.identify({ ...claims, keys: await generateAgentKeys() })
  }

  /** Asks to be the machine until there is an answer. */
  async #join(client: HostClient): Promise<RefusedError | undefined> {
    const { token = "", clock, logger } = this.#options
    const { signal } = this.#quit
    const { namespace, name } = this.#identity
    for (let tries = 0; !signal.aborted; tries++) {
      const facts = await this.#readFacts()
      const sentAt = this.#bootClock.seconds()
      try {
        if (facts === undefined) throw new GatewayError("the engine doesn't answer", { status: 0 })
        const { machineToken, leaseSeconds } = await client.join(token, { version: AGENT_VERSION, facts }, signal)
        this.#disk.identify({ ...this.#identity, machineToken })
        this.#extendLease(sentAt, leaseSeconds)
        this.#facts = null
        logger.info({ machine: name, project: namespace, ...facts }, `joined as machine ${name}; waiting for jobs`)
        return undefined
      } catch (error) {
        if (error instanceof RefusedError) return error
        if (!(error instanceof GatewayError)) throw error
        if (!signal.aborted) logger.warn({ err: error }, `failed to join as machine ${name}; trying again`)
        await waitUnlessAborted(clock, retrySeconds(error, tries, RETRY_SECONDS), signal)
      }
    }
    return undefined
  }

  /** Sends heartbeats and does what their answers say. Returns the gateway's refusal; undefined when the agent is stopped. */
  async #talk(): Promise<RefusedError | undefined> {
    const client = new HostClient(this.#options.gateway, this.#identity)
    try {
      this.#resume()
      for (let tries = 0; !this.#quit.signal.aborted; ) {
        const wait = await this.#beat(client, tries)
        if (wait instanceof RefusedError) return wait
        tries = wait.hasFailed ? tries + 1 : 0
        await this.#news.wait(this.#options.clock, wait.seconds, this.#quit.signal)
      }
      if (!this.#hangs) await this.#lastBeat(client)
      return undefined
    } finally {
      await client.close()
    }
  }

  /** Sends a heartbeat. Returns the time until the next one, seconds. */
  async #beat(client: HostClient, tries: number): Promise<RefusedError | { seconds: number; hasFailed: boolean }> {
    const { logger } = this.#options
    const beat = beatOf(this.#disk.state, await this.#present())
    this.#disk.update({ sequence: beat.sequence })
    const sentAt = this.#bootClock.seconds()
    try {
      const answer = await client.beat(beat, this.#quit.signal)
      if (beat.facts !== undefined) this.#facts = null
      const isNews = await this.#react(answer, beat, sentAt)
      return { seconds: isNews ? 0 : secondsUntilNext(beat), hasFailed: false }
    } catch (error) {
      if (error instanceof RefusedError) return error
      if (!(error instanceof GatewayError)) throw error
      if (!this.#quit.signal.aborted) logger.warn({ err: error }, "failed to reach the gateway; trying again")
      return { seconds: retrySeconds(error, tries, RETRY_SECONDS), hasFailed: true }
    }
  }

  /** Does what an answer says. Returns true if the gateway has to know something at once. */
  async #react(answer: BeatResponse, beat: ReturnType<typeof beatOf>, sentAt: number): Promise<boolean> {
    this.#extendLease(sentAt, answer.leaseSeconds)
    const { takes, ends } = reactionTo(answer, beat, this.#leaseSeconds())
    if (ends) this.#end("ended")
    const config = takes === undefined ? undefined : await this.#opened(takes)
    if (config === undefined) return false
    const order: Order = { config, since: timestamp(this.#options.clock.now()) }
    try {
      this.#disk.commit({ order })
    } catch (error) {
      this.#options.logger.error({ err: error }, "the disk takes no job; Berth offers the job again")
      return false
    }
    this.#options.logger.info({ launch: config.launch }, `running ${config.launch}`)
    this.#resume()
    return true
  }

  async #opened(sealed: string): Promise<BootConfig | undefined> {
    try {
      const config = await openBootConfig(sealed, this.#identity.keys.encryption)
      // The way that this host has to the gateway is known to work.
      const { gatewayCa: _, ...rest } = config
      return { ...rest, ...this.#options.gateway }
    } catch (error) {
      this.#options.logger.error({ err: error }, "the job of this machine can't be read; another one has to run it")
      return undefined
    }
  }

  #extendLease(sentAt: number, leaseSeconds: number): void {
    this.#disk.update({ lease: { boot: this.#bootClock.boot, end: sentAt + leaseSeconds } })
  }

  #leaseSeconds(): number {
    return secondsLeft(this.#disk.state.lease, this.#bootClock)
  }

  /** Starts the work that the disk's order leaves. */
  #resume(): void {
    const { order } = this.#disk.state
    if (order !== undefined) this.#work = this.#workOn(order)
  }

  /** Runs an order to its end, and cleans up. */
  async #workOn(order: Order): Promise<void> {
    if (workOf(this.#disk.state, this.#leaseSeconds()) === "run") {
      this.#leave = new AbortController()
      this.#hangs = !(await runOrder(this.#run, order, this.#leave))
      // No later agent of this disk starts it again.
      this.#disk.update({ order: { ...order, hasEnded: true } })
    }
    await this.#clean(order)
    if (this.#hangs) this.#quit.abort()
    this.#news.notify()
  }

  /** Cleans up until nothing of the order is left, or the agent is stopped. */
  async #clean(order: Order): Promise<void> {
    const { clock, logger, signal } = this.#options
    for (let tries = 1; ; tries++) {
      this.#unclean = (await cleanAfter(this.#run, order)) ?? this.#whyNotFreed(order)
      if (this.#unclean === undefined) break
      logger.error(
        { launch: order.config.launch },
        `${this.#unclean}; trying again, and until then this machine runs no job`,
      )
      this.#news.notify()
      if (signal.aborted) return
      await waitUnlessAborted(clock, backoffSeconds(tries, CLEAN_RETRY_SECONDS), signal)
    }
    logger.info({ launch: order.config.launch }, `nothing of ${order.config.launch} is left on this machine`)
  }

  /** Forgets the order. Returns why the disk refuses that. */
  #whyNotFreed({ config }: Order): string | undefined {
    try {
      this.#disk.commit({ order: undefined, freed: config.launch })
      return undefined
    } catch (error) {
      return `the agent's disk takes no writes: ${error instanceof Error ? error.message : String(error)}`
    }
  }

  #end(cause: LeaveCause): void {
    this.#leave.abort(cause)
  }

  /** Returns what the gateway has to know beside the disk's state. */
  async #present(): Promise<Present> {
    const unfit = this.#unclean ?? (this.#disk.state.order === undefined ? await this.#whyUnfit() : undefined)
    const facts = this.#facts === undefined && unfit === undefined ? await this.#readFacts() : this.#facts
    return { unfit: unfit && cutMessage(unfit), facts: facts ?? undefined, version: AGENT_VERSION }
  }

  /** Returns why a job could not run here now. */
  async #whyUnfit(): Promise<string | undefined> {
    const { dataDir, runtime, dockerSocket = DEFAULT_DOCKER_SOCKET } = this.#options
    if (runtime === "docker" && !(await engineAnswers(dockerSocket)))
      return `no Docker Engine answers at ${dockerSocket} of this machine`
    return await whyNoSpace(dataDir)
  }

  /** Returns what the host has; undefined if its engine does not answer. */
  async #readFacts(): Promise<MachineFacts | undefined> {
    const { clock, logger } = this.#options
    try {
      this.#facts ??= await readFacts({ ...this.#options, name: this.#identity.name })
      return this.#facts ?? undefined
    } catch (error) {
      logger.error({ err: error }, "failed to find out what this machine has; trying again")
      await waitUnlessAborted(clock, ENGINE_SECONDS, this.#quit.signal)
      return undefined
    }
  }

  /** Ends the run of an agent that is stopped, and says what is left. Until the next start the machine gets no job. */
  async #lastBeat(client: HostClient): Promise<void> {
    const { clock, logger } = this.#options
    this.#end("shutdown")
    await this.#work
    const late = new AbortController()
    const cancel = timer(clock, LAST_BEAT_SECONDS, () => late.abort())
    const unfit = this.#unclean ?? "the machine's agent was stopped: start it again"
    const beat = beatOf(this.#disk.state, { unfit: cutMessage(unfit), version: AGENT_VERSION })
    this.#disk.update({ sequence: beat.sequence })
    try {
      await client.beat(beat, late.signal)
    } catch (error) {
      logger.warn({ err: error }, "failed to report that this machine's agent was stopped")
    } finally {
      cancel()
    }
  }
}

function refusalText({ detail }: RefusedError, { name }: Identity): string {
  return (
    `Berth rejects this host as machine ${name}. ${detail} This host runs no job now, and has removed its keys. ` +
    "Its agent ends, and is not started again. Run a new command of berth machine join here, or remove the agent's container or unit."
  )
}
