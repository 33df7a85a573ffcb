import type { Static, TSchema } from "typebox"
import { type Clock, timestamp } from "../../core/apis/clock.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import type { Run } from "../../core/apis/job.ts"
import { type AgentStatus, type FinishReason, isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { containerMemoryMib, isOnSharedHost } from "../../core/apis/memory.ts"
import { nvidiaGpusOf } from "../../core/apis/offer.ts"
import { isConflict, isNotFound } from "../../core/kube/errors.ts"
import type { CountedFlow } from "../../core/kube/flow.ts"
import { checkShape, sealBuckets, sealOrder, verifyBootstrapToken } from "../../core/protocol/messages.ts"
import {
  type Ability,
  type Buckets,
  LOG_CHUNK_BYTES,
  type LogsRequest,
  LogsRequestSchema,
  type LogsResponse,
  type MessageKind,
  NextRequestSchema,
  type NextResponse,
  type RegisterRequest,
  RegisterRequestSchema,
  type RegisterResponse,
  type RegistryAccess,
  type ReportRequest,
  type ReportResponse,
  type RunOrder,
  VolumesRequestSchema,
  type VolumesResponse,
  WorkdirRequestSchema,
} from "../../core/protocol/protocol.ts"
import { type SessionProof, SessionProofSchema } from "../../core/protocol/sessions.ts"
import { badRequest, type Problem, unavailable } from "../http/problem.ts"
import type { LogStore, TimeMark } from "../logs/store.ts"
import type { StoredUpload, UploadStore } from "../uploads/store.ts"
import type { UsageTails } from "../usage/tails.ts"
import { BucketAccessError, type BucketCredentials } from "./buckets.ts"
import type { HeartbeatWriter } from "./heartbeats.ts"
import type { Launches } from "./launches.ts"
import { MessageLimits } from "./message-limits.ts"
import { answerNext } from "./next.ts"
import { asClientError, openRegistration, openSigned } from "./opening.ts"
import { changesTooFast, refusal, WRITE_TRIES } from "./refusal.ts"
import type { PullCredentials } from "./registries.ts"
import {
  desiredState,
  heartbeatSecondsFor,
  isAhead,
  isCurrent,
  isHeartbeat,
  isNews,
  registered,
  takeReport,
} from "./report.ts"
import { type SecretEnv, SecretMissingError } from "./secrets.ts"
import { boundsOf, ReceivedReportSchema, readUsage } from "./usage.ts"

export interface GatewayOptions {
  launches: Launches
  secretEnv: SecretEnv
  /** Opens the buckets of runs. Absent: no bucket can be mounted. */
  buckets?: BucketCredentials
  /** Finds the credentials to pull images with. Absent: images are pulled anonymously. */
  registries?: PullCredentials
  logs: LogStore
  /** Store of the working directories of runs. */
  uploads: Pick<UploadStore, "find" | "read">
  /** MiB of working directories that this replica sends in a minute. Default: WORKDIR_MIB_PER_MINUTE. */
  workdirMibPerMinute?: number
  /** Writes heartbeats into Leases. Absent: each is written into its Launch. */
  heartbeats?: Pick<HeartbeatWriter, "beat" | "size">
  /** Returns the ids of a Launch's open sessions. Absent: there are none. */
  sessionsOf?: (launch: string) => string[]
  /** Keeps what runs use. Absent: only a finish has usage. */
  usage?: Pick<UsageTails, "take">
  /** Key that bootstrap tokens are derived from, at least 32 bytes. The launch controller has the same key. */
  bootstrapKey: Uint8Array
  clock: Clock
  logger: Logger
  /** Whole seconds between two reports of an agent. Default: by the number of VMs that report here, 15 to 60. */
  heartbeatSeconds?: number
  /** Ends all waits of idle VMs. Absent: nothing does. */
  shutdown?: AbortSignal
}

/** Signed message as received, for the Launch that the URL names. */
export interface Message {
  launch: string
  jws: string
}

/** Kinds of requests for a Launch. */
export type AdmittedKind = MessageKind | "boot-failure"

/** Launch and the status of the agent that holds it. */
interface BoundLaunch {
  launch: StoredLaunch
  agent: AgentStatus
}

/** Message that the agent of the Launch has signed. */
interface Opened<Content> extends BoundLaunch {
  content: Content
}

/**
 * Handles the agents' messages. Any replica can handle any message: the only state here is heartbeats and usage that
 * are not written yet. It decides on the current Launch and writes with its resourceVersion as the precondition. Every method
 * rejects with a Problem or a KubeError.
 */
export class Gateway {
  readonly #options: GatewayOptions
  readonly #limits: MessageLimits
  readonly #shutdown: AbortSignal

  constructor(options: GatewayOptions) {
    this.#options = options
    this.#shutdown = options.shutdown ?? new AbortController().signal
    this.#limits = new MessageLimits(options.clock, options.workdirMibPerMinute)
  }

  /** Checks a message before its body is read, and charges the Launch. @throws Problem 401 for a wrong token, 429 */
  async admit(kind: AdmittedKind, launch: string, token: string | undefined): Promise<void> {
    if (!this.isFromVm(launch, token)) throw refusal("agent-not-authentic", "The bootstrap token is not this Launch's.")
    await this.charge(launch, kind)
  }

  /** Returns true if the token is the Launch's. */
  isFromVm(launch: string, token: string | undefined): boolean {
    return token !== undefined && verifyBootstrapToken(this.#options.bootstrapKey, launch, token)
  }

  /** Returns the flow of a Launch's messages at the API server. */
  flowOf(launch: string): CountedFlow {
    const project = this.#options.launches.get(launch)?.spec.job.namespace ?? ""
    return { kind: "agents", path: [project, launch], reads: 0 }
  }

  /** Charges a Launch for a message of its VM. @throws Problem 429 */
  charge(launch: string, kind: AdmittedKind): Promise<void> {
    return this.#limits.chargeLaunch(launch, kind)
  }

  /**
   * Binds the Launch to the agent's keys, or finds that it is bound to them, and returns the run. Call `admit` first.
   */
  async register(message: Message): Promise<RegisterResponse> {
    const request = await openRegistration("register", message.jws, RegisterRequestSchema)
    requireLaunch(request, message.launch)
    const { launch, isFirst } = await this.#bind(message.launch, request)
    const { run, offer, job } = launch.spec
    try {
      await this.#requireWorkdir(launch, request)
      requireReadOnly(run, request)
      const secretEnv = await this.#options.secretEnv(job.namespace, run.secretEnv ?? {})
      const buckets = await this.#openBuckets(launch)
      const registry = await this.#openRegistry(launch, isFirst)
      const gpus = Math.ceil(nvidiaGpusOf(offer)?.count ?? 0)
      const order: RunOrder = {
        run,
        secretEnv,
        gpus,
        ...(run.volumes && { buckets }),
        ...(registry && { registry }),
        ...(isOnSharedHost(offer) && { sharedHost: { memoryMib: containerMemoryMib(offer) } }),
      }
      const sealed = await sealOrder(order, request.encryptionKey)
      return { order: sealed, heartbeatSeconds: this.#heartbeatSeconds, time: this.#options.clock.now().getTime() }
    } catch (error) {
      const reason = finishReasonOf(error)
      if (!(error instanceof Error) || reason === undefined) throw error
      throw await this.#nothingToRun(message.launch, reason, error)
    }
  }

  /** Handles a report. If it has a finish, the finish is in the API server when this resolves. */
  async report(message: Message): Promise<ReportResponse> {
    const { content, ...found } = await this.#open("report", message, ReceivedReportSchema)
    const bounds = boundsOf(found.agent, this.#options.clock.now())
    const { report, reported } = readUsage(content, bounds)
    const launch = await this.#take(found, report)
    const hasFinished = report.finish !== undefined
    if (hasFinished && launch.status?.agent?.finish !== undefined) this.#logFinish(launch, report)
    const usage = reported && (await this.#options.usage?.take(launch, reported, hasFinished))
    const sessions = this.#options.sessionsOf?.(message.launch) ?? []
    return {
      ...{ desired: desiredState(launch), heartbeatSeconds: this.#heartbeatSeconds, ...usage },
      ...(sessions.length > 0 && { sessions }),
    }
  }

  get #heartbeatSeconds(): number {
    return this.#options.heartbeatSeconds ?? heartbeatSecondsFor(this.#options.heartbeats?.size ?? 0)
  }

  /** Returns the Launch with the contents of the report. A mere heartbeat is written soon, with those of other VMs. */
  async #take({ launch, agent }: BoundLaunch, report: ReportRequest): Promise<StoredLaunch> {
    const now = this.#options.clock.now()
    const { debug } = launch.spec.run
    const next = takeReport(agent, report, now, debug)
    if (next !== undefined && isNews(agent, next))
      return await this.#update(launch, (current, at) => takeReport(current, report, at, debug))
    const { name } = launch.metadata
    const { heartbeats } = this.#options
    if (isHeartbeat(agent, report)) heartbeats?.beat(name, report.sequence)
    if (next === undefined || (heartbeats !== undefined && !isAhead(agent, now))) return launch
    return await this.#update(launch, (current, at) => takeReport(current, report, at, debug))
  }

  /**
   * Answers a VM that asks for another job. It may wait for one.
   * @param hangUp aborts when the VM closes the connection
   */
  async next(message: Message, hangUp: AbortSignal): Promise<NextResponse> {
    const { launch, content } = await this.#open("next", message, NextRequestSchema)
    return await answerNext(launch, content, this.#options, AbortSignal.any([hangUp, this.#shutdown]))
  }

  /**
   * Checks the proof with which an agent opens a session's connection.
   * @throws Problem 401, 400, 404, 410 if it is not signed by the Launch's agent, for this connection
   */
  async checkSessionProof(message: Message, expected: Omit<SessionProof, "launch">): Promise<void> {
    const { content } = await this.#open("session", message, SessionProofSchema)
    const isFor = Object.entries(expected).every(([name, value]) => content[name as keyof SessionProof] === value)
    if (!isFor) throw refusal("agent-not-authentic", "The proof is for another connection.")
  }

  /** Opens the run's buckets again. */
  async renewVolumes(message: Message): Promise<VolumesResponse> {
    const { launch, agent } = await this.#open("volumes", message, VolumesRequestSchema)
    try {
      return { buckets: await sealBuckets(await this.#openBuckets(launch), agent.encryptionKey) }
    } catch (error) {
      // The agent continues with its current access. The connection may come back before that expires.
      if (error instanceof BucketAccessError) throw unavailable(error.message, 60, error)
      throw error
    }
  }

  async #openBuckets({ metadata, spec: { run, job, lifetimeSeconds } }: StoredLaunch): Promise<Buckets> {
    const { volumes = {} } = run
    if (Object.keys(volumes).length === 0) return {}
    const { buckets } = this.#options
    if (buckets === undefined) throw new BucketAccessError("this installation opens no buckets")
    try {
      return await buckets({ namespace: job.namespace, launch: metadata.name, lifetimeSeconds, volumes })
    } catch (error) {
      if (error instanceof BucketAccessError) throw error
      throw unavailable("The providers of the buckets are unavailable. Send the message again.", 10, error)
    }
  }

  /** Rejects with WorkdirError if the agent can't get the run's working directory. */
  async #requireWorkdir(launch: StoredLaunch, { version, abilities }: RegisterRequest): Promise<void> {
    if (launch.spec.run.workdir === undefined) return
    if (!abilities.includes("workdir" satisfies Ability)) {
      const why = `the agent of the VM (version ${version}) is older than the gateway, and has no support for workdir`
      throw new WorkdirError("WorkdirFailed", `${why}: use the agent image of this version of Berth`)
    }
    await this.#uploadOf(launch)
  }

  /** Returns the upload of the Launch's own project. The agent can't name another. Rejects with WorkdirError. */
  async #uploadOf({ spec: { job, run } }: StoredLaunch): Promise<StoredUpload> {
    const { sha256 = "" } = run.workdir ?? {}
    const found = await this.#fromUploads(() => this.#options.uploads.find({ namespace: job.namespace, sha256 }))
    if (found !== undefined) return found
    const why = `the project has no upload ${sha256}`
    throw new WorkdirError("WorkdirMissing", `workdir.sha256: ${why}; upload it, and create the job again`)
  }

  async #fromUploads<Result>(ask: () => Promise<Result>): Promise<Result> {
    try {
      return await ask()
    } catch (error) {
      throw unavailable("The store of uploads is unavailable. Send the message again.", 10, error)
    }
  }

  /** Returns the rest of the working directory's archive, after the bytes that the agent has. */
  async openWorkdir(message: Message): Promise<{ bytes: number; pieces: AsyncIterable<Uint8Array> }> {
    const { launch, content } = await this.#open("workdir", message, WorkdirRequestSchema)
    if (launch.spec.run.workdir === undefined) throw badRequest("The run has no workdir.")
    try {
      const upload = await this.#uploadOf(launch)
      const bytes = upload.bytes - content.start
      if (bytes < 0) throw badRequest(`/start is ${content.start}; the archive has ${upload.bytes} bytes.`)
      await this.#limits.chargeWorkdir(message.launch, upload.namespace, bytes)
      return { bytes, pieces: this.#options.uploads.read(upload, content.start) }
    } catch (error) {
      throw error instanceof WorkdirError ? await this.#nothingToRun(message.launch, error.reason, error) : error
    }
  }

  #openRegistry({ metadata, spec: { run, job } }: StoredLaunch, isFirst: boolean): Promise<RegistryAccess> | undefined {
    return this.#options.registries?.({ namespace: job.namespace, launch: metadata.name, image: run.image, isFirst })
  }

  async appendLogs(message: Message): Promise<LogsResponse> {
    const { launch, content } = await this.#open("logs", message, LogsRequestSchema)
    const bytes = decodeChunk(content)
    const now = this.#options.clock.now().getTime()
    const marks = marksIn(content, { createdAt: Date.parse(launch.metadata.creationTimestamp), now })
    const { namespace, uid } = launch.spec.job
    try {
      const log = { job: { namespace, uid }, launch: launch.spec.number }
      const { length } = await this.#options.logs.append(log, content.offset, bytes, marks)
      return { length, time: now }
    } catch (error) {
      throw unavailable("The log store is unavailable. Send the message again.", 10, error)
    }
  }

  /**
   * Binds the Launch to the keys. The first attempt uses the cached Launch if it has no agent: the resourceVersion of the
   * write proves that the Launch has not changed. All other answers need the live Launch.
   */
  async #bind(name: string, request: RegisterRequest): Promise<{ launch: StoredLaunch; isFirst: boolean }> {
    let known = this.#cachedUnbound(name)
    for (let tries = 0; tries < WRITE_TRIES; tries++, known = undefined) {
      const launch = known ?? (await this.#liveLaunch(name))
      if (!isCurrent(launch)) throw refusal("launch-not-current", "The Launch has ended: power off.")
      const agent = launch.status?.agent
      const now = this.#options.clock.now()
      if (agent !== undefined && holds(agent, request)) return { launch, isFirst: false }
      const next = agent === undefined ? registered(request, now) : { ...agent, conflictTime: timestamp(now) }
      const written = agent?.conflictTime === undefined ? await this.#write(launch, next) : launch
      if (written === undefined) continue
      if (agent === undefined) return { launch: written, isFirst: true }
      throw refusal("launch-key-conflict", "Another key pair has registered for this Launch: power off.")
    }
    throw changesTooFast()
  }

  /** Records that the Launch has nothing to run. Returns the rejection for its agent. */
  async #nothingToRun(name: string, reason: FinishReason, { message }: Error): Promise<Problem> {
    await this.#update(await this.#liveLaunch(name), (agent, now) => {
      if (agent.finish !== undefined) return undefined
      const finish = {
        reason,
        message: message.slice(0, LIMITS.message),
        time: timestamp(now),
      }
      return { ...agent, finish }
    })
    return refusal("nothing-to-run", message)
  }

  /**
   * Writes the agent status that `change` returns for the Launch. After a conflict it decides again on the live Launch.
   */
  async #update(
    found: StoredLaunch,
    change: (agent: AgentStatus, now: Date) => AgentStatus | undefined,
  ): Promise<StoredLaunch> {
    let launch = found
    for (let tries = 0; tries < WRITE_TRIES; tries++) {
      const agent = launch.status?.agent
      if (agent === undefined) throw refusal("launch-not-current", "No agent has registered for this Launch.")
      const next = change(agent, this.#options.clock.now())
      if (next === undefined) return launch
      const written = await this.#write(launch, next)
      if (written !== undefined) return written
      launch = await this.#liveLaunch(launch.metadata.name)
    }
    throw changesTooFast()
  }

  /** Returns undefined if the Launch has changed or was deleted in the meantime. */
  async #write(launch: StoredLaunch, agent: AgentStatus): Promise<StoredLaunch | undefined> {
    try {
      return await this.#options.launches.patchAgentStatus(launch, agent)
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) return undefined
      throw error
    }
  }

  async #liveLaunch(name: string): Promise<StoredLaunch> {
    const launch = await this.#options.launches.read(name)
    if (launch === undefined) throw refusal("unknown-launch", "There is no such Launch: power off.")
    return launch
  }

  /** Returns the cached Launch if an agent has registered for it. Otherwise each of its messages costs a read. */
  #cachedBound(name: string): StoredLaunch | undefined {
    const cached = this.#options.launches.get(name)
    return cached?.status?.agent === undefined ? undefined : cached
  }

  /** Returns the cached Launch if an agent may register for it and none has. */
  #cachedUnbound(name: string): StoredLaunch | undefined {
    const cached = this.#options.launches.get(name)
    return cached !== undefined && cached.status?.agent === undefined && isCurrent(cached) ? cached : undefined
  }

  /** Returns the content that the agent of the Launch has signed. The cheap checks come first. */
  async #open<T extends TSchema>(kind: MessageKind, message: Message, schema: T): Promise<Opened<Static<T>>> {
    const { launch: name, jws } = message
    const bound = await this.#boundLaunch(name)
    // The answer with the next job may have been lost: the agent asks for it again.
    const isAnswered = !isOver(bound.launch) || (kind === "next" && bound.launch.status?.handedTo !== undefined)
    if (!isAnswered) throw refusal("launch-not-current", "The Launch has ended: power off.")
    await asClientError(() => checkShape(kind, jws))
    const content = await openSigned(kind, { jws, key: bound.agent.signingKey }, schema)
    requireLaunch(content, name)
    return { ...bound, content }
  }

  /** Returns the Launch and its agent. It reads the Launch live if the cache does not have the registration yet. */
  async #boundLaunch(name: string): Promise<BoundLaunch> {
    const launch = this.#cachedBound(name) ?? (await this.#liveLaunch(name))
    const agent = launch.status?.agent
    if (agent === undefined) throw refusal("agent-not-authentic", "No agent has registered for this Launch.")
    return { launch, agent }
  }

  #logFinish(launch: StoredLaunch, report: ReportRequest): void {
    const { reason } = report.finish ?? {}
    this.#options.logger.info({ launch: launch.metadata.name, reason, sequence: report.sequence }, "finish reported")
  }
}

