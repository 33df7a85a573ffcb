import { randomBytes } from "node:crypto"
import type { StoredJob } from "../../src/apis/job.ts"
import { isOver, type StoredLaunch } from "../../src/apis/launch.ts"
import { fixedOffers } from "../../src/catalogue/offers.ts"
import { ensureInstallation } from "../../src/identity/installation.ts"
import { PROJECTS } from "../../src/identity/projects.ts"
import { ensureSealingKeys } from "../../src/identity/sealing-keys.ts"
import type { KubeClient } from "../../src/kube/client.ts"
import { NAMESPACES } from "../../src/kube/core.ts"
import { ifFound } from "../../src/kube/errors.ts"
import { startOperator } from "../../src/operator.ts"
import { createLogger } from "../../src/telemetry/logger.ts"
import { confirmedProject } from "../confirmed-project.ts"
import { AgentReports } from "../controllers/agent-reports.ts"
import { JOBS, LAUNCHES } from "../controllers/harness.ts"
import { ShiftedClock } from "../controllers/shifted-clock.ts"
import { SimProvider } from "../controllers/sim-provider.ts"
import type { OpenTheatre, Theatre } from "./crash-clouds.ts"
import { Life, type Plan, type Witness } from "./crash-gate.ts"
import type { Harm } from "./tally.ts"

/** Long enough for a loaded machine, and short beside all that jobs wait for. Seconds. */
const LEASE_TIMES = { leaseSeconds: 60, renewDeadlineSeconds: 40, retrySeconds: 5 }

/** Tells a world's objects of the whole cluster from another's. */
const LABEL = "test.berth.dev/world"

/** What an agent does next while its container runs. */
export type Work = (launch: StoredLaunch, world: World) => Promise<void>

/** An operator that runs in this process. */
export interface Operator {
  life: Life
  /** It has ended by itself: whoever looks after processes starts another. */
  ended: boolean
  /** Ends it in order, if it has not died. */
  stop(): Promise<void>
}

/** An installation beside others on one API server, with namespaces, a cloud and a clock of its own. */
export class World implements Witness {
  readonly id = randomBytes(4).toString("hex")
  /** Where its Jobs are; also the name of its Project, where it has one. */
  readonly namespace = `crash-${this.id}`
  readonly systemNamespace = `crash-${this.id}-system`
  readonly client: KubeClient
  readonly clock: ShiftedClock
  readonly theatre: Theatre
  readonly reports: AgentReports
  readonly provider: SimProvider
  /** What went wrong while it was watched. */
  readonly harms: { harm: Harm; what: string }[] = []
  /** Names of Launches whose containers were started. */
  readonly started: string[] = []
  /** What the operators said. */
  readonly lines: string[] = []
  /** Whether somebody wants containers ended that run. */
  mayKill = false
  readonly #finished = new Set<string>()
  readonly #done = new Set<string>()
  readonly #operators = new Set<Operator>()
  #installation = ""

  private constructor(client: KubeClient, clock: ShiftedClock, theatre: Theatre) {
    this.client = client
    this.clock = clock
    this.theatre = theatre
    this.reports = new AgentReports({ client, namespace: this.systemNamespace, clock })
    this.provider = new SimProvider(clock)
  }

  static async open(client: KubeClient, open: OpenTheatre): Promise<World> {
    const clock = new ShiftedClock()
    const world = new World(client, clock, await open(clock))
    for (const name of [world.namespace, world.systemNamespace]) await client.create(NAMESPACES, { metadata: { name } })
    world.#installation = (await ensureInstallation(client, world.systemNamespace)).id
    await ensureSealingKeys(client, world.systemNamespace)
    return world
  }

  /** Gives its namespace to a project, for what needs one. */
  async addProject(): Promise<void> {
    const { namespace } = this
    await confirmedProject(this.client, { name: namespace, organization: "faults", namespace })
    const merge = { metadata: { labels: { [LABEL]: this.id } } }
    await this.client.patch(PROJECTS, { name: namespace }, { merge })
  }

