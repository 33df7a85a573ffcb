import { once } from "node:events"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import type { JWK } from "jose"
import { load } from "js-yaml"
import { GatewayClient } from "../src/agent/gateway-client.ts"
import { GatewayError, RefusedError, retrySeconds } from "../src/agent/gateway-connection.ts"
import { AGENT_VERSION } from "../src/agent/main.ts"
import { waitUnlessAborted } from "../src/agent/timers.ts"
import { type ReportedUsage, UsageDelivery } from "../src/agent/usage/delivery.ts"
import { HEARTBEAT_WRITE_SECONDS } from "../src/api/gateway/report.ts"
import type { Vm } from "../src/clouds/cloud.ts"
import { type Clock, systemClock, timestamp } from "../src/core/apis/clock.ts"
import type { Run } from "../src/core/apis/job.ts"
import type { StoredLaunch } from "../src/core/apis/launch.ts"
import type { UsagePoint } from "../src/core/apis/usage.ts"
import { type AgentKeys, generateAgentKeys, openOrder, parseUserData } from "../src/core/protocol/messages.ts"
import {
  type BootConfig,
  HEARTBEAT_SECONDS,
  type ReportRequest,
  type ReportResponse,
} from "../src/core/protocol/protocol.ts"

/** HTTP request for a VM. */
export interface VmRequest {
  name: string
  installation: string
  region: string
  userData: string
}

/** Counts of the reports of all VMs' agents. */
export interface ReportCounts {
  sent: number
  answered: number
}

interface SimulatedVm {
  vm: Vm
  off: AbortController
}

/** A VM that runs already, the config that it booted with, and the keys of its agent. */
export interface Resumption {
  launch: StoredLaunch
  config: BootConfig
  keys: AgentKeys
}

/** Real VMs take ten times as long. No real agent reports before its VM's creation is recorded. */
export const BOOT_SECONDS = 2

/** Retry delays for a rejected or unanswered message, the same as the agent's. */
const RETRY_SECONDS = { baseSeconds: 1, capSeconds: 30 }

/**
 * A cloud whose VMs are objects in this process. Once a VM has booted, an agent uses the gateway's real protocol over
 * HTTP, with its own keys and connection. It registers, opens the order, reports that the container runs, writes a line
 * of log and reports the end. It reads the container's command from the order: `sleep N` or `sleep infinity`. It
 * executes nothing.
 */
export class SimulatedCloud {
  readonly #server: Server
  readonly #vms = new Map<string, SimulatedVm>()
  readonly #lives = new Set<Promise<void>>()
  readonly counts: ReportCounts = { sent: 0, answered: 0 }
  /** Switch of the usage that agents of running VMs report. */
  readonly usage = { isReported: false }
  /** Time of the agents of running VMs. */
  readonly clock = new PacedClock()

  private constructor() {
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => {
        response.writeHead(500).end(String(error))
      })
    })
  }

  static async start(): Promise<SimulatedCloud> {
    const cloud = new SimulatedCloud()
    cloud.#server.listen(0, "127.0.0.1")
    await once(cloud.#server, "listening")
    return cloud
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Current number of VMs. */
  get size(): number {
    return this.#vms.size
  }

  /**
   * Adds a VM that runs already. Its agent starts to report at some moment of the interval in which every heartbeat is
   * written once. So these writes spread like those of VMs that were started one after the other.
   */
  resume({ launch: { metadata, spec, status }, config, keys }: Resumption): void {
    const { installation, offer } = spec
    const { sequence = 0, startTime = "" } = status?.agent ?? {}
    const started = this.#add({ name: metadata.name, installation, region: offer.region })
    const { counts, usage, clock } = this
    const agent = new SimulatedAgent(config, keys, { counts, sequence, usage, clock })
    this.#live(started, async (signal) => {
      await waitUnlessAborted(clock, Math.random() * HEARTBEAT_WRITE_SECONDS, signal)
      await agent.beat(startTime, HEARTBEAT_SECONDS, signal)
    })
  }

  /** Ends all VMs. Their agents send no last report. */
  async stop(): Promise<void> {
    for (const { off } of this.#vms.values()) off.abort()
    await Promise.all(this.#lives)
    this.#server.close()
    this.#server.closeAllConnections()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "/", this.url)
    switch (request.method) {
      case "PUT":
        return json(response, this.#launch(JSON.parse(await text(request)) as VmRequest))
      case "GET":
        return json(response, this.#list(searchParams.get("installation"), searchParams.get("region")))
      default:
        this.#vms.get(decodeURIComponent(pathname.slice(1)))?.off.abort()
        return json(response, {})
    }
  }

  #list(installation: string | null, region: string | null): Vm[] {
    const all = [...this.#vms.values()].map(({ vm }) => vm)
    return all.filter((vm) => vm.region === region && vm.installation === installation)
  }

  #launch(request: VmRequest): Vm {
    const known = this.#vms.get(request.name)
    if (known !== undefined) return known.vm
    const started = this.#add(request)
    this.#live(started, async (signal) => {
      await waitUnlessAborted(systemClock, BOOT_SECONDS, signal)
      const agent = new SimulatedAgent(configIn(request.userData), await generateAgentKeys(), {
        counts: this.counts,
        sequence: 0,
      })
      await agent.run(signal)
    })
    return started.vm
  }

  #add({ name, installation, region }: Omit<VmRequest, "userData">): SimulatedVm {
    const createTime = timestamp(systemClock.now())
    const vm: Vm = { id: name, launch: name, installation, region, state: "running", createTime }
    const started = { vm, off: new AbortController() }
    this.#vms.set(name, started)
    return started
  }

  /** Keeps a VM as long as its agent lives. */
  #live({ vm, off }: SimulatedVm, life: (signal: AbortSignal) => Promise<void>): void {
    const lived = life(off.signal)
      .catch((error: unknown) => console.error(`the agent of ${vm.launch} failed:`, error))
      .finally(() => {
        this.#vms.delete(vm.launch)
        this.#lives.delete(lived)
      })
    this.#lives.add(lived)
  }
}

