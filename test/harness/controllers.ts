import type { CloudAccount, Clouds } from "../../src/clouds/cloud.ts"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { JobSpec, StoredJob } from "../../src/core/apis/job.ts"
import type { JobArraySpec, StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { type AgentStatus, type FinishReason, isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { StoredMachine } from "../../src/core/apis/machine.ts"
import type { ObjectMeta } from "../../src/core/apis/meta.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { capsIn, PROJECT_OF_NAMESPACE } from "../../src/core/identity/projects.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import type { KubeEvent } from "../../src/core/kube/core.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { EventRecorder, events } from "../../src/core/kube/events.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import type { Store } from "../../src/core/kube/store.ts"
import { PROJECT_LIMITS, type ProjectLimits } from "../../src/core/quota/project-limits.ts"
import { JOB_ARRAYS, JOBS, LAUNCHES, MACHINES, ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { idlenessOf, vmNameOf } from "../../src/core/reuse/reuse.ts"
import { Controller, watchSource } from "../../src/core/runtime/controller.ts"
import { Manager, type RunnableReflector } from "../../src/core/runtime/manager.ts"
import { LAUNCH_CACHE, STATEMENT_CACHE } from "../../src/market/caches.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { ownAccount } from "../../src/market/placement/machines.ts"
import { JOB_DEFAULTS, type JobSettings } from "../../src/market/placement/settings.ts"
import { arrayEndReader, createArrayController } from "../../src/operator/array/controller.ts"
import { JOB_ARRAY_CACHE, JOB_CACHE, jobIndexes } from "../../src/operator/caches.ts"
import { creatorIndexes } from "../../src/operator/created-jobs.ts"
import { NotLeaderError } from "../../src/operator/fence.ts"
import { createJobController } from "../../src/operator/job/controller.ts"
import type { JobControllerDependencies } from "../../src/operator/job/dependencies.ts"
import { HistoryPruner } from "../../src/operator/job/history.ts"
import { createLaunchController, type LaunchControl } from "../../src/operator/launch/controller.ts"
import { createMachineController } from "../../src/operator/machine/controller.ts"
import type { MachineControllerDependencies } from "../../src/operator/machine/dependencies.ts"
import { machinesInUse, withOwnMachines } from "../../src/operator/machine/own-cloud.ts"
import { Prerequisites } from "../../src/operator/prerequisites.ts"
import { SettledJobs } from "../../src/operator/settled-jobs.ts"
import { createStatementController } from "../../src/operator/statement/controller.ts"
import { AgentReports } from "./agent-reports.ts"
import { OFFERS } from "./builders.ts"
import { harnessesOf, NamespaceHarness } from "./namespace.ts"
import { ShiftedClock } from "./shifted-clock.ts"
import { silentLogger } from "./silent-logger.ts"
import { SimCloud } from "./sim-cloud.ts"
import { usageOf } from "./usage.ts"
import { type WebhookOptions, webhookParts } from "./webhook-parts.ts"

/** Clients of an operator, with which a test can stop the operator in the middle of a call. */
export interface OperatorClients {
  client: KubeClient
  clouds: Clouds
  /** Throws after the operator has crashed. */
  fence: () => void
}

export interface OperatorOptions {
  /** Namespace of its jobs. Default: the harness's own, where its Launches are. */
  project?: string
  /** Limits of what the namespace may store. Default: none. */
  limits?: Partial<ProjectLimits>
  clients?: OperatorClients
  settings?: Partial<JobSettings>
  caps?: SpendCaps
  launchAccounts?: () => { cloud: string }[]
  /** Delay of both controllers. Default 0.2. */
  settleSeconds?: number
  /** Offers and account of another cloud, instead of the harness's own. */
  market?: { offers: readonly Offer[]; account: CloudAccount }
  /** Seconds between two lists of the VMs. Default 0.05. */
  observeSeconds?: number
  /** Webhooks of the namespace. Default: none are sent. */
  webhooks?: WebhookOptions
  /** True: it knows the projects and organizations, which have the caps. Their deletion stops new jobs. Default: there are none. */
  tenancy?: boolean
  /** True: jobs may run on the machines of the namespace, too. */
  machines?: boolean
  /** Minimum age of an orphaned VM that is terminated, in seconds. */
  youngSeconds?: number
}

/** Returns how a container on a VM ends; undefined while it runs. */
export type Work = (launch: StoredLaunch) => FinishReason | undefined

/** Maximum number of concurrent agents: each is a machine of its own. */
const AGENTS_AT_A_TIME = 8

/** Offers and account of the harness's own cloud. */
const OWN_MARKET = { offers: OFFERS, account: { cloud: "sim", region: "here" } }

/** An operator that runs in this process. */
export interface Operator {
  launchControl: LaunchControl
  /** Its cache of Jobs. */
  jobs: Store<StoredJob>
  /** Resolves when its cache of Launches shows the API server's present state. */
  caughtUp(): Promise<void>
  stop(): Promise<void>
}

/** One namespace of the shared API server (for Jobs and Launches), a cloud, a clock, and operators on demand. */
export class ControllerHarness extends NamespaceHarness<Operator> {
  readonly clock = new ShiftedClock()
  readonly cloud = new SimCloud(this.clock)
  readonly installation = this.namespace
  readonly #reports: AgentReports
  /** Seconds that the clock was ahead when a Launch was first seen: tests can't move the API server's clock. */
  readonly #aheadAt = new Map<string, number>()

  constructor(client: KubeClient) {
    super(client, "ctl")
    this.#reports = new AgentReports({ client, namespace: this.namespace, clock: this.clock })
  }

  operator(options: OperatorOptions = {}): Operator {
    const { client, clouds, fence } = options.clients ?? {
      client: this.client,
      clouds: this.cloud,
      fence: () => undefined,
    }
    const { clock, namespace: systemNamespace } = this
    const { project: namespace = systemNamespace } = options
    const recorder = new EventRecorder({ client, component: "test", instance: "test", logger: silentLogger, clock })
    const jobs = new Reflector<StoredJob>({
      ...{ client, ...JOB_CACHE, namespace, logger: silentLogger },
      indexes: { ...jobIndexes, ...creatorIndexes },
    })
    const jobArrays = new Reflector<StoredJobArray>({ client, ...JOB_ARRAY_CACHE, namespace, logger: silentLogger })
    const prerequisites = new Prerequisites({ client, jobs, jobArrays })
    const launches = new Reflector<StoredLaunch>({
      client,
      ...LAUNCH_CACHE,
      namespace: systemNamespace,
      logger: silentLogger,
      transform: (launch) => this.#shifted(launch),
    })
    const statements = new Reflector({
      ...{ client, ...STATEMENT_CACHE, namespace: systemNamespace, logger: silentLogger },
    })
    const tenants = tenantsOf(client, options)
    const { limits, caps, settleSeconds = 0.2, observeSeconds = 0.05, youngSeconds, market = OWN_MARKET } = options
    const quota = limits && { limits: { ...PROJECT_LIMITS, ...limits }, usage: usageOf({ jobs }, clock) }
    const settled = new SettledJobs({
      ...{ client, namespace, fence, clock, logger: silentLogger },
      isAwaited: ({ metadata }) => prerequisites.isAwaited({ job: metadata.name }, metadata),
      limitsHistory: (uid) => jobArrays.store.getByUid(uid) !== undefined,
      ...{ ttlSeconds: JOB_DEFAULTS.ttlSeconds, sweepSeconds: 0.5, expireSeconds: 0.1 },
      ...(quota && { usage: quota.usage }),
    })
    const parts = { client, fence, clock, recorder, logger: silentLogger }
    const own = machinesOf({ ...parts, launches, systemNamespace }, namespace, options)
    const shared = { ...parts, jobs, prerequisites, settled, launches, statements }
    const launchControl = createLaunchController({
      ...shared,
      systemNamespace,
      installation: this.installation,
      clouds: withOwnMachines(clouds, { client, clock }),
      userData: (launch) => JSON.stringify({ launch: launch.metadata.name, url: launch.spec.gatewayUrl }),
      observeSeconds,
      settings: { settleSeconds },
      garbageCollection: {
        intervalSeconds: 3600,
        accounts: () => [market.account, ...own.inUse()],
        ...(youngSeconds !== undefined && { minAgeSeconds: youngSeconds }),
      },
    })
    const pruner = quota && new HistoryPruner({ ...shared, jobs: jobs.store, quota, intervalSeconds: 0.1 })
    const webhooks = options.webhooks && webhookParts({ ...shared, namespace }, options.webhooks)
    const jobOptions: JobControllerDependencies = {
      ...shared,
      ...(caps && { caps: () => [{ level: "project", name: "team", caps, owns: (of) => of === namespace }] }),
      ...(quota && { quota }),
      ...tenants.option,
      endReaders: [arrayEndReader({ jobArrays, jobs }), ...(webhooks ? [webhooks.control.deliveries] : [])],
      installation: { id: this.installation, systemNamespace, gatewayUrl: "https://gateway.test" },
      ...own.option,
      offers: fixedOffers(market.offers),
      launchAccounts: {
        of: (of) => [...(options.launchAccounts?.() ?? [{ cloud: market.account.cloud }]), ...own.accounts(of)],
      },
      settings: { settleSeconds, ...options.settings },
    }
    const jobControl = createJobController(jobOptions)
    const { settings: reuseDefault = {} } = options
    const arrayOptions = { ...shared, jobArrays, reuseDefault, ...(quota && { quota }), ...tenants.option }
    const manager = new Manager({
      reflectors: [
        ...[jobs, jobArrays, launches, statements],
        ...tenants.reflectors,
        ...own.reflectors,
        ...(webhooks?.reflectors ?? []),
      ],
      controllers: [
        ...own.controllers,
        jobControl,
        launchControl.controller,
        createStatementController({ ...shared, systemNamespace }),
        createArrayController({ ...arrayOptions, ttlSeconds: JOB_DEFAULTS.ttlSeconds }),
        ...(webhooks ? [webhooks.control.controller] : []),
      ],
      leaderTasks: [
        ...launchControl.leaderTasks,
        (end: AbortSignal) => settled.run(end),
        ...(webhooks ? [(end: AbortSignal) => webhooks.control.deliveries.run(end)] : []),
        ...(pruner ? [(end: AbortSignal) => pruner.run(end)] : []),
      ],
      logger: silentLogger,
      drainSeconds: 1,
    })
    const ending = new AbortController()
    const { signal } = ending
    const ended = manager.run(signal).catch((error: unknown) => {
      // The manager has no elector, which would wait for the lease again.
      if (!(error instanceof NotLeaderError)) throw error
    })
    return this.started({
      launchControl,
      jobs: jobs.store,
      caughtUp: async () => {
        for (const { metadata } of await this.launches()) await launches.store.waitFor(metadata.resourceVersion, signal)
      },
      stop: async () => {
        ending.abort()
        await ended
        await recorder.flush()
      },
    })
  }

  /** Returns the Launch like an API server with this harness's clock would. */
  #shifted(launch: StoredLaunch): StoredLaunch {
    const { metadata } = launch
    const ahead = this.#aheadAt.get(metadata.name) ?? this.clock.ahead
    this.#aheadAt.set(metadata.name, ahead)
    metadata.creationTimestamp = timestamp(new Date(Date.parse(metadata.creationTimestamp) + ahead * 1000))
    return launch
  }

  async submit(name: string, spec: Partial<JobSpec> = {}, metadata: Partial<ObjectMeta> = {}): Promise<StoredJob> {
    const job = { metadata: { name, namespace: this.namespace, ...metadata }, spec: { image: "busybox", ...spec } }
    return this.client.create(JOBS, job as unknown as StoredJob)
  }

  async submitArray(name: string, spec: Partial<JobArraySpec>): Promise<StoredJobArray> {
    const array = {
      ...{ metadata: { name, namespace: this.namespace } },
      spec: { jobDefinition: { image: "busybox" }, ...spec },
    }
    return this.client.create(JOB_ARRAYS, array as StoredJobArray)
  }

  array(name: string): Promise<StoredJobArray> {
    return this.client.get(JOB_ARRAYS, { namespace: this.namespace, name })
  }

  async changeArray(name: string, spec: Partial<JobArraySpec>): Promise<StoredJobArray> {
    return this.client.patch(JOB_ARRAYS, { namespace: this.namespace, name }, { merge: { spec } })
  }

  job(name: string): Promise<StoredJob> {
    return this.client.get(JOBS, { namespace: this.namespace, name })
  }

  async cancel(name: string): Promise<void> {
    await this.client.patch(JOBS, { namespace: this.namespace, name }, { merge: { spec: { cancelled: true } } })
  }

  async delete(name: string): Promise<void> {
    await this.client.delete(JOBS, { namespace: this.namespace, name })
  }

  /** Waits until the operators know all Launches as they are now. */
  async caughtUp(): Promise<void> {
    await Promise.all([...this.operators].map((operator) => operator.caughtUp()))
  }

  async launches(): Promise<StoredLaunch[]> {
    const { items } = await this.client.list(LAUNCHES, { namespace: this.namespace })
    return items.sort((a, b) => a.spec.number - b.spec.number)
  }

  /** Resolves with the Launch when its VM is up. */
  async liveLaunch(): Promise<StoredLaunch> {
    const live = (await this.launches()).filter((launch) => !isOver(launch) && launch.status?.vm?.id !== undefined)
    if (live[0] === undefined || live.length > 1) throw new Error(`${live.length} Launches have a VM`)
    return live[0]
  }

  async eventReasons(name: string): Promise<string[]> {
    const { items } = await this.client.list<KubeEvent>(events, { namespace: this.namespace })
    return items.filter((event) => event.involvedObject.name === name).map((event) => event.reason)
  }

  /** Writes an agent's report. */
  report(launch: string, change: (before: AgentStatus | undefined) => Partial<AgentStatus>): Promise<void> {
    return this.#reports.report(launch, change)
  }

  register(launch: string): Promise<void> {
    return this.#reports.register(launch)
  }

  start(launch: string): Promise<void> {
    return this.#reports.start(launch)
  }

  finish(launch: string, reason: FinishReason, exitCode = 0): Promise<void> {
    return this.#reports.finish(launch, reason, exitCode)
  }

  idle(launch: string): Promise<void> {
    return this.#reports.idle(launch)
  }

  /** Runs one step of the agents on all VMs that are up: register, start and then what `work` says. Default: they succeed. */
  async agentsStep(work: "succeed" | "run" | Work = "succeed"): Promise<void> {
    const end = typeof work === "function" ? work : () => (work === "succeed" ? ("Succeeded" as const) : undefined)
    const reused = (await this.launches()).filter((launch) => launch.spec.root !== undefined && !isOver(launch))
    const holders = new Map(reused.flatMap((one) => (one.status?.vm ? [[vmNameOf(one), one.metadata.name]] : [])))
    const onVms = this.cloud.alive.map((vm) => holders.get(vm.launch) ?? vm.launch)
    const { items } = await this.client.list(MACHINES, { namespace: this.namespace })
    const onMachines = items.flatMap(({ status }) => status?.host?.running ?? [])
    const steps = [...onVms, ...onMachines].map((launch) => () => this.#agentStep(launch, end))
    await inParallel(steps, AGENTS_AT_A_TIME, (task) => task())
  }

  async #agentStep(launch: string, work: Work): Promise<void> {
    const found = await ifFound(this.client.get(LAUNCHES, { namespace: this.namespace, name: launch }))
    await this.#stepFrom(found, launch, work)
  }

  /** Runs agents to the end, each step as soon as its Launch shows the last one. `work` ends each run; default: it succeeds. */
  async agents(end: AbortSignal, work: Work = () => "Succeeded"): Promise<void> {
    const { client, namespace } = this
    const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace, logger: silentLogger })
    const controller = new Controller({
      name: "agents",
      sources: [watchSource(launches)],
      reconcile: async (key) => {
        const [, name = ""] = key.split("/")
        const launch = launches.store.get({ namespace, name })
        // A Launch that takes over a VM has an agent once it has the VM.
        const isThere = launch?.spec.root === undefined || launch.status?.vm !== undefined
        if (!isThere || this.cloud.of(launch === undefined ? name : vmNameOf(launch)).length === 0) return
        await this.#stepFrom(launch, name, work)
      },
      workers: AGENTS_AT_A_TIME,
      logger: silentLogger,
    })
    await new Manager({ reflectors: [launches], controllers: [controller], logger: silentLogger }).run(end)
  }

  async #stepFrom(found: StoredLaunch | undefined, launch: string, work: Work): Promise<void> {
    const agent = found?.status?.agent
    // The gateway rejects an agent whose Launch is not current, and the agent powers its VM off.
    if (found?.status?.handedTo !== undefined) return
    if (found === undefined || isOver(found) || found.spec.ended === true)
      return this.#powerOff(found === undefined ? launch : vmNameOf(found))
    if (agent === undefined) return await this.register(launch)
    if (agent.startTime === undefined) return await this.start(launch)
    const reason = agent.finish === undefined ? work(found) : undefined
    if (reason !== undefined) await this.finish(launch, reason)
    if (idlenessOf(found).is === "cleaning") await this.#reports.idle(launch)
  }

  #powerOff(launch: string): void {
    for (const vm of this.cloud.of(launch)) this.cloud.lose(vm.id)
  }
}

