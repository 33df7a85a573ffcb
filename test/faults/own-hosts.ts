import {
  awaitedLaunch,
  beatStep,
  type JoinedMachine,
  joinStep,
  leaseToAnswer,
} from "../../src/api/gateway/host-steps.ts"
import { type CachedMachines, kubeMachines, type Machines } from "../../src/api/gateway/machines.ts"
import { type Clock, secondsBetween, timestamp } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { MachineLaunch, MachineSpec, StoredMachine } from "../../src/core/apis/machine.ts"
import { billedUsd, roundUsd } from "../../src/core/apis/money.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { ifFound, isConflict, isNotFound } from "../../src/core/kube/errors.ts"
import { LEASE_END_SECONDS } from "../../src/core/machines/machine.ts"
import type { BeatRequest, BeatResponse } from "../../src/core/protocol/machines.ts"
import { LAUNCHES, MACHINES } from "../../src/core/resources.ts"
import type { Finding } from "./tally.ts"

/** Run of a Launch on a host: from the order until nothing of it is left. Times are seconds of the monotonic clock. */
interface Run {
  launch: string
  machine: string
  from: number
  until?: number
  /** Time at which nothing of it is left, once Berth has asked for its end. */
  cleanFrom?: number
}

/** Time for which a Launch had a machine, by what the machine's status said and its host did. Times are RFC 3339. */
interface Hold {
  launch: string
  machine: string
  hourlyPriceUsd: number
  from: string
  until?: string
}

/** State of a host, which it keeps on its disk. */
interface Host {
  sequence: number
  /** Monotonic time at which its lease ends. */
  leaseEnd: number
  run?: Run
  freed?: string
  /** True: no message arrives, in either direction. */
  isCutOff: boolean
}

export interface OwnHostsOptions {
  client: KubeClient
  clock: Clock
  /** Namespace of the machines. */
  namespace: string
  /** Namespace of the Launches. */
  systemNamespace: string
  /** Called when Berth asks a host to end the run of a Launch. */
  onStop(launch: string): void
}

/** Installation whose Launches have machines that are taken. */
const OTHERS = "others"

/** Hosts ask at each look, so the gateway waits for no change. */
const NO_CACHE: CachedMachines = {
  get: () => undefined,
  reached: () => true,
  waitUntil: () => Promise.reject(new Error("nothing is cached")),
}

/** Time from the order to end a run until nothing of it is left on the host, seconds. */
const CLEAN_SECONDS = 10

/** Number of messages of one host in one look. */
const MESSAGES = 8

/**
 * Simulated hosts of own machines. The gateway's own decisions answer their heartbeats. The hosts record what ran on them and
 * when, so the view is independent of the operator's. A host ends a run only if Berth asks for it, or if its lease ends.
 */
export class OwnHosts {
  readonly #options: OwnHostsOptions
  readonly #machines: Machines
  readonly #hosts = new Map<string, Host>()
  readonly #runs: Run[] = []
  readonly #holds = new Map<string, Hold>()
  readonly #found = new Map<string, Finding>()
  #turn: Promise<unknown> = Promise.resolve()

  constructor(options: OwnHostsOptions) {
    this.#options = options
    this.#machines = kubeMachines(options.client, NO_CACHE)
  }

  /** Creates a machine, whose host joins. */
  async join(name: string, spec: Partial<MachineSpec>): Promise<void> {
    const { client, clock, namespace } = this.#options
    const machine = { metadata: { namespace, name }, spec: { joinNumber: 1, ...spec } } as StoredMachine
    const created = await client.create(MACHINES, machine)
    const claims = { namespace, name, uid: created.metadata.uid, number: 1, expires: Number.MAX_SAFE_INTEGER }
    const keys = { signingKey: "{}", encryptionKey: "{}" }
    const facts = { cpu: 8, memoryGib: 32, diskGib: 200, architecture: "amd64" } as const
    const step = joinStep(created, claims, { protocol: 1, version: "test", ...keys, facts }, { now: clock.now() })
    if (step.is !== "write") throw new Error(`the host of ${name} can't join: ${step.is}`)
    await this.#machines.writeHost(created, step.host)
    const leaseEnd = clock.monotonic() + step.host.leaseSeconds
    this.#hosts.set(name, { sequence: 0, leaseEnd, isCutOff: false })
  }

  /** Gives a machine to a Launch of another installation, for ever. */
  async occupy(name: string): Promise<void> {
    const { client, clock, namespace } = this.#options
    const launch: MachineLaunch = {
      ...{ name: "theirs", installation: OTHERS, namespace, region: "own", specDigest: "" },
      createTime: timestamp(clock.now()),
    }
    const merge = { status: { launch, host: { running: launch.name } } }
    await client.patchStatus(MACHINES, { namespace, name }, { merge }, { fieldManager: "test" })
    this.#host(name).isCutOff = true
  }

