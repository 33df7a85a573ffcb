import { setTimeout as sleep } from "node:timers/promises"
import { secondsBetween } from "../../src/core/apis/clock.ts"
import { isTerminal, type StoredJob } from "../../src/core/apis/job.ts"
import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { JOB_ARRAYS, JOBS, PROJECTS } from "../../src/core/resources.ts"
import { vmNameOf } from "../../src/core/reuse/reuse.ts"
import { Fixture, type Operator } from "../faults/crash-fixture.ts"
import { NthChange, Plan } from "../faults/crash-gate.ts"
import { expectedEnd, type Outcome, type Scenario } from "./scenario.ts"
import { openClouds, type TogetherClouds, vmBills } from "./world.ts"

/** Seconds of real time after which a scenario counts as stuck. */
const PATIENCE_SECONDS = 240
/** Milliseconds without a change after which only the clock can cause the next one. */
const QUIET_MS = 40
/** Seconds by the scenario's clock after its end in which all VMs must end: the longest time for which one is kept. */
const AFTER_SECONDS = 1000
/** Seconds by the scenario's clock in which the Statements have all costs after that. */
const GRACE_SECONDS = 60
/** Largest sum of what the costs of the Launches of one scenario are rounded by, USD. */
const ROUNDING_USD = 0.002

/** Result of a scenario. */
export interface Ran {
  /** Breaches of a promise. */
  breaches: string[]
  jobs: number
  runs: number
  /** Number of faults that operators had. */
  faults: number
  report: string
}

/** Runs a scenario to its end, and compares it with the oracle. */
export async function runScenario(scenario: Scenario, client: KubeClient): Promise<Ran> {
  const open = openClouds(scenario)
  const fixture = await Fixture.open(client, open)
  const run = new ScenarioRun(scenario, fixture, open.opened())
  try {
    await run.begin()
    await run.toEnd()
    return run.result()
  } finally {
    await fixture.close()
  }
}

class ScenarioRun {
  readonly #scenario: Scenario
  readonly #fixture: Fixture
  readonly #clouds: TogetherClouds
  readonly #breaches = new Set<string>()
  readonly #operators: Operator[] = []
  /** Looks at each running Launch so far. */
  readonly #looks = new Map<string, number>()
  /** Launches whose containers were started, by job. */
  readonly #runs = new Map<string, string[]>()
  readonly #cancelled = new Set<string>()
  #jobs: StoredJob[] = []
  #faults = 0
  #turns = 0

  constructor(scenario: Scenario, fixture: Fixture, clouds: TogetherClouds) {
    this.#scenario = scenario
    this.#fixture = fixture
    this.#clouds = clouds
  }

  async begin(): Promise<void> {
    const { client, namespace } = this.#fixture
    const { caps, jobs, array } = this.#scenario
    await client.patch(PROJECTS, { name: namespace }, { merge: { spec: { caps } } })
    for (const { name, spec } of jobs) await this.#fixture.submit(name, spec)
    if (array !== undefined)
      await client.create(JOB_ARRAYS, { metadata: { name: array.name, namespace }, spec: array.spec } as never)
    await this.#startOperator()
  }

