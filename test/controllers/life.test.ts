import fc from "fast-check"
import { describe, expect, test } from "vitest"
import type { Vm } from "../../src/clouds/cloud.ts"
import { isTerminal, type JobPhase, type JobStatus, type StoredJob } from "../../src/core/apis/job.ts"
import { type FinishReason, isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { appraise } from "../../src/market/placement/market.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { decide as decideJob } from "../../src/operator/job/decide.ts"
import type { JobAction } from "../../src/operator/job/render.ts"
import { createdStatus } from "../../src/operator/launch/create.ts"
import { type ConsoleReading, decide as decideLaunch, type OwnStatus } from "../../src/operator/launch/decide.ts"
import { LAUNCH_DEFAULTS } from "../../src/operator/launch/settings.ts"
import { agentOf, at, CATALOGUE, INSTALLATION, jobOf, seenOf, time } from "../harness/builders.ts"

/** Seed of the simulated lives. Another seed gives others. */
const SEED = 20_261_122

/** Allowed moves between phases in the design's table. The first status may skip phases that took no time. */
const MOVES: Record<string, readonly JobPhase[]> = {
  // The VM's agent may be faster than the controller that writes `booting`.
  none: ["queued", "booting", "running", "succeeded", "failed", "cancelled"],
  queued: ["booting", "running", "succeeded", "failed", "cancelled"],
  booting: ["running", "queued", "succeeded", "failed", "cancelled"],
  running: ["queued", "booting", "succeeded", "failed", "cancelled"],
}

type CloudMood = "fine" | "full" | "answerLost" | "transient"

interface Snapshot {
  job: StoredJob | undefined
  launches: StoredLaunch[]
}

/** A model of API server, cloud and agent for both pure decisions. Only their commands change it. */
class Fixture {
  seconds = 0
  job: StoredJob | undefined = jobOf({
    metadata: { finalizers: [], annotations: {} },
    spec: { maxRetries: 2, timeoutSeconds: 600 },
  })
  launches: StoredLaunch[] = []
  vms = new Map<string, Vm>()
  mood: CloudMood = "fine"
  inFlight = new Set<string>()
  /** Last time that the console of each VM was read. No VM writes on it. */
  consoles = new Map<string, ConsoleReading>()
  past: Snapshot[] = []
  wasCancelledIn: JobPhase | "none" | undefined
  /** Number of ends for the wait. */
  waits = 0
  #version = 1

  constructor(maxQueueSeconds?: number) {
    if (maxQueueSeconds !== undefined && this.job !== undefined) this.job.spec.maxQueueSeconds = maxQueueSeconds
  }

  copy(): Snapshot {
    return structuredClone({ job: this.job, launches: this.launches })
  }

  /** @param age number of versions that the caches are behind */
  reconcileJob(age: number): void {
    const seen = (age === 0 ? undefined : this.past.at(-age)) ?? this.copy()
    if (seen.job === undefined || this.job === undefined) return
    const launches = [...seen.launches]
    // The live reads: all Launches of a job that is deleted or waits too long, otherwise the one that the status names.
    const isLate = this.seconds >= (seen.job.spec.maxQueueSeconds ?? Number.POSITIVE_INFINITY)
    const live = this.launches.filter(
      ({ metadata }) =>
        isLate ||
        seen.job?.metadata.deletionTimestamp !== undefined ||
        metadata.name === seen.job?.status?.launches?.current,
    )
    const known = new Map(
      [...(seen.job.metadata.deletionTimestamp ? [] : launches), ...live].map((l) => [l.metadata.name, l]),
    )
    const isCached = seen.job.metadata.deletionTimestamp === undefined && !isLate
    if (isCached) for (const l of launches) known.set(l.metadata.name, l)
    const now = at(this.seconds)
    const market = () => {
      const own = [...known.values()]
      const facts = { offers: CATALOGUE, launchAccounts: [{ cloud: "sim" }], launches: launchHistory(own) }
      return appraise({ ...facts, namespace: "team" }, now, JOB_DEFAULTS)
    }
    const decision = decideJob(
      seen.job,
      { launches: [...known.values()], market, ...seenOf(seen.job) },
      now,
      JOB_DEFAULTS,
    )
    let version = seen.job.metadata.resourceVersion
    for (const action of decision.actions) {
      const next = this.#actOnJob(action, version)
      if (next === undefined) return
      version = next
    }
  }

  /** Returns the Job's version after the action; undefined when it conflicts. */
  #actOnJob(action: JobAction, version: string): string | undefined {
    const job = this.job
    if (job === undefined) return undefined
    if (action.do === "createLaunch") {
      // The Job is read live before.
      if (job.metadata.resourceVersion !== version) return undefined
      if (this.launches.some(({ metadata }) => metadata.name === action.launch.metadata.name)) return undefined
      expect(this.launches.filter((launch) => !isOver(launch))).toEqual([])
      const metadata = {
        ...action.launch.metadata,
        uid: "u",
        resourceVersion: "1",
        generation: 1,
        creationTimestamp: time(this.seconds),
      }
      this.launches.push({ ...action.launch, metadata })
      return version
    }
    if (action.do === "endLaunch") return this.#endLaunch(action.launch) ? version : undefined
    if (job.metadata.resourceVersion !== version) return undefined
    if (action.do === "dropFinalizer") {
      expect(this.launches.filter((launch) => !isOver(launch))).toEqual([])
      this.job = undefined
      return undefined
    }
    if (action.do === "adopt") {
      job.metadata.finalizers = ["berth.dev/job"]
      job.metadata.annotations = { "berth.dev/recorded-uid": job.metadata.uid }
    }
    if (action.do === "writeStatus") this.#checkMove(job, action.status)
    if (action.do === "writeStatus") job.status = structuredClone(action.status)
    return this.touch()
  }

  /** Returns false if the decision was made on another version. */
  #endLaunch({ metadata: { name, resourceVersion } }: StoredLaunch): boolean {
    const launch = this.launches.find(({ metadata }) => metadata.name === name)
    if (launch === undefined) return true
    if (launch.metadata.resourceVersion !== resourceVersion) return false
    launch.spec.ended = true
    this.#touchLaunch(launch)
    return true
  }

  /** A job that fails for its wait has no container that ever ran. */
  #checkReason({ reason }: JobStatus): void {
    if (reason !== "QueueDeadlineExceeded") return
    expect(this.launches.filter(({ status }) => status?.agent?.startTime !== undefined)).toEqual([])
    this.waits++
  }

  #checkMove(job: StoredJob, next: JobStatus): void {
    const from = job.status?.phase ?? "none"
    const to = next.phase
    if (to === undefined || from === to) return
    this.#checkReason(next)
    expect(MOVES[from] ?? [], `${from} → ${to}`).toContain(to)
    if (this.wasCancelledIn !== undefined) expect(to).toBe("cancelled")
  }

  touch(): string {
    this.#version++
    if (this.job !== undefined) this.job.metadata.resourceVersion = String(this.#version)
    return String(this.#version)
  }

  #touchLaunch({ metadata }: StoredLaunch): void {
    metadata.resourceVersion = String(++this.#version)
  }

  reconcileLaunches(): void {
    for (const launch of this.launches) this.#reconcileLaunch(launch)
  }

  /** Returns what the observer knows: it lists the VMs that Berth has recorded, and those that have sent a message. */
  #instanceOf({ metadata, status }: StoredLaunch) {
    const vm = this.vms.get(metadata.name)
    const isListed = status?.vm?.id !== undefined || status?.agent !== undefined
    return isListed && vm !== undefined ? { is: "found" as const, vm } : { is: "unknown" as const }
  }

  #reconcileLaunch(launch: StoredLaunch): void {
    const { name } = launch.metadata
    const vm = this.vms.get(name)
    const consoleRead = this.consoles.get(name)
    const observed = {
      ...(consoleRead !== undefined && { consoleRead }),
      instance: this.#instanceOf(launch),
      inFlight: this.inFlight.has(name),
      heartbeatTimedOut: false,
      isCounted: true,
      job: this.job === undefined ? ("deleted" as const) : ("active" as const),
    }
    const decision = decideLaunch(structuredClone(launch), observed, at(this.seconds), LAUNCH_DEFAULTS)
    if (decision.status !== undefined) this.#writeLaunch(launch, decision.status)
    for (const action of decision.actions) {
      if (action.do === "createInstance") this.#ask(launch)
      if (action.do === "recordInstance") this.#writeLaunch(launch, createdStatus(action.vm))
      if (action.do === "readConsole") this.consoles.set(name, action.reading)
      if (action.do === "terminate" && vm !== undefined && vm.state !== "terminated") {
        this.vms.set(name, { ...vm, state: "terminated", terminationTime: time(this.seconds) })
      }
    }
  }

  #writeLaunch(launch: StoredLaunch, status: OwnStatus): void {
    expect(isOver(launch)).toBe(false)
    launch.status = { ...launch.status, ...structuredClone(status) }
    this.#touchLaunch(launch)
    // A Launch that is over leaves no VM.
    if (isOver(launch)) expect([undefined, "terminated"]).toContain(this.vms.get(launch.metadata.name)?.state)
  }

  #ask(launch: StoredLaunch): void {
    const { name } = launch.metadata
    const existing = this.vms.get(name)
    if (this.mood === "transient") return
    if (this.mood === "full" && existing === undefined) {
      const refusal = { class: "Capacity" as const, message: "full", time: time(this.seconds) }
      this.#writeLaunch(launch, { phase: "refused", refusal, costUsd: 0 })
      return
    }
    const vm: Vm = existing ?? {
      id: `vm-${name}`,
      launch: name,
      installation: INSTALLATION.id,
      region: "here",
      state: "running",
      createTime: time(this.seconds),
    }
    this.vms.set(name, vm)
    if (this.mood === "answerLost") {
      this.inFlight.add(name)
      return
    }
    this.inFlight.delete(name)
    this.#writeLaunch(launch, createdStatus(vm))
  }

  /** Advances the VM's agent by one step, if the gateway would accept its report. */
  agentSteps(reason: FinishReason): void {
    const launch = this.launches.find((l) => !isOver(l) && this.vms.get(l.metadata.name)?.state === "running")
    if (launch === undefined || launch.spec.ended === true || launch.status?.agent?.finish !== undefined) return
    const agent = launch.status?.agent
    const now = time(this.seconds)
    const next =
      agent === undefined
        ? agentOf({ registrationTime: now })
        : agent.startTime === undefined
          ? { ...agent, startTime: now }
          : { ...agent, finish: { reason, time: now } }
    launch.status = { ...launch.status, agent: next }
    this.#touchLaunch(launch)
  }

  vmDies(preempted: boolean): void {
    for (const [name, vm] of this.vms) {
      if (vm.state === "running")
        this.vms.set(name, { ...vm, state: "terminated", terminationTime: time(this.seconds), preempted })
    }
  }

  check(): void {
    expect(this.launches.filter((launch) => !isOver(launch)).length).toBeLessThanOrEqual(1)
    expect([...this.vms.values()].filter((vm) => vm.state === "running").length).toBeLessThanOrEqual(1)
  }
}

