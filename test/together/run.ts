import { setTimeout as sleep } from "node:timers/promises"
import { secondsBetween } from "../../src/core/apis/clock.ts"
import { isTerminal, type StoredJob } from "../../src/core/apis/job.ts"
import { type Finish, isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { JOB_ARRAYS, JOBS, PROJECTS } from "../../src/core/resources.ts"
import { vmNameOf } from "../../src/core/reuse/reuse.ts"
import { Fixture, type Operator } from "../faults/crash-fixture.ts"
import { NthChange, Plan } from "../faults/crash-gate.ts"
import { compareBills, compareJob, compareRestoredBills } from "./compare.ts"
import { outcomeOf } from "./ends.ts"
import { Front } from "./front.ts"
import { EndsReceiver } from "./receiver.ts"
import type { Outcome, Scenario } from "./scenario.ts"
import { breachesNow } from "./watch.ts"
import { openClouds, type TogetherClouds } from "./world.ts"

/** Seconds of real time after which a scenario counts as stuck. */
const PATIENCE_SECONDS = 240
/** Milliseconds without a change after which only the clock can cause the next one. */
const QUIET_MS = 40
/** Seconds by which the clock then moves: more each time, until something changes. Leases are renewed in time. */
const STEP_SECONDS = { first: 4, longest: 20, withoutLeader: 20 }
/** Looks in a row without any VM after which a user removes the caps that jobs wait for. */
const STARVED_LOOKS = 30
/** Looks for which an agent hangs: some minutes by the scenario's clock. */
const HUNG_TURNS = 12
/** Seconds by the scenario's clock after its end in which all VMs must end: the longest time for which one is kept. */
const AFTER_SECONDS = 1000
/** Seconds by the scenario's clock in which the Statements have all costs after that. */
const GRACE_SECONDS = 60
/** Seconds by the scenario's clock in which a receiver that failed four times has all messages. */
const DELIVERY_SECONDS = 3600

/** Reports of the agent before the container's start, by the outcome. */
const UNSTARTED: Partial<Record<Outcome, Omit<Finish, "time">>> = {
  registryDown: { reason: "RegistryUnavailable" },
  imageMissing: { reason: "ImagePullFailed" },
  bucketDown: { reason: "VolumeMountFailed", transient: true },
  bucketForbidden: { reason: "VolumeMountFailed" },
}

/** Reports of the agent at the container's end, by the outcome. */
const FINISHES: Partial<Record<Outcome, Omit<Finish, "time">>> = {
  fail: { reason: "ContainerFailed", exitCode: 1 },
  oom: { reason: "ContainerFailed", cause: "OutOfMemory", exitCode: 137 },
  idle: { reason: "DeadlineExceeded", cause: "Idle", exitCode: 143 },
}

/** Result of a scenario. */
export interface Ran {
  /** Breaches of a promise. */
  breaches: string[]
  jobs: number
  runs: number
  /** Number of faults that programs had. */
  faults: number
  report: string
}

/** Cluster of scenarios that may be stopped, and may come back as it was before. */
export interface Stoppage {
  /** Resolves when the cluster runs. Until then it may be replaced. */
  pass(run: StoppableRun): Promise<void>
}

/** Programs of one scenario. */
export interface StoppableRun {
  /** Kills the programs that run. Frozen ones stay so. */
  kill(): void
  /** Says that the cluster has forgotten what it learned since its backup. */
  forget(): void
}

/** Runs a scenario to its end, and compares it with the oracle. */
export async function runScenario(scenario: Scenario, client: KubeClient, stoppage?: Stoppage): Promise<Ran> {
  const open = openClouds(scenario)
  const fixture = await Fixture.open(client, open)
  const run = new ScenarioRun(scenario, { fixture, clouds: open.opened(), stoppage })
  try {
    await run.begin()
    await run.toEnd()
    return run.result()
  } finally {
    await run.close()
    await fixture.close()
  }
}

/** Surroundings of a scenario. */
interface Around {
  fixture: Fixture
  clouds: TogetherClouds
  stoppage: Stoppage | undefined
}

class ScenarioRun implements StoppableRun {
  readonly #scenario: Scenario
  readonly #fixture: Fixture
  readonly #clouds: TogetherClouds
  readonly #front: Front
  readonly #stoppage: Stoppage | undefined
  readonly #begin: Date
  readonly #breaches = new Set<string>()
  readonly #operators: Operator[] = []
  /** Looks at each running Launch so far. */
  readonly #looks = new Map<string, number>()
  /** Launches on which work began, by job. */
  readonly #attempts = new Map<string, string[]>()
  /** Job and VM of each Launch on which work began. */
  readonly #places = new Map<string, { job: string; vm: string }>()
  /** Time of the first container's start, by job. */
  readonly #started = new Map<string, Date>()
  /** Turns until which agents hang, by Launch. */
  readonly #hung = new Map<string, number>()
  readonly #cancelled = new Set<string>()
  #receiver: EndsReceiver | undefined
  #jobs: StoredJob[] = []
  #turns = 0
  #step = STEP_SECONDS.first
  #starved = 0
  #isRaised = false
  #isSubmitted = false
  /** True once the cluster was restored from a backup. */
  #isRestored = false

  constructor(scenario: Scenario, { fixture, clouds, stoppage }: Around) {
    this.#scenario = scenario
    this.#fixture = fixture
    this.#clouds = clouds
    this.#stoppage = stoppage
    this.#front = new Front(fixture, scenario.facadeFaults)
    this.#begin = fixture.clock.now()
  }

  /** Starts an operator, and submits all jobs. */
  async begin(): Promise<void> {
    const { client, namespace } = this.#fixture
    const { caps, jobs, array, receiver } = this.#scenario
    await client.patch(PROJECTS, { name: namespace }, { merge: { spec: { caps } } })
    await this.#startOperator()
    if (receiver !== undefined) this.#receiver = await EndsReceiver.open(this.#fixture, receiver)
    if (!(await this.#until(() => this.#front.isOpen()))) throw new Error("the key can't be used")
    for (const { name, spec, isPosted } of jobs) {
      if (isPosted) await this.#front.post("jobs", { name, image: "busybox", ...spec })
      else await this.#fixture.submit(name, spec)
    }
    if (array !== undefined)
      await client.create(JOB_ARRAYS, { metadata: { name: array.name, namespace }, spec: array.spec } as never)
    this.#isSubmitted = true
  }

  kill(): void {
    this.#operators.at(-1)?.life.kill()
    this.#front.kill()
  }

  forget(): void {
    this.#isRestored = true
  }

  async toEnd(): Promise<void> {
    // After a restore, jobs may run again that had ended.
    do {
      if (!(await this.#until(() => this.#areOver()))) return this.#breach("stuck: not all jobs have ended")
      for (const { life } of this.#operators) life.resume()
      await this.#settle()
    } while (!(await this.#areOver()))
    await this.#compare()
  }

  /** Waits for the end of all VMs, then for the Statements, which follow the Launches, and for the receiver. */
  async #settle(): Promise<void> {
    const isClean = async () => (await this.#fixture.alive()).length === 0 && (await this.#areSettled())
    await this.#within(AFTER_SECONDS, isClean)
    await this.#within(GRACE_SECONDS, async () => (await this.#wrongBills()).length === 0)
    if (this.#receiver !== undefined) await this.#within(DELIVERY_SECONDS, async () => this.#undelivered().length === 0)
  }

  result(): Ran {
    // A restored cluster gives a Launch the name of one that it has forgotten. Its job may get a VM before that one's ends.
    const known = [...this.#fixture.violations.map(({ what }) => what), ...this.#clouds.violations()]
    const breaches = [...this.#breaches, ...(this.#isRestored ? [] : known)]
    const situation = this.#jobs.map(({ metadata, status }) => `${metadata.name}: ${JSON.stringify(status)}`)
    return {
      breaches,
      jobs: this.#jobs.length,
      runs: this.#fixture.started.length,
      faults: Math.min(this.#operators.length, this.#scenario.operatorFaults.length) + this.#front.faults,
      report: [
        `seed ${this.#scenario.seed}: ${breaches.join("; ")}`,
        JSON.stringify(this.#scenario),
        ...situation,
        ...this.#fixture.lines.slice(-20),
      ].join("\n"),
    }
  }

  async close(): Promise<void> {
    await this.#front.close()
    await this.#receiver?.close()
  }

  async #startOperator(): Promise<void> {
    const fault = this.#scenario.operatorFaults[this.#operators.length]
    this.#operators.push(await this.#fixture.startOperator(fault === undefined ? new Plan() : new NthChange(fault)))
  }

  /** Resolves when it is done, or with false after so many seconds by the scenario's clock. */
  async #within(seconds: number, isDone: () => Promise<boolean>): Promise<boolean> {
    const end = this.#fixture.clock.ahead + seconds
    let isInTime = false
    await this.#until(async () => {
      isInTime = await isDone()
      return isInTime || this.#fixture.clock.ahead >= end
    })
    return isInTime
  }

  async #until(isDone: () => Promise<boolean>): Promise<boolean> {
    const deadline = performance.now() + PATIENCE_SECONDS * 1000
    while (performance.now() < deadline) {
      if (await isDone()) return true
      await this.#turn()
      const last = this.#operators.at(-1)
      if (last?.ended === true || last?.life.dead === true || last?.life.paused === true) await this.#startOperator()
      if (this.#isSubmitted) await this.#stoppage?.pass(this)
      await sleep(10)
      if (last !== undefined && last.life.quietMs >= QUIET_MS) this.#moveOn(last.life.leads)
      else this.#step = STEP_SECONDS.first
    }
    return false
  }

  #moveOn(isLed: boolean): void {
    this.#fixture.clock.advance(isLed ? this.#step : STEP_SECONDS.withoutLeader)
    this.#step = Math.min(this.#step * 1.5, STEP_SECONDS.longest)
  }

  /** Lets users and agents act once, and looks at the world. */
  async #turn(): Promise<void> {
    const { client, namespace, clock } = this.#fixture
    this.#jobs = (await client.list(JOBS, { namespace })).items
    await this.#watch()
    await this.#fixture.agents((launch) => this.#work(launch), {
      isSilent: ({ metadata: { name } }) =>
        this.#turns < (this.#hung.get(name) ?? 0) || this.#clouds.hosts.isCutOff(name),
      prepare: (launch) => this.#prepare(launch),
      onRefused: (vm) => this.#powerOff(vm),
    })
    await this.#cancelSome()
    this.#clouds.hosts.comeBack()
    const jump = this.#scenario.jumps[Math.floor(this.#turns / 15)]
    if (++this.#turns % 15 === 0 && jump !== undefined) clock.advance(jump)
  }

  /** Looks for what must never be, at any time. */
  async #watch(): Promise<void> {
    const { clock, client, namespace } = this.#fixture
    this.#checkContainers(await this.#fixture.alive())
    const launches = await this.#fixture.launches()
    const seen = { scenario: this.#scenario, cloud: this.#clouds.cloud, clock, begin: this.#begin, launches }
    const ownUsd = this.#clouds.hosts.billUsd()
    // A restored cluster doesn't know the VMs that are newer than its backup, until it ends them.
    const found = this.#isRestored ? [] : breachesNow({ ...seen, ownUsd, isRaised: this.#isRaised })
    for (const breach of found) this.#breach(breach)
    const isStarved = launches.every(isOver) && this.#jobs.some(({ status }) => status?.reason === "CapReached")
    this.#starved = isStarved ? this.#starved + 1 : 0
    if (this.#isRaised || this.#starved < STARVED_LOOKS) return
    this.#isRaised = true
    const caps = { maxHourlyUsd: null, maxMonthlyUsd: null, reserve: null }
    await client.patch(PROJECTS, { name: namespace }, { merge: { spec: { caps } } })
  }

  /** A job has at most one running container, whatever the cluster knows. */
  #checkContainers(vms: readonly string[]): void {
    const running = [...this.#places].filter(([launch, { vm }]) => vms.includes(vm) && this.#fixture.isRunning(launch))
    for (const [launch, { job }] of running) {
      const other = running.find(([name, place]) => name !== launch && place.job === job)
      if (other !== undefined) this.#breach(`containers of ${job} run on ${launch} and ${other[0]}`)
    }
  }

  async #cancelSome(): Promise<void> {
    const { client, namespace } = this.#fixture
    for (const { name, isCancelled } of this.#scenario.jobs) {
      const isSubmitted = this.#jobs.some(({ metadata }) => metadata.name === name)
      if (!isCancelled || !isSubmitted || this.#cancelled.has(name) || this.#turns < 8) continue
      this.#cancelled.add(name)
      this.#fixture.mayKill = true
      await client.patch(JOBS, { namespace, name }, { merge: { spec: { cancelled: true } } })
    }
  }

  #outcomesOf(job: string): readonly Outcome[] {
    const { jobs, array } = this.#scenario
    const index = array !== undefined && job.startsWith(`${array.name}-`) ? Number(job.split("-").at(-1)) : undefined
    if (index !== undefined) return array?.outcomes[index] ?? []
    return jobs.find(({ name }) => name === job)?.outcomes ?? []
  }

  /** Returns what becomes of the work on the VM of a Launch. */
  #outcomeOn(launch: StoredLaunch): Outcome {
    const { name } = launch.metadata
    const { job } = launch.spec
    const attempts = this.#attempts.get(job.name) ?? []
    if (!attempts.includes(name)) {
      this.#attempts.set(job.name, [...attempts, name])
      this.#places.set(name, { job: job.name, vm: vmNameOf(launch) })
      this.#checkOrder(job.name)
    }
    const attempt = (this.#attempts.get(job.name) ?? []).indexOf(name) + 1
    return outcomeOf(this.#outcomesOf(job.name), attempt)
  }

  /** Begins the work on a VM. Resolves with false if its container can't start. */
  async #prepare(launch: StoredLaunch): Promise<boolean> {
    const unstarted = UNSTARTED[this.#outcomeOn(launch)]
    if (unstarted !== undefined) await this.#fixture.finish(launch.metadata.name, unstarted)
    return unstarted === undefined
  }

  /** Ends a container once it has run for some looks. */
  async #work(launch: StoredLaunch): Promise<void> {
    const { name } = launch.metadata
    const job = launch.spec.job.name
    const { clock } = this.#fixture
    const started = this.#started.get(job) ?? clock.now()
    this.#started.set(job, started)
    if (this.#isBudgetSpent(launch))
      return await this.#fixture.finish(name, { reason: "BudgetExceeded", exitCode: 143 })
    if (secondsBetween(started, clock.now()) >= (launch.spec.run.timeoutSeconds ?? Number.POSITIVE_INFINITY))
      return await this.#fixture.finish(name, { reason: "DeadlineExceeded", exitCode: 143 })
    const looks = (this.#looks.get(name) ?? 0) + 1
    this.#looks.set(name, looks)
    if (looks > (this.#scenario.jobs.find((one) => one.name === job)?.looks ?? 1)) await this.#end(launch)
  }

  /** An agent ends its container at the end of the job's budget. */
  #isBudgetSpent({ spec: { budgetSeconds = Number.POSITIVE_INFINITY }, status }: StoredLaunch): boolean {
    return secondsBetween(status?.vm?.createTime ?? "", this.#fixture.clock.now()) >= budgetSeconds
  }

  async #end(launch: StoredLaunch): Promise<void> {
    const { name } = launch.metadata
    const { offer, run, budgetSeconds } = launch.spec
    const outcome = this.#outcomeOn(launch)
    if (outcome === "hangs" && !this.#hung.has(name)) return void this.#hung.set(name, this.#turns + HUNG_TURNS)
    if (outcome === "ok" || outcome === "hangs") return await this.#fixture.succeed(name)
    const seconds = run.debug?.keepSeconds
    const finish = FINISHES[outcome]
    // The agent of a job with a budget keeps its VM within that.
    const keptUntil =
      seconds === undefined || budgetSeconds !== undefined
        ? {}
        : { keptUntil: new Date(this.#fixture.clock.now().getTime() + seconds * 1000).toISOString() }
    if (finish !== undefined) return await this.#fixture.finish(name, { ...finish, ...keptUntil })
    this.#fixture.lostVm(name)
    if (offer.cloud === "own") this.#clouds.hosts.cutOff(name)
    else this.#clouds.cloud.lose(launch.status?.vm?.id ?? "", outcome === "preempted")
  }

  /** An agent that is rejected for ever ends its container and powers off. */
  #powerOff(vm: string): void {
    for (const { id } of this.#clouds.cloud.of(vm)) this.#clouds.cloud.lose(id)
  }

  /** Work may begin only after the end of all that its job waits for. */
  #checkOrder(job: string): void {
    for (const { job: name, outcome = "succeeded" } of this.#scenario.jobs.find((one) => one.name === job)?.spec
      .after ?? []) {
      const phase = this.#jobs.find(({ metadata }) => metadata.name === name)?.status?.phase
      const isMet = isTerminal(phase) && (outcome === "ended" || phase === outcome)
      if (!isMet && !this.#isRestored) this.#breach(`${job} runs, and ${name} is ${phase}, not ${outcome}`)
    }
  }

  async #areOver(): Promise<boolean> {
    const { client, namespace } = this.#fixture
    const { jobs, array } = this.#scenario
    const items = (await client.list(JOBS, { namespace })).items
    const stored = array && (await client.get(JOB_ARRAYS, { namespace, name: array.name }))
    const isArrayOver = stored === undefined || isTerminal(stored.status?.phase as never)
    return isArrayOver && items.length >= jobs.length && items.every(({ status }) => isTerminal(status?.phase))
  }

  async #areSettled(): Promise<boolean> {
    const { client, namespace } = this.#fixture
    this.#jobs = (await client.list(JOBS, { namespace })).items
    return this.#jobs.every(({ status }) => status?.settled === true)
  }

  async #wrongBills(): Promise<string[]> {
    if (this.#isRestored) return await compareRestoredBills(this.#fixture, this.#jobs)
    return await compareBills(this.#fixture, this.#clouds, this.#jobs)
  }

  #undelivered(): string[] {
    return this.#receiver?.differences(this.#jobs, this.#isRestored) ?? []
  }

  async #compare(): Promise<void> {
    await this.#areSettled()
    for (const stored of this.#jobs) {
      const { name } = stored.metadata
      const { jobs, array } = this.#scenario
      const breach = compareJob(stored, {
        outcomes: this.#outcomesOf(name),
        attempts: this.#attempts.get(name)?.length ?? 0,
        started: this.#started.get(name),
        isCancelled: this.#cancelled.has(name),
        after: jobs.find((one) => one.name === name)?.spec.after ?? array?.spec.after ?? [],
        isRestored: this.#isRestored,
        phaseOf: (job) => this.#jobs.find(({ metadata }) => metadata.name === job)?.status?.phase,
      })
      if (breach !== undefined) this.#breach(breach)
    }
    for (const name of await this.#fixture.alive()) this.#breach(`a VM of ${name} is left`)
    for (const what of await this.#wrongBills()) this.#breach(what)
    for (const what of this.#undelivered()) this.#breach(what)
  }

  #breach(what: string): void {
    this.#breaches.add(what)
  }
}
