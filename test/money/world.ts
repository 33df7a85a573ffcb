import type { SpendCaps } from "../../src/core/apis/caps.ts"
import type { JobSpec, StoredJob } from "../../src/core/apis/job.ts"
import { isTerminal } from "../../src/core/apis/job.ts"
import { type Finish, isOver, type LaunchStatus, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import type { StoredStatement } from "../../src/core/apis/statement.ts"
import { partPrices } from "../../src/market/catalogue/parts.ts"
import { cancelState, type LevelCaps, sumRecorded, sumSpending } from "../../src/market/placement/caps.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { appraise, type Market } from "../../src/market/placement/market.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { isCounted } from "../../src/market/placement/statements.ts"
import { createCatalogue } from "../../src/market/router/catalogue.ts"
import { decide as decideJob } from "../../src/operator/job/decide.ts"
import { decide as decideLaunch } from "../../src/operator/launch/decide.ts"
import { LAUNCH_DEFAULTS } from "../../src/operator/launch/settings.ts"
import { decide as decideStatements } from "../../src/operator/statement/decide.ts"
import { STATEMENT_DEFAULTS } from "../../src/operator/statement/settings.ts"
import { agentOf, jobOf, offerOf, seenOf } from "../harness/builders.ts"
import { type BilledVm, billOf } from "./bills.ts"

/** Two machines of each cloud, on demand and spot. */
const OFFERS = (
  [
    ["aws", "us-east-1", "m7i.large"],
    ["aws", "us-east-1", "m7i.xlarge"],
    ["gcp", "us-central1", "n2-standard-2"],
    ["azure", "eastus", "Standard_D2s_v5"],
    ["nebius", "eu-north1", "cpu-d3_4vcpu-16gb"],
  ] as const
).flatMap(([cloud, region, instanceType], index) => {
  const [onDemandUsd, size] = [0.1 + 0.07 * index, { cpu: 2 + index, memoryGib: 8 + index }]
  const offer = { cloud, region, instanceType, ...size, minimumBilledSeconds: 60 }
  return [
    offerOf({ ...offer, hourlyPriceUsd: onDemandUsd }),
    offerOf({ ...offer, provisioning: "spot", hourlyPriceUsd: Math.round(onDemandUsd * 3.1e5) / 1e6 }),
  ]
})
const CATALOGUE = createCatalogue(OFFERS, undefined, partPrices())
const SETTINGS = { ...JOB_DEFAULTS, maxLostVms: 99, allowsSessions: true }
const CLOUDS = ["aws", "gcp", "azure", "nebius"] as const

/** A VM, and what decides when it ends. */
interface SimulatedVm extends BilledVm {
  launch: string
  namespace: string
  /** Time at which its system and agent start. */
  boot: number
  /** Time at which its container ends by itself. */
  done: number
  /** Time until which it is kept for sessions, because its container fails. Absent: it succeeds. */
  kept?: number
  ceiling: number | undefined
  onDemand: number
}

export interface WorldOptions {
  /** Caps by level. */
  caps: Partial<Record<"project" | "organization" | "installation", SpendCaps>>
  random: () => number
  /** Unix time, seconds. */
  begin: number
}

/**
 * Jobs, VMs and clouds that bill them, and Berth's decisions about them. While the operator is down, VMs live on and end
 * themselves. Only then are the decisions made up for.
 */
export class World {
  readonly #options: WorldOptions
  readonly #jobs = new Map<string, StoredJob>()
  readonly #launches = new Map<string, StoredLaunch>()
  readonly #statements = new Map<string, StoredStatement>()
  readonly vms: SimulatedVm[] = []
  /** Messages of jobs that waited. */
  readonly waits = new Set<string>()
  /** Unix time, seconds. */
  now: number
  #isDown = false

  constructor(options: WorldOptions) {
    this.#options = options
    this.now = options.begin
  }

  /** Lets some time pass, and a random thing happen. */
  step(): void {
    const { random } = this.#options
    this.#pass(this.now + 1 + Math.floor(random() ** 3 * 6 * 3600))
    const draw = random()
    if (draw < 0.35) this.#submit()
    else if (draw < 0.55) this.#floatPrices()
    else if (draw < 0.6) this.#interrupt()
    else if (draw < 0.7) this.#isDown = !this.#isDown
    this.#operate()
  }

  /** Lets all VMs end, and everything be counted. */
  finish(): void {
    this.#isDown = false
    for (let round = 0; round < 80 && this.#isUnfinished(); round++) {
      this.#pass(this.now + 24 * 3600)
      this.#operate()
    }
    for (let round = 0; round < 4; round++) this.#operate()
  }

  /** Returns the dollars that the clouds billed the namespaces of a level in each month. */
  bills(owns: (namespace: string) => boolean = () => true, isOf: (vm: SimulatedVm) => boolean = () => true) {
    const all = new Map<string, number>()
    for (const vm of this.vms.filter((one) => owns(one.namespace) && isOf(one))) {
      const bill = billOf({ ...vm, end: Math.min(vm.end, this.now) })
      for (const [month, usd] of bill) all.set(month, (all.get(month) ?? 0) + usd)
    }
    return all
  }

  get jobs(): readonly StoredJob[] {
    return [...this.#jobs.values()]
  }

  get statements(): readonly StoredStatement[] {
    return [...this.#statements.values()]
  }

  #isUnfinished(): boolean {
    return [...this.#launches.values()].some((launch) => !isOver(launch))
  }

  #submit(): void {
    const { random } = this.#options
    const one = <T>(values: readonly T[]) => values[Math.floor(random() * values.length)] as T
    const spec: Partial<JobSpec> = {
      cloud: [one(CLOUDS)],
      provisioning: one(["onDemand", "spot"]),
      ...(random() < 0.6 && { timeoutSeconds: 600 + Math.floor(random() * 40 * 3600) }),
      ...(random() < 0.4 && { maxCostUsd: Math.round(random() * 400) / 100 }),
      ...(random() < 0.4 && { debug: { keepSeconds: 60 + Math.floor(random() * 14_000) } }),
    }
    const number = this.#jobs.size
    const namespace = one(["team", "lab"])
    const job = jobOf({ spec, metadata: { uid: `job-${number}`, name: `job-${number}`, namespace } })
    this.#jobs.set(job.metadata.uid, job)
  }

  /** Changes prices of spot machines. A VM whose price rises above its ceiling is interrupted. */
  #floatPrices(): void {
    const { random } = this.#options
    for (const vm of this.vms.filter((one) => one.isSpot && one.end > this.now)) {
      const hourly = Math.min(vm.onDemand, (vm.machinePrices.at(-1)?.hourly ?? 0) * (0.9 + random() * 0.5))
      const isOver = vm.cloud !== "gcp" && vm.ceiling !== undefined && hourly > vm.ceiling
      if (isOver) Object.assign(vm, { end: Math.max(this.now, vm.begin + 60), isInterrupted: true })
      else vm.machinePrices = [...vm.machinePrices, { from: this.now, hourly }]
    }
  }

  #interrupt(): void {
    const spot = this.vms.filter((vm) => vm.isSpot && vm.end > this.now)
    const vm = spot[Math.floor(this.#options.random() * spot.length)]
    if (vm !== undefined) Object.assign(vm, { end: Math.max(this.now, vm.begin + 60), isInterrupted: true })
  }

  #pass(time: number): void {
    this.now = time
  }

  /** Does what the operator does, unless it is down. */
  #operate(): void {
    if (this.#isDown) return
    this.#observe()
    this.#count()
    for (const uid of this.#jobs.keys()) this.#decideJob(uid)
    this.#count()
  }

  /** Writes what agents and clouds say into the Launches. */
  #observe(): void {
    for (const vm of this.vms) {
      const launch = this.#launches.get(vm.launch)
      if (launch === undefined || isOver(launch)) continue
      const agent = vm.boot > this.now ? undefined : this.#agentOf(vm)
      const seen = { ...launch, status: { ...launch.status, ...(agent && { agent }) } }
      const isEnded = vm.end <= this.now
      const view = {
        is: "found" as const,
        vm: {
          ...{ id: vm.launch, launch: vm.launch, installation: "i", region: launch.spec.offer.region },
          createTime: timeOf(vm.begin),
          state: isEnded ? ("terminated" as const) : ("running" as const),
          ...(isEnded && { terminationTime: timeOf(vm.end), preempted: vm.isInterrupted }),
        },
      }
      const facts = {
        instance: view,
        heartbeatTimedOut: false,
        job: "active" as const,
        isCounted: false,
        inFlight: false,
        consoleRead: "ended" as const,
      }
      const { status, actions } = decideLaunch(seen, facts, this.#date(), LAUNCH_DEFAULTS)
      if (actions.some((action) => action.do === "terminate")) this.#end(vm)
      this.#launches.set(vm.launch, { ...seen, status: { ...seen.status, ...status } as LaunchStatus })
    }
  }

  #agentOf(vm: SimulatedVm) {
    const isDone = vm.done <= this.now && vm.done <= vm.end
    return agentOf({
      registrationTime: timeOf(vm.boot),
      startTime: timeOf(vm.boot),
      lastHeartbeatTime: timeOf(Math.min(this.now, vm.end)),
      ...(isDone && { finish: finishOf(vm) }),
    })
  }

  #decideJob(uid: string): void {
    const job = this.#jobs.get(uid) as StoredJob
    const { namespace = "" } = job.metadata
    const launches = [...this.#launches.values()].filter(({ spec }) => spec.job.uid === uid)
    if (isTerminal(job.status?.phase) && launches.every((launch) => isOver(launch))) return
    const cancels = Object.values(this.#options.caps).some(({ onExceeded }) => onExceeded === "cancel")
    const observed = {
      launches,
      ...seenOf(job),
      organization: "acme",
      market: () => this.#marketOf(namespace),
      ...(cancels && { cancel: cancelState(this.#levelsOf(namespace)) }),
    }
    const { status, actions } = decideJob(job, observed, this.#date(), SETTINGS)
    for (const action of actions) {
      if (action.do === "createLaunch") this.#launch(action.launch as StoredLaunch)
      if (action.do === "endLaunch") this.#endVm(action.launch)
    }
    if (status.reason === "CapReached") this.waits.add(status.message ?? "")
    this.#jobs.set(uid, { ...job, status })
  }

  #endVm(launch: StoredLaunch): void {
    this.#launches.set(launch.metadata.name, { ...launch, spec: { ...launch.spec, ended: true } })
    const vm = this.vms.find((one) => one.launch === launch.metadata.name)
    if (vm !== undefined) this.#end(vm)
  }

  /** Ends a VM soon. One that just began lives for the minute that Berth counts at least. */
  #end(vm: SimulatedVm): void {
    vm.end = Math.min(vm.end, Math.max(this.now + 30, vm.begin + 60))
  }

  /** Creates a VM. It ends at its container's end, or at its own deadlines: no operator is needed. */
  #launch(made: StoredLaunch): void {
    const { random } = this.#options
    const { name } = made.metadata
    const {
      offer,
      hourlyPrices = { machineUsd: 0, diskUsd: 0, addressUsd: 0 },
      lifetimeSeconds,
      budgetSeconds,
    } = made.spec
    const begin = this.now + Math.floor(random() * 5)
    const boot = begin + 60 + Math.floor(random() * 120)
    // Some agents hang. Then only the timer of the VM's system ends it, unless the operator does.
    const isHung = random() < 0.3
    const run = random() < 0.3 ? Number.POSITIVE_INFINITY : random() ** 2 * 30 * 3600
    const done = isHung
      ? Number.POSITIVE_INFINITY
      : Math.floor(boot + Math.min(run, made.spec.run.timeoutSeconds ?? run))
    // The agent needs up to 90 s to end. Then the timer of the system powers the VM off, which takes up to 90 s.
    const byBudget =
      isHung || budgetSeconds === undefined ? Number.POSITIVE_INFINITY : boot + budgetSeconds + random() * 180
    // The agent of a failed container keeps the VM, within its lifetime and budget.
    const { debug } = made.spec.run
    const limit = boot + Math.min(lifetimeSeconds, budgetSeconds ?? Number.POSITIVE_INFINITY) - 30
    const until = Math.floor(Math.min(done + (debug?.keepSeconds ?? 0), limit))
    const isKept = debug !== undefined && until > done && random() < 0.6
    const own = (isKept ? until : done) + random() * 90
    const end = Math.floor(Math.min(own, byBudget, boot + lifetimeSeconds + random() * 90))
    const onDemand = OFFERS.find((one) => one.instanceType === offer.instanceType)?.hourlyPriceUsd ?? 0
    this.vms.push({
      launch: name,
      namespace: made.spec.job.namespace,
      cloud: offer.cloud as BilledVm["cloud"],
      isSpot: offer.provisioning === "spot",
      ...(isKept && { kept: until }),
      ...{ begin, boot, done, end, onDemand, ceiling: made.spec.ceilingUsd, isInterrupted: false },
      machinePrices: [{ from: begin, hourly: hourlyPrices.machineUsd }],
      diskHourly: hourlyPrices.diskUsd,
      addressHourly: hourlyPrices.addressUsd,
    })
    const vm = { state: "booting" as const, id: name, createTime: timeOf(begin) }
    const metadata = {
      ...made.metadata,
      uid: name,
      creationTimestamp: timeOf(this.now),
      resourceVersion: "1",
      generation: 1,
    }
    this.#launches.set(name, { ...made, metadata, status: { phase: "created", vm } })
  }

  /** Adds ended VMs to the Statements, and marks them. A crash may come between any two writes. */
  #count(): void {
    const { random } = this.#options
    for (const namespace of ["team", "lab"]) {
      const own = [...this.#launches.values()].filter(({ spec }) => spec.job.namespace === namespace)
      const statements = this.statements.filter(({ spec }) => spec.namespace === namespace)
      const observed = {
        statements: new Map(statements.map((each) => [each.spec.month, each])),
        launches: () => own,
      }
      for (const action of decideStatements(observed, this.#date(), STATEMENT_DEFAULTS).actions) {
        if (action.do === "delete" || random() < 0.2) break
        const month = action.do === "create" ? action.month : action.statement.spec.month
        this.#statements.set(`${namespace}-${month}`, statementOf(namespace, month, action.status))
      }
      for (const launch of own) this.#mark(launch)
    }
  }

  #mark(launch: StoredLaunch): void {
    const find = (namespace: string, month: string) => this.#statements.get(`${namespace}-${month}`)
    if (!isOver(launch) || !isCounted(launch, find) || this.#options.random() < 0.2) return
    const annotations = { ...launch.metadata.annotations, [ANNOTATIONS.counted]: "yes" }
    this.#launches.set(launch.metadata.name, { ...launch, metadata: { ...launch.metadata, annotations } })
  }

  #levelsOf(namespace: string) {
    const { project, organization, installation } = this.#options.caps
    const all = [
      ["project", project, (of: string) => of === namespace],
      ["organization", organization, () => true],
      ["installation", installation, () => true],
    ] as const
    return all.flatMap(([level, caps, owns]) => {
      if (caps === undefined) return []
      const launches = [...this.#launches.values()].filter(({ spec }) => owns(spec.job.namespace))
      const month = this.#date().toISOString().slice(0, 7)
      const own = this.statements.filter(({ spec }) => spec.month === month && owns(spec.namespace))
      const capped: LevelCaps = { level, caps, owns }
      const spending = sumSpending(launches, this.#date(), JOB_DEFAULTS.expectedSeconds, sumRecorded(own))
      return [{ ...capped, spending }]
    })
  }

  #marketOf(namespace: string): Market {
    const facts = {
      namespace,
      offers: CATALOGUE,
      launchAccounts: CLOUDS.map((cloud) => ({ cloud, connection: cloud })),
      launches: launchHistory([]),
      levels: this.#levelsOf(namespace),
    }
    return appraise(facts, this.#date(), JOB_DEFAULTS)
  }

  #date(): Date {
    return new Date(this.now * 1000)
  }
}

function statementOf(namespace: string, month: string, status: StoredStatement["status"]): StoredStatement {
  const metadata = {
    name: `${namespace}-${month}`,
    uid: month,
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: "",
  }
  const spec = { namespace, month, organization: "acme" }
  return { apiVersion: "", kind: "Statement", metadata, spec, ...(status && { status }) }
}

function finishOf({ done, kept }: SimulatedVm): Finish {
  const time = timeOf(done)
  if (kept === undefined) return { reason: "Succeeded", exitCode: 0, time }
  return { reason: "ContainerFailed", exitCode: 1, time, keptUntil: timeOf(kept) }
}

function timeOf(seconds: number): string {
  return `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`
}