  /** Lets all hosts act until nothing changes. Returns the Launches that have a machine, or run on a host. */
  async look(): Promise<string[]> {
    const turn = this.#turn.then(() => this.#lookNow())
    this.#turn = turn.catch(() => undefined)
    return await turn
  }

  async #lookNow(): Promise<string[]> {
    const { client, namespace } = this.#options
    for (const host of this.#hosts.values()) this.#endInTime(host)
    const { items } = await client.list(MACHINES, { namespace })
    for (const { launch, machine } of this.#running()) {
      if (!items.some(({ metadata }) => metadata.name === machine)) this.#taken(machine, launch, "was removed")
    }
    const machines = await Promise.all(items.map((machine) => this.#act(machine)))
    const held = machines.flatMap((machine) =>
      holdersOf(machine).map((launch) => ({ launch, on: machine.metadata.name })),
    )
    // A Launch that runs on one host and has the machine of another is there twice.
    const running = this.#running().filter(
      ({ launch, machine }) => !held.some((one) => one.launch === launch && one.on === machine),
    )
    return [...held, ...running].map(({ launch }) => launch)
  }

  /** Returns the Launches whose agents run and have a way to Berth. */
  get reachable(): string[] {
    return [...this.#hosts.values()].flatMap(({ run, isCutOff }) => (run === undefined || isCutOff ? [] : [run.launch]))
  }

  /** Returns true if the host that runs a Launch is cut off. */
  isCutOff(launch: string): boolean {
    return [...this.#hosts.values()].some(({ run, isCutOff }) => isCutOff && run?.launch === launch)
  }

  /** Lets hosts reach Berth again whose runs have ended with their leases. */
  comeBack(): void {
    for (const host of this.#hosts.values()) if (host.run === undefined) host.isCutOff = false
  }

  /** Cuts the host off that runs a Launch. */
  cutOff(launch: string): void {
    for (const host of this.#hosts.values()) if (host.run?.launch === launch) host.isCutOff = true
  }

  /** Lets the run of a Launch end by itself. */
  endRun(launch: string): void {
    for (const host of this.#hosts.values()) if (host.run?.launch === launch) this.#free(host)
  }

  /** Returns the owner's price for the times in which Launches had machines, USD. */
  billUsd(): number {
    return [...this.#holds.values()].reduce((total, hold) => roundUsd(total + usdOf(hold)), 0)
  }

  /** Returns what is wrong with the runs, and with what Launches cost. */
  harm(launches: readonly StoredLaunch[]): Finding[] {
    const doubled = this.#runs.flatMap((run, at) => this.#runs.slice(at + 1).flatMap((later) => doubledBy(run, later)))
    return [...this.#found.values(), ...doubled, ...launches.flatMap((launch) => this.#wrongCost(launch))]
  }

  /** Returns the difference between a Launch's cost and the owner's price for the time in which it had a machine. */
  #wrongCost({ metadata: { name }, status }: StoredLaunch): Finding[] {
    const holds = [...this.#holds.values()].filter(({ launch }) => launch === name)
    const usd = roundUsd(holds.reduce((total, hold) => total + usdOf(hold), 0))
    const { costUsd = 0 } = status ?? {}
    if (costUsd === usd) return []
    const what = `${name} costs ${costUsd} USD, and had a machine for ${usd} USD: ${JSON.stringify(holds)}`
    return [{ violation: costUsd < usd ? "lost" : "duplicates", what }]
  }

  #host(name: string): Host {
    const host = this.#hosts.get(name)
    if (host === undefined) throw new Error(`no host has joined as ${name}`)
    return host
  }

  #running(): Run[] {
    return this.#runs.filter(({ until }) => until === undefined)
  }

  /** Lets the host of a machine send heartbeats until there is no news. Returns the machine as it is then. */
  async #act(found: StoredMachine): Promise<StoredMachine> {
    const host = this.#host(found.metadata.name)
    let machine = found
    for (let messages = 0; messages < MESSAGES; messages++) {
      this.#note(machine)
      if (host.isCutOff || !isJoined(machine)) return machine
      const sentAt = this.#options.clock.monotonic()
      const answered = await this.#beat(machine, host)
      if (answered === undefined) return machine
      machine = answered.machine
      this.#note(machine)
      host.leaseEnd = sentAt + answered.leaseSeconds
      if (!this.#obey(machine.metadata.name, host, answered)) return machine
    }
    return machine
  }

  /** Returns true if the host has news to say now. */
  #obey(name: string, host: Host, { next, stop }: Pick<BeatResponse, "next" | "stop">): boolean {
    if (next !== undefined) {
      host.run = { launch: next, machine: name, from: this.#options.clock.monotonic() }
      this.#runs.push(host.run)
      return true
    }
    if (stop === undefined || host.run?.launch !== stop || host.run.cleanFrom !== undefined) return false
    this.#options.onStop(stop)
    host.run.cleanFrom = this.#options.clock.monotonic() + CLEAN_SECONDS
    return false
  }

  /** Sends one heartbeat. Returns undefined if it got no answer, because the machine changes or is deleted. */
  async #beat(found: JoinedMachine, host: Host): Promise<(BeatResponse & { machine: JoinedMachine }) | undefined> {
    const { client, clock, systemNamespace: namespace } = this.#options
    const { run, freed } = host
    const beat: BeatRequest = {
      sequence: ++host.sequence,
      ...(run && { running: run.launch }),
      ...(freed && { freed }),
    }
    const received = clock.now()
    let machine = found
    for (;;) {
      const name = awaitedLaunch(machine, beat)
      const launch = name === undefined ? undefined : await ifFound(client.get(LAUNCHES, { namespace, name }))
      const step = beatStep(machine, beat, launch, received)
      if (step.is !== "write") {
        const leaseSeconds = leaseToAnswer(machine, clock.now())
        if (step.is === "order") return { machine, leaseSeconds, next: step.launch.metadata.name }
        return { machine, leaseSeconds, ...(step.is === "answer" && step.stop !== undefined && { stop: step.stop }) }
      }
      const written = await this.#write(machine, step.host)
      if (written === undefined || !isJoined(written)) return undefined
      machine = written
    }
  }

  async #write(...args: Parameters<Machines["writeHost"]>): Promise<StoredMachine | undefined> {
    try {
      return await this.#machines.writeHost(...args)
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) return undefined
      throw error
    }
  }

  #free(host: Host, until = this.#options.clock.monotonic()): void {
    if (host.run === undefined) return
    host.run.until = until
    host.freed = host.run.launch
    delete host.run
  }

  /** Ends the run of a host whose end is due, or whose lease is about to end: at the time at which its timer ends it. */
  #endInTime(host: Host): void {
    const due = Math.min(host.leaseEnd - LEASE_END_SECONDS, host.run?.cleanFrom ?? Number.POSITIVE_INFINITY)
    if (this.#options.clock.monotonic() >= due) this.#free(host, due)
  }

  #taken(machine: string, launch: string, how: string): void {
    const what = `machine ${machine} ${how} while ${launch} ran on it`
    this.#found.set(what, { violation: "duplicates", what })
  }

  /** Notes for how long the Launch has the machine that the status names. */
  #note({ metadata: { name }, spec, status }: StoredMachine): void {
    const { launch, host } = status ?? {}
    if (launch === undefined || launch.installation === OTHERS) return
    const run = this.#host(name).run
    if (run !== undefined && run.launch !== launch.name) this.#taken(name, run.launch, `went to ${launch.name}`)
    const key = `${name}/${launch.name}`
    const { hourlyPriceUsd = 0 } = spec
    const known = this.#holds.get(key) ?? {
      launch: launch.name,
      machine: name,
      hourlyPriceUsd,
      from: launch.createTime,
    }
    const until = endOf(launch, host)
    this.#holds.set(key, { ...known, ...(until !== undefined && { until }) })
  }
}