/** Clock whose monotonic time and timers can go faster than time. */
class PacedClock implements Clock {
  #pace = 1
  #at = systemClock.monotonic()
  #since = this.#at

  /** From now on, this many seconds pass in each second. Timers that run already keep their time. */
  set pace(pace: number) {
    this.#at = this.monotonic()
    this.#since = systemClock.monotonic()
    this.#pace = pace
  }

  now(): Date {
    return systemClock.now()
  }

  monotonic(): number {
    return this.#at + (systemClock.monotonic() - this.#since) * this.#pace
  }

  setTimer(seconds: number, callback: () => void): () => void {
    return systemClock.setTimer(seconds / this.#pace, callback)
  }
}

const MINUTE_MS = 60_000

/** Begin of all points before now: agents on a faster clock make points sooner than time passes. */
const BEFORE_MS = 120 * MINUTE_MS

/** Minutes between two reports with usage of one of many VMs: those of every second report. */
const MINUTES = 2

/**
 * Points of a run. Some minutes pass for each report that has usage, so that none is made in a time without usage.
 * The first report has up to half an hour: tails of VMs that started at different times have all lengths.
 */
class SimulatedMeter {
  points: readonly UsagePoint[] = []
  #nextTime: number

  constructor() {
    const minutes = Math.ceil(Math.random() * 30)
    this.#nextTime = Date.now() - BEFORE_MS - (minutes + 1) * MINUTE_MS
    for (let minute = 0; minute < minutes; minute++) this.measure()
  }

  /** Adds a minute. */
  measure(): void {
    const point = {
      ...{ time: this.#nextTime, seconds: 60, cpu: 3 + Math.random(), memoryMib: 12_000 + Math.random() },
      ...{ diskGib: 31.25, receivedMib: Math.random() * 100, sentMib: Math.random() },
      ...{ gpu: Math.random() * 100, vramMib: 20_480 },
    }
    this.points = [...this.points, point]
    this.#nextTime += MINUTE_MS
  }

  stored(time: number): void {
    this.points = this.points.filter((point) => point.time > time)
  }
}

interface AgentOptions {
  counts: ReportCounts
  sequence: number
  /** Absent: the agent reports no usage. */
  usage?: { isReported: boolean }
  clock?: Clock
}

/** One VM's agent without a container. */
class SimulatedAgent {
  readonly #client: GatewayClient
  readonly #encryption: JWK
  readonly #counts: ReportCounts
  readonly #usage: { isReported: boolean }
  #sequence: number
  readonly #meter = new SimulatedMeter()
  readonly #clock: Clock
  readonly #delivery: UsageDelivery

  constructor(config: BootConfig, keys: AgentKeys, options: AgentOptions) {
    const { counts, sequence, usage = { isReported: false }, clock = systemClock } = options
    this.#client = new GatewayClient(config, keys, systemClock)
    this.#clock = clock
    this.#delivery = new UsageDelivery(this.#meter, clock)
    this.#encryption = keys.encryption
    this.#counts = counts
    this.#usage = usage
    this.#sequence = sequence
  }