  /** Starts an operator, which is struck as planned. */
  async startOperator(plan: Plan): Promise<Operator> {
    const stop = new AbortController()
    const life = new Life(plan, this, () => stop.abort())
    const seen = { kinds: ["Project", "Organization"], selector: `${LABEL}=${this.id}` }
    const logger = createLogger({
      ...{ level: "info", name: `operator-${this.#operators.size}` },
      destination: { write: (line) => void this.lines.push(line) },
    })
    const { systemNamespace, namespace: watchNamespace } = this
    const { account, offers } = this.theatre
    const running = startOperator(
      { systemNamespace, watchNamespace, gatewayUrl: "https://gateway.test", agentImage: "registry.test/berth:1.0" },
      {
        client: life.client(this.client, seen),
        clouds: this.theatre.clouds(life),
        providers: { aws: life.provider(this.provider.provider) },
        ...{ offers: fixedOffers(offers), ownAccounts: [account], architectures: [] },
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

  /** The first time that it is asked for this: true. */
  once(what: string): boolean {
    if (this.#done.has(what)) return false
    this.#done.add(what)
    return true
  }

  async submit(name: string, spec: Partial<StoredJob["spec"]> = {}): Promise<void> {
    const job = { metadata: { name, namespace: this.namespace }, spec: { image: "busybox", ...spec } }
    await this.client.create(JOBS, job as StoredJob)
  }

  job(name = "job"): Promise<StoredJob | undefined> {
    return ifFound(this.client.get(JOBS, { namespace: this.namespace, name }))
  }

  async launches(): Promise<StoredLaunch[]> {
    const { items } = await this.client.list(LAUNCHES, { namespace: this.systemNamespace })
    return items.sort((a, b) => a.spec.number - b.spec.number)
  }

  /** Names of Launches, one for each VM that there is. However often this is looked at, no job may have two VMs. */
  async alive(): Promise<string[]> {
    const names = await this.theatre.alive(this.#installation)
    const seen = new Set<string>()
    for (const name of names) {
      const job = name.slice(0, name.lastIndexOf("-"))
      if (seen.has(job)) this.#harm("duplicates", `job ${job} has two VMs`)
      seen.add(job)
    }
    return names
  }

  /** One step of the agents on all VMs that run. None powers off by itself: what the operator forgets is left. */
  async agents(work: Work): Promise<void> {
    const alive = await this.alive()
    for (const name of (await this.theatre.booted?.(this.#installation)) ?? alive) {
      const launch = await ifFound(this.client.get(LAUNCHES, { namespace: this.systemNamespace, name }))
      if (launch === undefined || isOver(launch) || launch.spec.ended === true) continue
      const agent = launch.status?.agent
      if (agent === undefined) await this.reports.register(name)
      else if (agent.startTime === undefined) await this.#start(name)
      else if (agent.finish === undefined) await work(launch, this)
    }
  }

  async #start(name: string): Promise<void> {
    await this.reports.start(name)
    this.started.push(name)
  }

  /** The container on the VM of a Launch succeeds. */
  async succeed(launch: string): Promise<void> {
    this.#finished.add(launch)
    await this.reports.finish(launch, "Succeeded")
  }

  /** The cloud takes the VM of a Launch back. */
  async takeBack(launch: string, vmId: string): Promise<void> {
    this.#finished.add(launch)
    await this.theatre.takeBack(vmId)
  }

  onTerminate(launch: string): void {
    const isRunning = this.started.includes(launch) && !this.#finished.has(launch)
    if (isRunning && !this.mayKill) this.#harm("killed", `the VM of ${launch} is ended while its container runs`)
  }

  async onCloudChange(): Promise<void> {
    await this.alive()
  }

  #harm(harm: Harm, what: string): void {
    if (!this.harms.some((known) => known.what === what)) this.harms.push({ harm, what })
  }

  /**
   * Ends everything. Its namespaces stay as long as the API server: to delete one, all kinds that there are would be looked
   * through, which was more than half of the requests.
   */
  async close(): Promise<void> {
    for (const operator of this.#operators) {
      operator.life.resume()
      await operator.stop()
    }
    await ifFound(this.client.delete(PROJECTS, { name: this.namespace }))
    for (const name of await this.alive()) this.lines.push(`${name} is left`)
    await this.theatre.close()
  }
}