type Command = (fixture: Fixture) => void

const reconcile = fc.constantFrom<Command>(
  (fixture) => fixture.reconcileJob(0),
  (fixture) => fixture.reconcileLaunches(),
  (fixture) => {
    fixture.reconcileLaunches()
    fixture.reconcileJob(0)
  },
)

const agent = fc
  .constantFrom<FinishReason>("Succeeded", "ContainerFailed", "ContainerFailed", "Stopped", "Preempted", "AgentFailed")
  .map((reason) => (fixture: Fixture) => fixture.agentSteps(reason))

const trouble = fc.oneof(
  fc.constantFrom<Command>(
    (fixture) => fixture.vmDies(false),
    (fixture) => fixture.vmDies(true),
    (fixture) => {
      if (fixture.job === undefined || fixture.job.spec.cancelled === true) return
      fixture.job.spec.cancelled = true
      fixture.job.metadata.generation++
      if (!isTerminal(fixture.job.status?.phase)) fixture.wasCancelledIn = fixture.job.status?.phase ?? "none"
      fixture.touch()
    },
    (fixture) => {
      if (fixture.job?.metadata.finalizers?.length) fixture.job.metadata.deletionTimestamp ??= time(fixture.seconds)
      fixture.touch()
    },
  ),
  fc.integer({ min: 1, max: 5 }).map((age) => (fixture: Fixture) => fixture.reconcileJob(age)),
  fc.constantFrom<CloudMood>("fine", "full", "answerLost", "transient").map((mood) => (fixture: Fixture) => {
    fixture.mood = mood
  }),
  fc.constantFrom(1, 30, 400, 900).map((seconds) => (fixture: Fixture) => {
    fixture.seconds += seconds
  }),
)