/** Returns a function that creates controllerHarnesses, and closes them after the suite. */
export function controllerHarnesses(): () => Promise<ControllerHarness> {
  return harnessesOf((client) => new ControllerHarness(client))
}

/** Returns the controller of machines with its caches, and what others need of them; all empty without the option. */
function machinesOf(
  parts: Omit<MachineControllerDependencies, "machines" | "projects"> & { client: KubeClient },
  namespace: string,
  options: OperatorOptions,
) {
  if (options.machines !== true)
    return { option: {}, reflectors: [], controllers: [], inUse: () => [], accounts: () => [] }
  const { client, logger } = parts
  const machines = new Reflector<StoredMachine>({ client, resource: MACHINES, namespace, logger })
  const projects = new Reflector<StoredProject>({ client, resource: PROJECTS, logger })
  return {
    option: { machines },
    reflectors: [machines, projects],
    controllers: [createMachineController({ ...parts, machines, projects })],
    inUse: () => machinesInUse(machines.store),
    accounts: (of: string) => ownAccount(machines.store.list(), of),
  }
}

/** Returns the options of controllers with the projects and organizations, and their caches. */
function tenantsOf(
  client: OperatorClients["client"],
  { tenancy }: OperatorOptions,
): { option: Pick<JobControllerDependencies, "tenancy" | "caps">; reflectors: RunnableReflector[] } {
  if (tenancy !== true) return { option: {}, reflectors: [] }
  const projects = new Reflector({ client, resource: PROJECTS, indexes: PROJECT_OF_NAMESPACE, logger: silentLogger })
  const organizations = new Reflector({ client, resource: ORGANIZATIONS, logger: silentLogger })
  const caps = capsIn({ projects: projects.store, organizations: organizations.store, installation: undefined })
  return { option: { tenancy: { projects, organizations }, caps }, reflectors: [projects, organizations] }
}
