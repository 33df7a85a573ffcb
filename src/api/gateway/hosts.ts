import { type Clock, timestamp } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { Host, StoredMachine } from "../../core/apis/machine.ts"
import { keyOf } from "../../core/apis/meta.ts"
import { isConflict, isNotFound } from "../../core/kube/errors.ts"
import type { CountedFlow } from "../../core/kube/flow.ts"
import {
  type BeatRequest,
  BeatRequestSchema,
  type BeatResponse,
  type JoinClaims,
  JoinRequestSchema,
  type JoinResponse,
  machineToken,
  verifyJoinToken,
  verifyMachineToken,
} from "../../core/protocol/machines.ts"
import { bootConfig, sealBootConfig } from "../../core/protocol/messages.ts"
import { type HostMessageKind, NEXT_WAIT_SECONDS } from "../../core/protocol/protocol.ts"
import { Problem } from "../http/problem.ts"
import { awaitedLaunch, type BeatStep, beatStep, type JoinedMachine, joinStep, leaseToAnswer } from "./host-steps.ts"
import type { Launches } from "./launches.ts"
import type { MachineRef, Machines } from "./machines.ts"
import { MessageLimits } from "./message-limits.ts"
import { openRegistration, openSigned } from "./opening.ts"
import { changesTooFast, refusal, WRITE_TRIES } from "./refusal.ts"

export interface HostsOptions {
  machines: Machines
  launches: Pick<Launches, "read">
  /** Key that the tokens of hosts and agents are derived from. */
  bootstrapKey: Uint8Array
  clock: Clock
  logger: Logger
  /** Reason for which no other host may join as a machine. Absent: any may. */
  whyForbidden?: string | undefined
  /** Ends all waits of hosts. Absent: nothing does. */
  shutdown?: AbortSignal
}

/** Signed message of a host as received, for the machine that the URL names, with the token of its header. */
export interface HostMessage {
  machine: MachineRef
  jws: string
  token: string | undefined
}

/** Settled step of a heartbeat, and the Machine for which it was decided. */
interface Settled {
  step: Exclude<BeatStep, { is: "write" }>
  machine: JoinedMachine
}

/**
 * Handles the messages of the hosts that people have joined. Any replica can handle any message. It decides on the Machine
 * and writes with its resourceVersion as the precondition. Every method rejects with a Problem or a KubeError.
 */
export class Hosts {
  readonly #options: HostsOptions
  readonly #limits: MessageLimits
  readonly #shutdown: AbortSignal

  constructor(options: HostsOptions) {
    this.#options = options
    this.#shutdown = options.shutdown ?? new AbortController().signal
    this.#limits = new MessageLimits(options.clock)
  }

  /** Returns the flow of a machine's messages at the API server. */
  flowOf({ namespace, name }: MachineRef): CountedFlow {
    return { kind: "agents", path: [namespace, name], reads: 0 }
  }

  /** Checks a message before its body is read, and charges the machine. @throws Problem 401 for a wrong token, 429 */
  async admit(kind: HostMessageKind, { machine, token }: Omit<HostMessage, "jws">): Promise<void> {
    if (kind === "join") this.#claimsOf(machine, token)
    else await this.#joined(machine, token)
    await this.#limits.chargeMachine(keyOf({ metadata: machine }), kind)
  }

  /** Makes the sender the host of the machine, or finds that it is. Call `admit` first. */
  async join({ machine: ref, jws, token }: HostMessage): Promise<JoinResponse> {
    const claims = this.#claimsOf(ref, token)
    const request = await openRegistration("join", jws, JoinRequestSchema)
    const { clock, logger, bootstrapKey, whyForbidden } = this.#options
    for (let tries = 0; tries < WRITE_TRIES; tries++) {
      const machine = await this.#options.machines.read(ref)
      const step = joinStep(machine, claims, request, { now: clock.now(), whyForbidden })
      if (step.is === "refused") throw refusal(step.type, step.detail)
      if (step.is === "held") throw this.#held(step.until)
      if (machine === undefined) continue
      const written = step.is === "joined" ? machine : await this.#write(machine, step.host)
      if (!isJoined(written)) continue
      if (step.is === "write") logger.info({ machine: keyOf(machine), number: claims.number }, "a host has joined")
      // A repeated message may come after the end of the lease that the first one was granted.
      const leaseSeconds = Math.max(1, leaseToAnswer(written, clock.now()))
      return { machineToken: machineToken(bootstrapKey, claims.uid, claims.number), leaseSeconds }
    }
    throw changesTooFast()
  }

