import { randomBytes } from "node:crypto"
import { toJob } from "../../src/api/resources/jobs/submission.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { type Finish, type FinishCause, isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { roundUsd } from "../../src/core/apis/money.ts"
import { ensureInstallation, readInstallation } from "../../src/core/identity/installation.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { JOBS, LAUNCHES, PROJECTS, STATEMENTS } from "../../src/core/resources.ts"
import { idlenessOf, vmNameOf } from "../../src/core/reuse/reuse.ts"
import { createLogger, type Logger } from "../../src/core/telemetry/logger.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { startOperator } from "../../src/operator/main.ts"
import { AgentReports } from "../harness/agent-reports.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimProvider } from "../harness/sim-provider.ts"
import type { CloudFixture, OpenCloudFixture } from "./crash-clouds.ts"
import { Life, type Observer, type Plan } from "./crash-gate.ts"
import type { Finding, Violation } from "./tally.ts"

/** Times of the lease in seconds: long enough for a loaded machine, and shorter than all other delays of jobs. */
const LEASE_TIMES = { leaseSeconds: 60, renewDeadlineSeconds: 40, retrySeconds: 5 }

/** Random part of a submission. It is constant, because runs are compared. Every fixture is an installation of its own. */
const SUBMISSION = "A".repeat(22)

/** Label that separates the cluster-wide objects of fixtures. */
const LABEL = "test.berth.dev/fixture"

/** Next action of an agent while its container runs. */
export type Work = (launch: StoredLaunch, fixture: Fixture) => Promise<void>

/** Behaviour of agents besides their work. */
export interface Manners {
  /** Returns true for a Launch whose agent does nothing. Default: none. */
  isSilent?: (launch: StoredLaunch) => boolean
  /** Acts when the gateway rejects an agent for ever, because its Launch was deleted. Default: nothing. */
  onRefused?: (vm: string) => void
  /** Acts before the container's start. Resolves with false if the container can't start. Default: each one starts. */
  prepare?: (launch: StoredLaunch) => Promise<boolean>
}

/** The loopback network, where the receivers of tests are. */
const RECEIVERS = { hosts: [], networks: ["127.0.0.0/8"] }

/** Operator that runs in this process. */
export interface Operator {
  life: Life
  /** True after it has ended by itself, so that a supervisor would start another one. */
  ended: boolean
  /** Stops it in order, unless it has died. */
  stop(): Promise<void>
}

/** Names of an installation. */
interface Places {
  id: string
  namespace: string
  systemNamespace: string
}

/** Installation beside others on one API server, with its own namespaces, cloud and clock. */
export class Fixture implements Observer {
  readonly id: string
  /** Namespace of its Jobs; also the name of its Project, if it has one. */
  readonly namespace: string
  readonly systemNamespace: string
  readonly client: KubeClient
  readonly clock: ShiftedClock
  readonly fixture: CloudFixture
  readonly reports: AgentReports
  readonly provider: SimProvider
  /** Violation that was observed. */
  readonly violations: Finding[] = []
  /** Names of Launches whose containers were started. */
  readonly started: string[] = []
  /** Log lines of the operators. */
  readonly lines: string[] = []
  /** True if users want running containers to be stopped. */
  mayKill = false
  readonly #finished = new Set<string>()
  readonly #done = new Set<string>()
  /** Names of the Launches that have a VM now, by the name that the VM has. */
  readonly #holders = new Map<string, string>()
  readonly #operators = new Set<Operator>()
  #installation = ""

  private constructor({ id, ...places }: Places, client: KubeClient, clock: ShiftedClock, fixture: CloudFixture) {
    this.id = id
    this.namespace = places.namespace
    this.systemNamespace = places.systemNamespace
    this.client = client
    this.clock = clock
    this.fixture = fixture
    this.reports = new AgentReports({ client, namespace: this.systemNamespace, clock })
    this.provider = new SimProvider(clock)
  }

  static async open(client: KubeClient, open: OpenCloudFixture): Promise<Fixture> {
    const clock = new ShiftedClock()
    const id = randomBytes(4).toString("hex")
    const places = { id, namespace: `crash-${id}`, systemNamespace: `crash-${id}-system` }
    const { namespace, systemNamespace } = places
    for (const name of [namespace, systemNamespace]) await client.create(NAMESPACES, { metadata: { name } })
    const onTerminate = (launch: string): void => fixture.onTerminate(launch)
    const cloud = await open(clock, { client, namespace, systemNamespace, onTerminate })
    const fixture: Fixture = new Fixture(places, client, clock, cloud)
    fixture.#installation = (await ensureInstallation(client, systemNamespace)).id
    await ensureSealingKeys(client, systemNamespace)
    if (cloud.needsProject) await fixture.addProject()
    return fixture
  }