const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 5, arbitrary: reconcile },
  { weight: 3, arbitrary: agent },
  { weight: 2, arbitrary: trouble },
)

/** Runs the commands. The status of an ended job never changes again. */
function disturb(fixture: Fixture, commands: readonly ((fixture: Fixture) => void)[]): void {
  for (const act of commands) {
    const ended = isTerminal(fixture.job?.status?.phase) ? fixture.job?.status?.phase : undefined
    const before = fixture.copy()
    act(fixture)
    fixture.past = [...fixture.past.slice(-5), before]
    fixture.check()
    if (ended !== undefined && fixture.job !== undefined) expect(fixture.job.status?.phase).toBe(ended)
  }
}

/** Removes all faults until nothing changes any more. */
function settle(fixture: Fixture): void {
  fixture.mood = "fine"
  for (let round = 0; round < 300 && !isSettled(fixture); round++) {
    fixture.reconcileJob(0)
    fixture.reconcileLaunches()
    fixture.agentSteps("Succeeded")
    fixture.seconds += 60
    fixture.check()
  }
}

describe("a job with any events in any order, and caches of any age", () => {
  test("keeps at most one live Launch, follows the phase table, never changes an end, and leaves no VM", () => {
    const wait = fc.constantFrom(undefined, 60, 300, 1000)
    let waits = 0
    fc.assert(
      fc.property(fc.array(command, { minLength: 5, maxLength: 60, size: "max" }), wait, (commands, seconds) => {
        const fixture = new Fixture(seconds)
        disturb(fixture, commands)
        settle(fixture)
        waits += fixture.waits
        expect(isSettled(fixture)).toBe(true)
        expect([...fixture.vms.values()].every((vm) => vm.state === "terminated")).toBe(true)
        const paid = fixture.launches.reduce((total, launch) => total + (launch.status?.costUsd ?? 0), 0)
        if (fixture.job !== undefined) expect(fixture.job.status?.cost?.actualUsd).toBeCloseTo(paid, 6)
      }),
      { numRuns: 500, seed: SEED },
    )
    expect(waits).toBeGreaterThan(20)
  })
})

/** True if the job has ended with its final cost, or is deleted. */
function isSettled({ job, launches }: Fixture): boolean {
  if (!launches.every(isOver)) return false
  return job === undefined || (isTerminal(job.status?.phase) && job.status?.cost?.actualUsd !== undefined)
}