/** A run can't get its working directory. */
class WorkdirError extends Error {
  override readonly name = "WorkdirError"
  readonly reason: FinishReason

  constructor(reason: FinishReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/** @throws BucketAccessError if the agent would mount a read-only volume writable */
function requireReadOnly({ volumes = {} }: Run, { version, abilities }: RegisterRequest): void {
  const [name] = Object.keys(volumes).filter((one) => volumes[one]?.readOnly === true)
  if (name === undefined || abilities.includes("readOnly" satisfies Ability)) return
  const why = `the agent of the VM (version ${version}) is older than the gateway, and would mount it writable`
  throw new BucketAccessError(`volume ${name} is readOnly: ${why}; use the agent image of this version of Berth`)
}

/** Returns the reason why the Launch has nothing to run, if a retry would not help. */
function finishReasonOf(error: unknown): FinishReason | undefined {
  if (error instanceof SecretMissingError) return "SecretMissing"
  if (error instanceof WorkdirError) return error.reason
  return error instanceof BucketAccessError ? "VolumeMountFailed" : undefined
}

/** @throws Problem 401 if the agent has signed the message for another Launch */
function requireLaunch(message: unknown, launch: string): void {
  if ((message as { launch?: string }).launch === launch) return
  throw refusal("agent-not-authentic", "The message is for a different Launch than the URL.")
}

function holds(agent: AgentStatus, request: RegisterRequest): boolean {
  return agent.signingKey === request.signingKey && agent.encryptionKey === request.encryptionKey
}

/**
 * Returns the times of a piece of log for the store. No time is before the Launch or in the future: the agent has
 * learned this clock from an answer, but a VM may send anything.
 */
function marksIn(
  { offset, times = [] }: LogsRequest,
  { createdAt, now }: { createdAt: number; now: number },
): TimeMark[] {
  const marks = times.map(({ at, time }) => ({ offset: offset + at, time: Math.min(now, Math.max(createdAt, time)) }))
  return marks.length === 0 ? [{ offset, time: now }] : marks
}

function decodeChunk({ data }: Pick<LogsRequest, "data" | "offset">): Uint8Array {
  const bytes = Buffer.from(data, "base64")
  if (bytes.toString("base64") !== data) throw badRequest("/data is not base64 (RFC 4648, with padding).")
  if (bytes.byteLength <= LOG_CHUNK_BYTES) return bytes
  throw badRequest(`/data has ${bytes.byteLength} bytes; send at most ${LOG_CHUNK_BYTES} at once.`)
}