/** Returns what is wrong with two runs: of one Launch, or of one job at the same time. */
function doubledBy(run: Run, later: Run): Finding[] {
  if (later.launch === run.launch)
    return [{ violation: "duplicates", what: `${run.launch} ran on ${run.machine}, and again on ${later.machine}` }]
  const isMeanwhile = later.from < (run.until ?? Number.POSITIVE_INFINITY)
  if (!isMeanwhile || jobOf(later.launch) !== jobOf(run.launch)) return []
  return [{ violation: "duplicates", what: `${later.launch} began on ${later.machine} while ${run.launch} ran` }]
}

/** Returns when a Launch had its machine no more; undefined while it has it. */
function endOf(
  { name, endTime, lostTime }: MachineLaunch,
  host: NonNullable<StoredMachine["status"]>["host"],
): string | undefined {
  if (host?.freed === name) return host.freedTime
  if (lostTime !== undefined) return lostTime
  return host?.running === name ? undefined : endTime
}

/** Returns the Launch that has a machine now. */
function holdersOf({ status }: StoredMachine): string[] {
  const { launch, host } = status ?? {}
  return launch === undefined || launch.installation === OTHERS || endOf(launch, host) !== undefined
    ? []
    : [launch.name]
}

function usdOf({ hourlyPriceUsd, from, until = from }: Hold): number {
  return billedUsd(hourlyPriceUsd, secondsBetween(from, until), 0)
}

/** Returns the part of a Launch's name that all Launches of its job share. */
function jobOf(launch: string): string {
  return launch.slice(0, launch.lastIndexOf("-"))
}

function isJoined(machine: StoredMachine): machine is JoinedMachine {
  return machine.status?.host !== undefined
}