  /** Makes a project of its namespace, for scenarios that need one. */
  async addProject(organization = "faults"): Promise<void> {
    const { namespace } = this
    await confirmedProject(this.client, { name: namespace, organization, namespace })
    const merge = { metadata: { labels: { [LABEL]: this.id } } }
    await this.client.patch(PROJECTS, { name: namespace }, { merge })
  }

  /** Cluster-wide objects that the programs of this installation see. */
  get seen(): { kinds: string[]; selector: string } {
    return { kinds: ["Project", "Organization"], selector: `${LABEL}=${this.id}` }
  }

  /** Returns a program's logger, whose lines are kept. */
  logger(name: string): Logger {
    return createLogger({ level: "info", name, destination: { write: (line) => void this.lines.push(line) } })
  }

  /** Starts an operator with the plan's fault. */
  async startOperator(plan: Plan): Promise<Operator> {
    const stop = new AbortController()
    const life = new Life(plan, this, () => stop.abort())
    const logger = this.logger(`operator-${this.#operators.size}`)
    const { systemNamespace, namespace: watchNamespace } = this
    const { accounts, offers } = this.fixture
    const running = startOperator(
      {
        ...{ systemNamespace, watchNamespace, sessions: true, privateReceivers: RECEIVERS },
        ...{ gatewayUrl: "https://gateway.test", agentImage: "registry.test/berth:1.0" },
      },
      {
        client: life.client(this.client, this.seen),
        clouds: this.fixture.clouds(life),
        providers: { aws: life.provider(this.provider.provider) },
        ...{ offers: fixedOffers(offers), ownAccounts: accounts, architectures: [] },
        ...{ observeSeconds: 1, leaseTimes: LEASE_TIMES, clock: this.clock, logger },
      },
      stop.signal,
    )
    const ended = running.then((operator) => operator.ended)
    const operator: Operator = {
      life,
      ended: false,
      stop: async () => {
        stop.abort()
        await Promise.allSettled([ended])
      },
    }
    ended
      .catch((error: unknown) => this.lines.push(String(error)))
      .finally(() => Object.assign(operator, { ended: true }))
    this.#operators.add(operator)
    return operator
  }