  /** Runs a whole life. Resolves when the finish is stored, or the VM must end. */
  async run(signal: AbortSignal): Promise<void> {
    const about = { version: AGENT_VERSION, runtime: "docker" }
    const registered = await this.#persist(() => this.#client.register(about), signal)
    if (registered === undefined) return await this.#client.close()
    const { run } = await openOrder(registered.order, this.#encryption)
    const startTime = timestamp(systemClock.now())
    const seconds = secondsOf(run)
    if (seconds === undefined) return await this.beat(startTime, registered.heartbeatSeconds, signal)
    await this.#runFor(seconds, { startTime, heartbeatSeconds: registered.heartbeatSeconds }, signal)
    await this.#persist(() => this.#client.sendLog(0, Buffer.from("done\n")), signal)
    await this.#finish(startTime, "Succeeded", signal)
  }

  /** Reports the start, and then at intervals while the container runs. */
  async #runFor(
    seconds: number,
    { startTime, heartbeatSeconds }: { startTime: string; heartbeatSeconds: number },
    signal: AbortSignal,
  ): Promise<void> {
    for (let left = seconds; ; ) {
      const answer = await this.#report({ startTime }, signal)
      const next = Math.min(left, answer?.heartbeatSeconds ?? heartbeatSeconds)
      await waitUnlessAborted(this.#clock, next, signal)
      left -= next
      if (left <= 0 || signal.aborted) return
    }
  }

  /** Reports at intervals until the container must stop, or the VM must end. */
  async beat(startTime: string, intervalSeconds: number, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const usage = this.#nextUsage()
      const answer = await this.#report({ startTime, ...usage }, signal)
      if (answer !== undefined) this.#delivery.answered(usage, answer)
      if (answer?.desired === "stop") return await this.#finish(startTime, "Stopped", signal)
      await waitUnlessAborted(this.#clock, answer?.heartbeatSeconds ?? intervalSeconds, signal)
    }
    await this.#client.close()
  }

  #nextUsage(): ReportedUsage {
    if (!this.#usage.isReported) return {}
    const usage = this.#delivery.next(false)
    for (let minute = 0; usage.usage !== undefined && minute < MINUTES; minute++) this.#meter.measure()
    return usage
  }

  async #finish(startTime: string, reason: "Succeeded" | "Stopped", signal: AbortSignal): Promise<void> {
    const exitCode = reason === "Succeeded" ? 0 : 143
    await this.#report({ startTime, finish: { reason, exitCode, time: timestamp(systemClock.now()) } }, signal)
    await this.#client.close()
  }

  async #report(news: Partial<ReportRequest>, signal: AbortSignal): Promise<ReportResponse | undefined> {
    const answer = await this.#persist(() => {
      this.#counts.sent++
      return this.#client.report({ sequence: ++this.#sequence, attempt: 1, retryCount: 0, ...news })
    }, signal)
    if (answer !== undefined) this.#counts.answered++
    return answer
  }

  /** Retries until there is an answer; undefined if the gateway rejects this agent or the VM must end. */
  async #persist<Answer>(send: () => Promise<Answer>, signal: AbortSignal): Promise<Answer | undefined> {
    for (let tries = 0; !signal.aborted; tries++) {
      try {
        return await send()
      } catch (error) {
        if (error instanceof RefusedError) return undefined
        if (!(error instanceof GatewayError)) throw error
        await waitUnlessAborted(this.#clock, retrySeconds(error, tries, RETRY_SECONDS), signal)
      }
    }
    return undefined
  }
}

/** Returns the boot configuration that an agent of a public cloud finds on its VM's disk. */
function configIn(userData: string): BootConfig {
  const { write_files: files } = load(userData) as { write_files: { path: string; content: string }[] }
  const file = files.find(({ path }) => path.endsWith("/user-data.json"))
  if (file === undefined) throw new Error("this cloud-init writes no user-data.json")
  return parseUserData(file.content)
}

/** Returns the running time of the container; undefined for ever. */
function secondsOf({ command = [], args = [] }: Run): number | undefined {
  const [program, argument] = [...command, ...args]
  const seconds = argument === "infinity" ? undefined : Number(argument)
  if (program === "sleep" && !Number.isNaN(seconds)) return seconds
  throw new Error(`a simulated VM runs sleep N or sleep infinity, not ${JSON.stringify([...command, ...args])}`)
}

function json(response: ServerResponse, answer: object): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer))
}