  async toEnd(): Promise<void> {
    if (!(await this.#until(() => this.#areOver()))) return this.#breach("stuck: not all jobs have ended")
    for (const { life } of this.#operators) life.resume()
    const end = this.#fixture.clock.ahead + AFTER_SECONDS
    const isClean = async () => (await this.#fixture.alive()).length === 0 && (await this.#areSettled())
    if (!(await this.#until(async () => this.#fixture.clock.ahead >= end || (await isClean()))))
      this.#breach("stuck: VMs")
    // The Statements follow the Launches.
    const counted = this.#fixture.clock.ahead + GRACE_SECONDS
    await this.#until(async () => this.#fixture.clock.ahead >= counted || (await this.#isStated()))
    await this.#compare()
  }

  result(): Ran {
    const breaches = [
      ...this.#breaches,
      ...this.#fixture.violations.map(({ what }) => what),
      ...this.#clouds.violations(),
    ]
    const situation = this.#jobs.map(({ metadata, status }) => `${metadata.name}: ${JSON.stringify(status)}`)
    return {
      breaches,
      jobs: this.#jobs.length,
      runs: [...this.#runs.values()].reduce((total, runs) => total + runs.length, 0),
      faults: this.#faults,
      report: [
        `seed ${this.#scenario.seed}: ${breaches.join("; ")}`,
        JSON.stringify(this.#scenario),
        ...situation,
        ...this.#fixture.lines.slice(-20),
      ].join("\n"),
    }
  }

  async #startOperator(): Promise<void> {
    const fault = this.#scenario.operatorFaults[this.#operators.length]
    if (fault !== undefined) this.#faults++
    this.#operators.push(await this.#fixture.startOperator(fault === undefined ? new Plan() : new NthChange(fault)))
  }

  async #until(isDone: () => Promise<boolean>): Promise<boolean> {
    const deadline = performance.now() + PATIENCE_SECONDS * 1000
    while (performance.now() < deadline) {
      if (await isDone()) return true
      await this.#turn()
      const last = this.#operators.at(-1)
      if (last?.ended === true || last?.life.dead === true || last?.life.paused === true) await this.#startOperator()
      await sleep(10)
      if (last === undefined || last.life.quietMs < QUIET_MS) continue
      this.#fixture.clock.advance(last.life.leads ? 4 : 20)
    }
    return false
  }

  /** Lets users and agents act once, and looks at the world. */
  async #turn(): Promise<void> {
    const { client, namespace } = this.#fixture
    this.#jobs = (await client.list(JOBS, { namespace })).items
    await this.#watch()
    await this.#fixture.agents(
      (launch) => this.#work(launch),
      (launch) => this.#clouds.hosts.isCutOff(launch.metadata.name),
    )
    await this.#cancelSome()
    this.#clouds.hosts.comeBack()
    const jump = this.#scenario.jumps[Math.floor(this.#turns / 15)]
    if (++this.#turns % 15 === 0 && jump !== undefined) this.#fixture.clock.advance(jump)
  }

  async #cancelSome(): Promise<void> {
    const { client, namespace } = this.#fixture
    for (const { name, isCancelled } of this.#scenario.jobs) {
      if (!isCancelled || this.#cancelled.has(name) || this.#turns < 8) continue
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

  /** Ends a container once it has run for some looks. */
  async #work(launch: StoredLaunch): Promise<void> {
    const { name } = launch.metadata
    const job = launch.spec.job.name
    const runs = this.#runs.get(job) ?? []
    if (!runs.includes(name)) {
      this.#runs.set(job, [...runs, name])
      this.#checkOrder(job)
    }
    if (this.#isBudgetSpent(launch))
      return await this.#fixture.finish(name, { reason: "BudgetExceeded", exitCode: 143 })
    const looks = (this.#looks.get(name) ?? 0) + 1
    this.#looks.set(name, looks)
    if (looks <= (this.#scenario.jobs.find((one) => one.name === job)?.looks ?? 1)) return
    const outcomes = this.#outcomesOf(job)
    const nth = (this.#runs.get(job) ?? []).indexOf(name)
    await this.#end(launch, outcomes[Math.min(nth, outcomes.length - 1)] ?? "ok")
  }

  /** An agent ends its container at the end of the job's budget. */
  #isBudgetSpent({ spec: { budgetSeconds = Number.POSITIVE_INFINITY }, status }: StoredLaunch): boolean {
    return secondsBetween(status?.vm?.createTime ?? "", this.#fixture.clock.now()) >= budgetSeconds
  }

  async #end(launch: StoredLaunch, outcome: Outcome): Promise<void> {
    const { name } = launch.metadata
    const { offer, run } = launch.spec
    const seconds = run.debug?.keepSeconds
    // The agent of a job with a budget keeps its VM within that.
    const keptUntil =
      run.debug === undefined || launch.spec.budgetSeconds !== undefined || seconds === undefined
        ? {}
        : { keptUntil: new Date(this.#fixture.clock.now().getTime() + seconds * 1000).toISOString() }
    if (outcome === "ok") return await this.#fixture.succeed(name)
    if (outcome === "fail")
      return await this.#fixture.finish(name, { reason: "ContainerFailed", exitCode: 1, ...keptUntil })
    if (outcome === "oom")
      return await this.#fixture.finish(name, {
        reason: "ContainerFailed",
        cause: "OutOfMemory",
        exitCode: 137,
        ...keptUntil,
      })
    if (outcome === "idle")
      return await this.#fixture.finish(name, {
        reason: "DeadlineExceeded",
        cause: "Idle",
        exitCode: 143,
        ...keptUntil,
      })
    this.#fixture.lostVm(name)
    const vmId = launch.status?.vm?.id ?? ""
    if (offer.cloud === "own") this.#clouds.hosts.cutOff(name)
    else this.#clouds.cloud.lose(vmId, outcome === "preempted")
  }

  /** Looks for what must never be, at any time. */
  async #watch(): Promise<void> {
    const { caps, groups } = this.#scenario
    await this.#fixture.alive()
    const launches = (await this.#fixture.launches()).filter((launch) => !isOver(launch))
    const running = launches.filter(({ status }) => status?.agent?.startTime !== undefined && !status.agent.finish)
    for (const [job, count] of counted(running, ({ spec }) => spec.job.name))
      if (count > 1) this.#breach(`${job} has ${count} running containers`)
    const vms = this.#clouds.cloud.alive.length
    const own = launches.filter(({ spec }) => spec.offer.cloud === "own" && spec.takesOver === undefined).length
    if (vms > caps.maxVms) this.#breach(`${vms} VMs, and maxVms is ${caps.maxVms}`)
    if (vms + own > caps.maxVms + own) this.#breach(`${vms + own} machines, and maxVms is ${caps.maxVms}`)
    const gpus = this.#clouds.cloud.vms.filter(({ vm, spec }) => vm.state !== "terminated" && spec?.offer.gpu).length
    if (gpus > caps.maxGpus) this.#breach(`${gpus} GPUs, and maxGpus is ${caps.maxGpus}`)
    for (const [group, count] of counted(running, ({ spec }) => spec.concurrencyGroup ?? ""))
      if (group !== "" && count > (groups[group] ?? 0)) this.#breach(`${count} jobs of group ${group} run`)
  }

  /** A container may start only after all that its job waits for. */
  #checkOrder(job: string): void {
    for (const { job: name, outcome = "succeeded" } of this.#scenario.jobs.find((one) => one.name === job)?.spec
      .after ?? []) {
      const phase = this.#jobs.find(({ metadata }) => metadata.name === name)?.status?.phase
      const isMet = isTerminal(phase) && (outcome === "ended" || phase === outcome)
      if (!isMet) this.#breach(`${job} runs, and ${name} is ${phase}, not ${outcome}`)
    }
  }

  async #areOver(): Promise<boolean> {
    const { client, namespace } = this.#fixture
    const { jobs, array } = this.#scenario
    const items = (await client.list(JOBS, { namespace })).items
    const expected = jobs.length + (array?.spec.size ?? 0)
    const stored = array && (await client.get(JOB_ARRAYS, { namespace, name: array.name }))
    const isArrayOver = stored === undefined || isTerminal(stored.status?.phase as never)
    return (
      isArrayOver &&
      items.length >= Math.min(expected, jobs.length) &&
      items.every(({ status }) => isTerminal(status?.phase))
    )
  }

  async #areSettled(): Promise<boolean> {
    const { client, namespace } = this.#fixture
    this.#jobs = (await client.list(JOBS, { namespace })).items
    return this.#jobs.every(({ status }) => status?.settled === true)
  }

  async #isStated(): Promise<boolean> {
    const billed = this.#clouds.billUsd?.() ?? 0
    return Math.abs(billed - (await this.#fixture.statedUsd())) <= ROUNDING_USD
  }

  async #compare(): Promise<void> {
    await this.#areSettled()
    for (const job of this.#jobs) this.#compareJob(job)
    for (const name of await this.#fixture.alive()) this.#breach(`a VM of ${name} is left`)
    const onMachines = (await this.#fixture.launches()).filter(({ spec }) => spec.offer.cloud === "own")
    for (const { what } of this.#clouds.hosts.harm(onMachines)) this.#breach(what)
    const [billed, stated] = [this.#clouds.billUsd?.() ?? 0, await this.#fixture.statedUsd()]
    if (Math.abs(billed - stated) > ROUNDING_USD) {
      this.#breach(`billed ${billed} USD, and the Statements have ${stated}`)
      for (const what of await this.#wrongCosts()) this.#breach(what)
    }
    const ofJobs = this.#jobs.reduce((total, { status }) => total + (status?.cost?.actualUsd ?? 0), 0)
    if (Math.abs(billed - ofJobs) > ROUNDING_USD) this.#breach(`billed ${billed} USD, and the jobs cost ${ofJobs}`)
  }

  /** Returns the VMs whose Launches have another cost than the cloud's bill. */
  async #wrongCosts(): Promise<string[]> {
    const launches = await this.#fixture.launches()
    return [...vmBills(this.#clouds.cloud)].flatMap(([vm, billed]) => {
      const chain = launches.filter((launch) => vmNameOf(launch) === vm)
      const usd = chain.reduce((total, { status }) => total + (status?.costUsd ?? 0), 0)
      if (Math.abs(usd - billed) < 0.0003) return []
      const found = chain.map(({ spec, status }) => [
        spec.job.name,
        status?.vm,
        status?.loss,
        status?.agent?.finish?.reason,
      ])
      return [`the VM of ${vm} was billed ${billed} USD, and its Launches cost ${usd}: ${JSON.stringify(found)}`]
    })
  }

  #compareJob({ metadata: { name }, spec, status }: StoredJob): void {
    const runs = this.#runs.get(name)?.length ?? 0
    if (status?.settled !== true) this.#breach(`${name} is not settled`)
    if (this.#cancelled.has(name) && status?.phase === "cancelled") return
    const dependency = this.#unmet(name)
    if (dependency !== undefined) {
      if (status?.reason !== "DependencyFailed" || runs > 0)
        this.#breach(`${name} is ${status?.reason}, and ${dependency}`)
      return
    }
    const { maxCostUsd = Number.POSITIVE_INFINITY } = spec
    const { actualUsd = 0 } = status?.cost ?? {}
    if (actualUsd > maxCostUsd) this.#breach(`${name} costs ${actualUsd} USD, and its maxCostUsd is ${maxCostUsd}`)
    if (status?.reason === "BudgetExceeded" && spec.maxCostUsd !== undefined) return
    const expected = expectedEnd(spec, this.#outcomesOf(name))
    const found = { phase: status?.phase, reason: status?.reason, runs }
    if (JSON.stringify(found) !== JSON.stringify(expected))
      this.#breach(`${name} ended as ${JSON.stringify(found)}, not as ${JSON.stringify(expected)}`)
  }

  /** Returns which prerequisite of a job ended otherwise than it needs. */
  #unmet(job: string): string | undefined {
    const after = this.#scenario.jobs.find(({ name }) => name === job)?.spec.after ?? []
    const unmet = after.find(({ job: name, outcome = "succeeded" }) => {
      const phase = this.#jobs.find(({ metadata }) => metadata.name === name)?.status?.phase
      return outcome !== "ended" && phase !== outcome
    })
    return unmet && `${unmet.job} did not end as ${unmet.outcome}`
  }

  #breach(what: string): void {
    this.#breaches.add(what)
  }
}

function counted<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, number> {
  const counts = new Map<string, number>()
  for (const item of items) counts.set(keyOf(item), (counts.get(keyOf(item)) ?? 0) + 1)
  return counts
}