  /** Returns true at the first call with this name. */
  once(what: string): boolean {
    if (this.#done.has(what)) return false
    this.#done.add(what)
    return true
  }

  async submit(name: string, spec: Partial<StoredJob["spec"]> = {}): Promise<void> {
    const job = { metadata: { name, namespace: this.namespace }, spec: { image: "busybox", ...spec } }
    await this.client.create(JOBS, job as StoredJob)
  }

  /** Creates a Job like the REST API. */
  async post(name: string): Promise<void> {
    const installation = (await readInstallation(this.client, this.systemNamespace))?.id ?? ""
    const createdAt = this.clock.now().toISOString()
    const identity = { name, namespace: this.namespace, createdAt, submission: `${installation}/${SUBMISSION}` }
    await this.client.create(JOBS, toJob({ image: "busybox" }, identity) as StoredJob)
  }

  job(name = "job"): Promise<StoredJob | undefined> {
    return ifFound(this.client.get(JOBS, { namespace: this.namespace, name }))
  }

  /** Returns what the Statements say that all VMs cost, USD. */
  async statedUsd(): Promise<number> {
    const { items } = await this.client.list(STATEMENTS, { namespace: this.systemNamespace })
    return roundUsd(items.reduce((total, { status }) => total + (status?.spentUsd ?? 0), 0))
  }

  async launches(): Promise<StoredLaunch[]> {
    const { items } = await this.client.list(LAUNCHES, { namespace: this.systemNamespace })
    return items.sort((a, b) => a.spec.number - b.spec.number)
  }

  /** Returns names of Launches, one for each existing VM. Records a violation if a job has two VMs at any call. */
  async alive(): Promise<string[]> {
    const names = await this.fixture.alive(this.#installation)
    const seen = new Set<string>()
    for (const name of names) {
      const job = name.slice(0, name.lastIndexOf("-"))
      if (seen.has(job)) this.#violation("duplicates", `job ${job} has two VMs`)
      seen.add(job)
    }
    return names
  }

  /**
   * Runs one step of the agents on all running VMs. Agents do not power off, so a VM that the operator forgets stays.
   */
  async agents(work: Work, manners: Manners = {}): Promise<void> {
    const alive = await this.alive()
    for (const vm of (await this.fixture.booted?.(this.#installation)) ?? alive) {
      const name = await this.#holderOf(vm)
      const launch = await ifFound(this.client.get(LAUNCHES, { namespace: this.systemNamespace, name }))
      if (launch === undefined) manners.onRefused?.(vm)
      if (launch === undefined || isOver(launch) || launch.spec.ended === true || manners.isSilent?.(launch)) continue
      await this.#act(launch, work, manners.prepare)
    }
  }

  /** Runs one step of the agent on the VM of a Launch. */
  async #act(launch: StoredLaunch, work: Work, prepare: Manners["prepare"]): Promise<void> {
    const { name } = launch.metadata
    const agent = launch.status?.agent
    if (agent === undefined) await this.reports.register(name)
    else if (agent.finish !== undefined) {
      if (idlenessOf(launch).is === "cleaning") await this.reports.idle(name)
    } else if (agent.startTime !== undefined) await work(launch, this)
    else if ((await prepare?.(launch)) ?? true) await this.#start(name)
  }

  /** Returns the name of the Launch that has a VM: the one that created it, or the last that has taken it over. */
  async #holderOf(vm: string): Promise<string> {
    const heirs = (await this.launches()).filter(({ spec }) => spec.root === vm)
    const holder = heirs.find((launch) => !isOver(launch) && launch.status?.vm !== undefined)
    if (holder !== undefined) this.#holders.set(vmNameOf(holder), holder.metadata.name)
    return this.#holders.get(vm) ?? vm
  }

  async #start(name: string): Promise<void> {
    await this.reports.start(name)
    this.started.push(name)
  }

  /** Lets the container on the VM of a Launch succeed. */
  async succeed(launch: string): Promise<void> {
    this.#finished.add(launch)
    await this.reports.finish(launch, "Succeeded")
  }

  /** Lets the container on the VM of a Launch succeed, and the VM end itself. */
  async succeedAndPowerOff(launch: string): Promise<void> {
    await this.succeed(launch)
    this.fixture.powerOff?.(launch)
  }

  /** Lets the container on the VM of a Launch fail. */
  async fail(launch: string, cause?: FinishCause): Promise<void> {
    this.#finished.add(launch)
    await this.reports.finish(launch, "ContainerFailed", 1, cause)
  }

  /** Lets the container on the VM of a Launch end like this. */
  async finish(launch: string, finish: Omit<Finish, "time">): Promise<void> {
    this.#finished.add(launch)
    const time = timestamp(this.clock.now())
    await this.reports.report(launch, () => ({ finish: { ...finish, time } }))
  }

  /** Lets the VM of a Launch disappear, or its host be cut off. */
  lostVm(launch: string): void {
    this.#finished.add(launch)
  }

  /** Lets the cloud preempt the VM of a Launch. */
  async takeBack(launch: string, vmId: string): Promise<void> {
    this.#finished.add(launch)
    await this.fixture.takeBack(vmId)
  }

  /** Returns true if the container of a Launch was started, and has not ended by itself. */
  isRunning(launch: string): boolean {
    return this.started.includes(launch) && !this.#finished.has(launch)
  }

  onTerminate(vm: string): void {
    const launch = this.#holders.get(vm) ?? vm
    if (this.isRunning(launch) && !this.mayKill)
      this.#violation("killed", `the VM of ${launch} is ended while its container runs`)
  }

  async onCloudChange(): Promise<void> {
    await this.alive()
  }

  #violation(violation: Violation, what: string): void {
    if (!this.violations.some((known) => known.what === what)) this.violations.push({ violation, what })
  }

  /**
   * Ends everything. Its namespaces stay as long as the API server: each deletion would search all kinds, which was
   * more than half of all requests.
   */
  async close(): Promise<void> {
    for (const operator of this.#operators) {
      operator.life.resume()
      await operator.stop()
    }
    await ifFound(this.client.delete(PROJECTS, { name: this.namespace }))
    for (const name of await this.alive()) this.lines.push(`${name} is left`)
    await this.fixture.close()
  }
}