  /**
   * Handles a heartbeat. It may wait for a job. Call `admit` first.
   * @param hangUp aborts when the host closes the connection
   */
  async beat({ machine: ref, jws, token }: HostMessage, hangUp: AbortSignal): Promise<BeatResponse> {
    const machine = await this.#joined(ref, token)
    const { signingKey } = machine.status.host
    const beat = await openSigned("beat", { jws, key: signingKey }, BeatRequestSchema)
    const { machine: current, step } = await this.#settledOrLate(machine, beat, hangUp)
    const { clock, logger, bootstrapKey } = this.#options
    const leaseSeconds = leaseToAnswer(current, clock.now())
    if (step.is === "wait") return { leaseSeconds }
    if (step.is === "answer") return { leaseSeconds, ...(step.stop !== undefined && { stop: step.stop }) }
    logger.info({ machine: keyOf(machine), launch: step.launch.metadata.name }, "a machine gets its next job")
    const next = await sealBootConfig(bootConfig(step.launch, bootstrapKey), current.status.host.encryptionKey)
    return { leaseSeconds, next }
  }

  /** Decides, and waits for changes of the Machine while there is no job, for NEXT_WAIT_SECONDS at most. */
  async #settledOrLate(found: JoinedMachine, beat: BeatRequest, hangUp: AbortSignal): Promise<Settled> {
    const { clock, machines } = this.#options
    const received = clock.now()
    const late = new AbortController()
    const cancel = clock.setTimer(NEXT_WAIT_SECONDS, () => late.abort())
    const signal = AbortSignal.any([hangUp, this.#shutdown, late.signal])
    try {
      for (let machine = found; ; ) {
        const settled = await this.#settle(machine, beat, received)
        if (settled.step.is !== "wait") return settled
        try {
          await machines.untilChanged(settled.machine, signal)
        } catch (error) {
          if (signal.aborted) return settled
          throw error
        }
        const { namespace = "", name } = found.metadata
        const ref = { namespace, name }
        machine = sameHost(machines.get(ref) ?? (await machines.read(ref)), found)
      }
    } finally {
      cancel()
    }
  }

  /** Decides and writes, until there is nothing to write. */
  async #settle(found: JoinedMachine, beat: BeatRequest, received: Date): Promise<Settled> {
    const { machines, launches } = this.#options
    const { namespace = "", name } = found.metadata
    let machine = found
    for (let tries = 0; tries < WRITE_TRIES; tries++) {
      const awaited = awaitedLaunch(machine, beat)
      // Live: a cached one may lack the agent that has registered.
      const launch = awaited === undefined ? undefined : await launches.read(awaited)
      const step = beatStep(machine, beat, launch, received)
      if (step.is !== "write") return { step, machine }
      const written = await this.#write(machine, step.host)
      machine = sameHost(written ?? (await machines.read({ namespace, name })), found)
    }
    throw changesTooFast()
  }

  /** Returns undefined if the Machine has changed or was deleted in the meantime. */
  async #write(machine: StoredMachine, host: Host): Promise<StoredMachine | undefined> {
    try {
      return await this.#options.machines.writeHost(machine, host)
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) return undefined
      throw error
    }
  }

  /** @throws Problem 401 unless it is a join token of this machine */
  #claimsOf({ namespace, name }: MachineRef, token: string | undefined): JoinClaims {
    const claims = token === undefined ? undefined : verifyJoinToken(this.#options.bootstrapKey, token)
    if (claims?.namespace === namespace && claims.name === name) return claims
    throw refusal("agent-not-authentic", "The join token is not one of this machine.")
  }

  /** Returns the Machine whose host has this token. @throws Problem 401 */
  async #joined(ref: MachineRef, token: string | undefined): Promise<JoinedMachine> {
    const { machines } = this.#options
    if (token === undefined) throw notThisHost()
    const cached = machines.get(ref)
    if (this.#isHost(cached, token)) return cached
    // The cache may not have its join yet.
    const live = await machines.read(ref)
    if (this.#isHost(live, token)) return live
    throw notThisHost()
  }

  #isHost(machine: StoredMachine | undefined, token: string): machine is JoinedMachine {
    return machine !== undefined && verifyMachineToken(this.#options.bootstrapKey, machine, token)
  }

  #held(until: Date): Problem {
    const seconds = Math.max(1, Math.ceil((until.getTime() - this.#options.clock.now().getTime()) / 1000))
    const detail = `The former host of this machine may still run a job until ${timestamp(until)}, when its lease ends. The host joins then by itself, or as soon as the former one has ended its job.`
    return new Problem({ type: "machine-held", status: 409, detail, headers: { "Retry-After": String(seconds) } })
  }
}

function isJoined(machine: StoredMachine | undefined): machine is JoinedMachine {
  return machine?.status?.host !== undefined
}

/** Returns the Machine if its host is still the one that has signed. @throws Problem 401 */
function sameHost(machine: StoredMachine | undefined, signed: JoinedMachine): JoinedMachine {
  const { uid } = signed.metadata
  const isSame = machine?.metadata.uid === uid && machine.status?.host?.signingKey === signed.status.host.signingKey
  if (isSame && isJoined(machine)) return machine
  throw notThisHost()
}

/** One answer for every cause: who has no token learns of no machine. */
function notThisHost(): Problem {
  return refusal("agent-not-authentic", "The machine was removed, or another host has joined as it.")
}
