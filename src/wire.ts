import { randomUUID } from "node:crypto"
import { once } from "node:events"
import type { Server } from "node:http"
import type { AddressInfo } from "node:net"
import { hostname } from "node:os"
import { userDataOf } from "./agent/cloud-init.ts"
import { type Clock, systemClock } from "./apis/clock.ts"
import { JOB, type StoredJob } from "./apis/job.ts"
import type { StoredLaunch } from "./apis/launch.ts"
import type { Architecture } from "./apis/offer.ts"
import type { SpendCaps, StoredProject } from "./apis/project.ts"
import { LiveCatalogue } from "./catalogue/live.ts"
import type { Offers } from "./catalogue/offers.ts"
import type { Providers } from "./cloud/clouds.ts"
import type { Fetch } from "./cloud/guarded-fetch.ts"
import type { CloudAccount, Clouds } from "./cloud/provider.ts"
import { createApiKeyController } from "./controllers/apikey/controller.ts"
import { API_KEYS, BINDING_CACHE, MACHINE_USER_CACHE } from "./controllers/apikey/options.ts"
import { PriceRefresher, type PriceRefresherOptions } from "./controllers/catalogue/refresher.ts"
import { type CatalogueWatchOptions, watchCatalogue, watchPrices } from "./controllers/catalogue/watch.ts"
import { ConnectionClouds } from "./controllers/connection/clouds.ts"
import { createConnectionController } from "./controllers/connection/controller.ts"
import { CONNECTION_CACHE, CREDENTIALS_SECRET_CACHE, type OpenAccount } from "./controllers/connection/dependencies.ts"
import { accountsInUse, credentialsCopier, payersOf } from "./controllers/connection/payers.ts"
import { cachedCredentials, liveCredentials, type ReadCredentials } from "./controllers/connection/readable.ts"
import { createRetirementController, type RetirementOptions } from "./controllers/connection/retirement.ts"
import { createCronJobController } from "./controllers/cronjob/controller.ts"
import { CRON_JOB_CACHE, cronJobIndexes } from "./controllers/cronjob/options.ts"
import { type Fence, fenceOf } from "./controllers/fence.ts"
import { createJobController } from "./controllers/job/controller.ts"
import { createLaunchController, launchIndexes } from "./controllers/launch/controller.ts"
import { LAUNCHES } from "./controllers/launch/dependencies.ts"
import { createOrganizationController } from "./controllers/organization/controller.ts"
import { createProjectController } from "./controllers/project/controller.ts"
import { MEMBER_BINDING_CACHE, NAMESPACE_CACHE } from "./controllers/project/options.ts"
import { BucketFinder } from "./discovery/buckets.ts"
import { Discoverer } from "./discovery/discoverer.ts"
import { ImageFinder, type ImageFinderOptions, type ImageState } from "./discovery/images.ts"
import { createFacade } from "./facade/app.ts"
import { CACHE_OPTIONS } from "./facade/caches.ts"
import { type LogRetentionOptions, removeLogsOfDeletedJobs, removeOrphanedLogs } from "./facade/jobs/logs.ts"
import type { Discoverer as DiscoverResources } from "./facade/resources/schema.ts"
import { AwaitedGateway } from "./gateway/awaited.ts"
import { type BucketProvider, connectedBuckets } from "./gateway/buckets.ts"
import { kubeLaunches } from "./gateway/launches.ts"
import { connectedRegistries, type RegistryProvider } from "./gateway/registries.ts"
import { kubeSecretEnv } from "./gateway/secrets.ts"
import { createHttpServer } from "./http/server.ts"
import { NAMESPACE_INDEX } from "./identity/catch-up.ts"
import { ensureInstallation, readInstallation } from "./identity/installation.ts"
import { IDENTITIES_NAMESPACE } from "./identity/machine-users.ts"
import { TokenVerifier } from "./identity/oidc.ts"
import { ORGANIZATIONS, PROJECTS } from "./identity/projects.ts"
import { ensureSealingKeys, readSealingKeys, SEALING_KEYS_CACHE } from "./identity/sealing-keys.ts"
import type { KubeClient } from "./kube/client.ts"
import { EventRecorder } from "./kube/events.ts"
import { LeaderElector, type LeaderElectorOptions } from "./kube/lease.ts"
import { Reflector } from "./kube/reflector.ts"
import { resourceOf } from "./kube/resource.ts"
import type { Store } from "./kube/store.ts"
import { FileLogStore } from "./logs/file-store.ts"
import { S3LogStore, s3Client } from "./logs/s3-store.ts"
import type { LogStore } from "./logs/store.ts"
import type { FacadeOptions, KubeOptions, OperatorOptions } from "./options.ts"
import type { Planner } from "./placement/place.ts"
import { jobPlanner } from "./placement/place.ts"
import { imageReader } from "./registries/manifests.ts"
import { publicFetch } from "./registries/public-fetch.ts"
import { pullAccess } from "./registries/pulls.ts"
import type { Controller } from "./runtime/controller.ts"
import { Manager } from "./runtime/manager.ts"
import { Sealer } from "./sealing/envelope.ts"
import { KeyringEncryption } from "./sealing/keys.ts"
import { measureControllers, measureLeadership } from "./telemetry/controllers.ts"
import { Health } from "./telemetry/health.ts"
import { measureJobs } from "./telemetry/jobs.ts"
import { measureCaches, measureClient } from "./telemetry/kube.ts"
import type { Logger } from "./telemetry/logger.ts"
import { createMetrics, type Registry } from "./telemetry/metrics.ts"
import { measurePrices } from "./telemetry/prices.ts"
import { type OperationsServer, startOperationsServer } from "./telemetry/server.ts"

export { connect } from "./connect.ts"

export interface OperatorParts {
  client: KubeClient
  /** Opens the accounts that need no connection. */
  clouds: Clouds
  /** What connections can be used for. */
  providers: Providers
  offers: Offers
  /** Accounts that need no connection: anybody's jobs may run there, and VMs are looked for there always. */
  ownAccounts: readonly CloudAccount[]
  /** What images run on of which nothing is known; none: anything. */
  architectures: readonly Architecture[]
  /** What registries are asked by for what images run on; absent: nobody asks. */
  askRegistries?: Fetch
  /** Between two looks at the VMs of an account; default: what public clouds are asked. */
  observeSeconds?: number
  /** How soon another candidate takes over from a silent leader; default: the elector's own. */
  leaseTimes?: Pick<LeaderElectorOptions, "leaseSeconds" | "renewDeadlineSeconds" | "retrySeconds">
  /** How soon former sealing keys are deleted; default: the controller's own. */
  retirement?: Pick<RetirementOptions, "graceSeconds" | "lookSeconds">
  /** How soon it is noticed that prices can be asked for; default: the refresher's own. */
  prices?: Pick<PriceRefresherOptions, "lookSeconds">
  /** VMs asked for in a minute, at most, over all projects; default: the job controller's own. */
  launchesPerMinute?: number
  /** What everything is decided by; default: the machine's. */
  clock?: Clock
  logger: Logger
}

/** Name of the Lease, in the system namespace, by which one operator leads. */
export const OPERATOR_LEASE = "berth-operator"

/** A program that runs until it is told to stop; `ended` then resolves, or rejects with what went wrong before. */
export interface Running {
  ended: Promise<void>
  /** Where /metrics, /livez and /readyz are, when they have a port. */
  metricsUrl: string | undefined
}

/** Starts the loops that bring Jobs to VMs, as one candidate of possibly several: only the leader acts. */
export async function startOperator(
  options: Omit<OperatorOptions, "kubeconfig" | "logLevel">,
  parts: OperatorParts,
  stop: AbortSignal,
): Promise<Running> {
  const { systemNamespace, gatewayUrl, agentImage } = options
  const { client, offers, architectures, observeSeconds, leaseTimes, logger, clock = systemClock } = parts
  const { id: installation, bootstrapKey } = await ensureInstallation(client, systemNamespace)
  await ensureSealingKeys(client, systemNamespace)
  const identity = `${hostname()}-${randomUUID()}`
  const caches = operatorCaches({ client, logger }, options)
  const { jobs, launches, projects } = caches
  const lease = { namespace: systemNamespace, name: OPERATOR_LEASE }
  const elector = new LeaderElector({ client, lease, identity, clock, logger, ...leaseTimes })
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: identity, clock, logger })
  const base = { client, clock, recorder, logger }
  const shared = { ...base, jobs, launches, fence: fenceOf(elector), caps: capsOf(projects.store) }
  const sealer = sealerOf(client, systemNamespace)
  const accounts = connectedAccounts(parts, caches, sealer)
  const keeping = { ...caches, ...base, systemNamespace }
  const userData = (launch: StoredLaunch) => userDataOf(launch, bootstrapKey)
  const launchControl = createLaunchController({
    ...shared,
    systemNamespace,
    installation,
    clouds: accounts.clouds,
    userData,
    sweep: { accounts: accounts.inUse },
    ...(observeSeconds && { observeSeconds }),
  })
  const jobController = createJobController({
    ...shared,
    settings: { architectures, ...(parts.launchesPerMinute && { launchesPerMinute: parts.launchesPerMinute }) },
    installation: { id: installation, systemNamespace, gatewayUrl, ...(agentImage !== undefined && { agentImage }) },
    offers,
    connections: caches.connections,
    payers: accounts.payers,
    copyCredentials: accounts.copyCredentials,
    buckets: accounts.buckets,
    ...{ ...accounts.images, ...agentPlatforms(options, parts) },
  })
  const watches = catalogueWatches(offers, { client, systemNamespace, recorder, logger })
  const refresher = priceRefresherOf(options, { ...parts, ...keeping, fence: shared.fence, sealer, watches })
  const metrics = createMetrics("operator")
  const manager = new Manager({
    reflectors: [...Object.values(caches), ...Object.values(watches ?? {})],
    controllers: [
      jobController,
      launchControl.controller,
      createCronJobController({ ...shared, cronJobs: caches.cronJobs }),
      ...tenancyControllers(keeping),
      ...connectionControllers({ ...keeping, sealer, ...parts }, options),
    ],
    leaderTasks: [
      ...launchControl.leaderTasks,
      ...(refresher === undefined ? [] : [(signal: AbortSignal) => refresher.run(signal)]),
    ],
    metricsOf: measureControllers(metrics),
    elector,
    clock,
    logger,
  })
  const operations = await tellOfOperator(options, { metrics, client, caches, manager, refresher, stop })
  const ended = manager
    .run(stop)
    .finally(() => recorder.flush())
    .finally(() => operations?.close())
  return { ended, metricsUrl: operations?.url }
}

interface OperatorTelling {
  metrics: Registry
  client: KubeClient
  caches: ReturnType<typeof operatorCaches>
  manager: Manager
  refresher: PriceRefresher | undefined
  stop: AbortSignal
}

/** What the operator tells beside its controllers' work, and where. */
function tellOfOperator(
  options: OperationsOptions,
  { metrics, client, caches, manager, refresher, stop }: OperatorTelling,
): Promise<OperationsServer | undefined> {
  const isLeading = () => manager.readiness().leading
  measureClient(metrics, client, stop)
  measureCaches(metrics, Object.values(caches))
  measureLeadership(metrics, "berth-operator", isLeading)
  measureJobs(metrics, { ...caches, isLeading })
  if (refresher !== undefined) measurePrices(metrics, { ages: () => refresher.ages(), isLeading })
  const health = new Health()
  health.addReadyCheck("caches", () => manager.readiness().reasons.join("; ") || undefined)
  return serveOperations(options, health, metrics)
}

type OperationsOptions = Pick<KubeOptions, "metricsPort" | "metricsHost">

/** Serves metrics and health where the options name a port for them. */
async function serveOperations(
  { metricsPort, metricsHost = "127.0.0.1" }: OperationsOptions,
  health: Health,
  metrics: Registry,
): Promise<OperationsServer | undefined> {
  if (metricsPort === undefined) return undefined
  return startOperationsServer({ host: metricsHost, port: metricsPort, health, metrics })
}

/** All that the operator's controllers read from memory. */
function operatorCaches(
  base: { client: KubeClient; logger: Logger },
  { systemNamespace, watchNamespace: namespace }: Pick<KubeOptions, "systemNamespace" | "watchNamespace">,
) {
  const jobs = { resource: resourceOf<StoredJob>(JOB), namespace, indexes: cronJobIndexes }
  const launches = { resource: LAUNCHES, namespace: systemNamespace, indexes: launchIndexes }
  return {
    jobs: new Reflector<StoredJob>({ ...base, ...jobs }),
    cronJobs: new Reflector({ ...base, ...CRON_JOB_CACHE, namespace }),
    launches: new Reflector<StoredLaunch>({ ...base, ...launches }),
    projects: new Reflector({ ...base, resource: PROJECTS }),
    organizations: new Reflector({ ...base, resource: ORGANIZATIONS }),
    namespaces: new Reflector({ ...base, ...NAMESPACE_CACHE }),
    memberBindings: new Reflector({ ...base, ...MEMBER_BINDING_CACHE }),
    connections: new Reflector({ ...base, ...CONNECTION_CACHE, namespace }),
    secrets: new Reflector({ ...base, ...CREDENTIALS_SECRET_CACHE, namespace }),
    sealingKeys: new Reflector({ ...base, ...SEALING_KEYS_CACHE, namespace: systemNamespace }),
    apiKeys: new Reflector({ ...base, resource: API_KEYS, namespace }),
    users: new Reflector({ ...base, ...MACHINE_USER_CACHE }),
    bindings: new Reflector({ ...base, ...BINDING_CACHE, namespace }),
  }
}

/** What controllers that keep an installation in order work with. */
type Keeping = ReturnType<typeof operatorCaches> & {
  client: KubeClient
  systemNamespace: string
  clock: Clock
  recorder: EventRecorder
  logger: Logger
}

/** Opens accounts for those who only ask about them. */
function accountOpener(providers: Providers): OpenAccount {
  return (type, credentials) => providers[type]?.account?.(credentials)
}

/** The controllers that say whose everything is: organizations, projects, keys. */
function tenancyControllers(keeping: Keeping): Controller[] {
  const tenancy = { ...keeping, reservedNamespaces: [keeping.systemNamespace, IDENTITIES_NAMESPACE] }
  return [createApiKeyController(tenancy), createProjectController(tenancy), createOrganizationController(tenancy)]
}

/** The controllers of what is sealed. */
function connectionControllers(
  { providers, retirement, ...keeping }: Keeping & Pick<OperatorParts, "providers" | "retirement"> & { sealer: Sealer },
  { watchNamespace }: Pick<KubeOptions, "watchNamespace">,
): Controller[] {
  const connection = createConnectionController({ ...keeping, openAccount: accountOpener(providers) })
  // Who sees one namespace alone can't know what others have sealed.
  if (watchNamespace !== undefined) return [connection]
  return [connection, createRetirementController({ ...keeping, ...retirement })]
}

/** What jobs and Launches need of the accounts that there are: a project's connections, and those that need none. */
function connectedAccounts(
  {
    clouds: own,
    providers,
    ownAccounts,
    askRegistries,
    logger,
  }: Pick<OperatorParts, "clouds" | "providers" | "ownAccounts" | "askRegistries" | "logger">,
  { connections, launches, secrets, projects }: ReturnType<typeof operatorCaches>,
  sealer: Sealer,
) {
  const credentials = { secrets, projects, sealer }
  const { store } = connections
  const looking = {
    connections: (namespace: string) => store.byIndex(NAMESPACE_INDEX, namespace),
    credentialsOf: cachedCredentials(credentials),
    clock: systemClock,
    logger,
  }
  return {
    clouds: new ConnectionClouds({ providers, connections: store, launches: launches.store, own, ...credentials }),
    payers: payersOf({ ownAccounts, connections: store, types: payingTypes(providers), sources: credentials }),
    copyCredentials: credentialsCopier(store, credentials),
    inUse: () => [...ownAccounts, ...accountsInUse(store, credentials)],
    buckets: new BucketFinder({ ...looking, openAccount: accountOpener(providers) }),
    images: askRegistries && { images: imageFinder(providers, askRegistries, looking) },
  }
}

/** Looks at images in their registries. */
function imageFinder(
  providers: Providers,
  send: Fetch,
  looking: Omit<ImageFinderOptions, "registriesOf" | "readImage">,
): ImageFinder {
  const registriesOf: ImageFinderOptions["registriesOf"] = (type) => providers[type]?.registries
  return new ImageFinder({ ...looking, registriesOf, readImage: imageReader({ clock: systemClock, send }) })
}

/**
 * What the agent's image runs on: VMs pull it without signing in, so that it is asked for as anybody may. Asks at once, and
 * logs the answer, or what is assumed instead: an image that nobody built for more is for the assumed ones.
 */
function agentPlatforms(
  { agentImage }: Pick<OperatorOptions, "agentImage">,
  {
    askRegistries: send,
    architectures: assumed,
    logger,
  }: Pick<OperatorParts, "askRegistries" | "architectures" | "logger">,
): { agentImage?: () => ImageState } {
  if (agentImage === undefined || send === undefined) return {}
  const finder = new ImageFinder({
    connections: () => [],
    registriesOf: () => undefined,
    credentialsOf: () => Promise.reject(new Error("the agent's image is pulled without signing in")),
    readImage: imageReader({ clock: systemClock, send }),
    clock: systemClock,
    logger,
  })
  void finder.whenFound("", agentImage).then((found) => {
    if (found.state === "known") {
      logger.info(
        { agentImage, architectures: found.architectures },
        "jobs get machines that the agent's image runs on",
      )
    } else {
      const message = "what the agent's image runs on could not be read: jobs get machines as assumed where they can"
      logger.warn({ agentImage, assumed, why: found.why }, message)
    }
  })
  return { agentImage: () => finder.find("", agentImage) }
}

/** The sealing keys are read anew each time that it matters: any process may have been told of another one. */
function sealerOf(client: KubeClient, systemNamespace: string): Sealer {
  return new Sealer(new KeyringEncryption(() => readSealingKeys(client, systemNamespace)))
}

/** The types of connections that VMs can be made by. */
function payingTypes(providers: Providers): string[] {
  return Object.entries(providers).flatMap(([type, { region }]) => (region === undefined ? [] : [type]))
}

/** Looks into the accounts of connections. */
function discovererOf(providers: Providers, credentialsOf: ReadCredentials, logger: Logger): DiscoverResources {
  const openAccount = accountOpener(providers)
  const discoverer = new Discoverer({ openAccount, credentialsOf, clock: systemClock, logger })
  return (sort, connections) => discoverer.discover(sort, connections)
}

/** Throws Error when the options name no place for logs. */
function logStoreOf(options: Omit<FacadeOptions, "kubeconfig" | "logLevel">, logger: Logger): LogStore {
  const { logsDir, logsBucket: bucket, logsPrefix, logsEndpoint: endpoint, logsRegion: region } = options
  if (logsDir !== undefined) return new FileLogStore(logsDir)
  if (bucket === undefined) {
    throw new Error("nowhere to keep logs: give --logs-dir (one replica) or --logs-bucket (any number of them)")
  }
  return new S3LogStore({
    client: s3Client({ ...(endpoint !== undefined && { endpoint }), ...(region !== undefined && { region }) }),
    bucket,
    prefix: logsPrefix === undefined ? "" : `${logsPrefix.replace(/\/+$/, "")}/`,
    onCompactionError: (err, job) => logger.warn({ err, job }, "small pieces of a log were not made one yet"),
  })
}

/** What VMs get by the connections of their project. */
function openedByConnections(client: KubeClient, providers: Providers, credentials: ReadCredentials) {
  // Live: a connection that was made a moment ago may be what the job waited for.
  const connections = async (namespace: string) => (await client.list(CONNECTION_CACHE.resource, { namespace })).items
  const live = { connections, credentials, clock: systemClock }
  return {
    buckets: connectedBuckets({ ...live, providers: bucketProviders(providers) }),
    registries: connectedRegistries({ ...live, providers: registryProviders(providers) }),
  }
}

/** The types of connections that buckets can be opened by, for VMs. */
function bucketProviders(providers: Providers): Record<string, BucketProvider> {
  const usable = Object.entries(providers).flatMap(([type, { account, buckets: access }]) => {
    if (account === undefined || access === undefined) return []
    const find: BucketProvider["find"] = async (credentials, bucket, signal) =>
      await account(credentials).bucket?.(bucket, signal)
    return [[type, { find, access }] as const]
  })
  return Object.fromEntries(usable)
}

/** The types of connections that images can be pulled by. */
function registryProviders(providers: Providers): Record<string, RegistryProvider> {
  const options = { clock: systemClock, send: publicFetch() }
  const usable = Object.entries(providers).flatMap(([type, { registries }]) => {
    if (registries === undefined) return []
    const access: RegistryProvider["access"] = (credentials, scope, signal) =>
      pullAccess(registries, { credentials, scope }, { ...options, signal })
    return [[type, { serves: registries.serves, access }] as const]
  })
  return Object.fromEntries(usable)
}

/** Keeps a catalogue that can change as its ConfigMaps say; another one stays as it is. */
function catalogueWatches(offers: Offers, options: Omit<CatalogueWatchOptions, "catalogue">) {
  if (!(offers instanceof LiveCatalogue)) return undefined
  const live = { ...options, catalogue: offers }
  return { rules: watchCatalogue(live), prices: watchPrices(live) }
}

type RefresherParts = Keeping &
  Pick<OperatorParts, "offers" | "providers" | "prices"> & {
    fence: Fence
    sealer: Sealer
    watches: ReturnType<typeof catalogueWatches>
  }

/** Asks clouds for their prices, where the options want it and the catalogue can change. */
function priceRefresherOf(
  { priceRefreshHours: list = 0, spotPriceRefreshHours: market = 0 }: Partial<OperatorOptions>,
  { offers, watches, connections, secrets, projects, sealer, prices, ...parts }: RefresherParts,
): PriceRefresher | undefined {
  if (!(offers instanceof LiveCatalogue) || watches === undefined || (list === 0 && market === 0)) return undefined
  return new PriceRefresher({
    ...parts,
    connections: connections.store,
    sources: { secrets, projects, sealer },
    stored: watches.prices,
    list: offers.list,
    hours: { list, market },
    ...prices,
  })
}

/** Finds the caps of the project whose namespace it is. */
function capsOf(projects: Store<StoredProject>): (namespace: string) => SpendCaps | undefined {
  return (namespace) => projects.list().find(({ status }) => status?.namespace === namespace)?.spec.caps
}

export interface FacadeParts {
  client: KubeClient
  /** Clouds that a job may name. */
  clouds: readonly string[]
  /** For the names of regions and GPU models, and for dry runs: the operator's. */
  offers: Offers
  /** The operator's. */
  providers: Providers
  /** The operator's. */
  ownAccounts: readonly CloudAccount[]
  /** The operator's. */
  architectures: readonly Architecture[]
  /** The operator's. */
  askRegistries?: Fetch
  logger: Logger
}

/** How long requests that are under way may take when the façade ends, seconds: all of it ends within ten. */
export const DRAIN_SECONDS = 7

/**
 * Starts the REST API and the gateway. Resolves when it listens; caches may still be filling, and the operator may not
 * have made the installation yet (`/readyz` tells).
 */
export async function startFacade(
  options: Omit<FacadeOptions, "kubeconfig" | "logLevel">,
  parts: FacadeParts,
  stop: AbortSignal,
): Promise<Running & { url: string }> {
  const { systemNamespace, issuer } = options
  const { client, clouds, providers, offers, logger } = parts
  const ending = new AbortController()
  const { launches, ...caches } = facadeCaches({ client, logger }, options)
  const { jobs, projects } = caches
  const logStore = logStoreOf(options, logger)
  const sealer = sealerOf(client, systemNamespace)
  const credentials = liveCredentials(client, { projects, sealer })
  const gateway = new AwaitedGateway({
    readInstallation: () => readInstallation(client, systemNamespace),
    isSynced: () => launches.synced,
    launches: kubeLaunches(client, launches.store, systemNamespace),
    secretEnv: kubeSecretEnv(client),
    ...openedByConnections(client, providers, credentials),
    logs: logStore,
    clock: systemClock,
    logger,
  })
  const metrics = createMetrics("facade")
  const health = new Health()
  health.addReadyCheck("launches", () => (launches.synced ? undefined : "not read yet"))
  health.addReadyCheck("installation", () => gateway.fault())
  const app = createFacade({
    client,
    caches,
    launches: launches.store,
    logStore,
    sealer,
    gateway: gateway.handle,
    health,
    metrics,
    tokens: issuer && new TokenVerifier({ issuers: [issuer], clock: systemClock }),
    catalogue: () => offers.current(),
    plan: plannerOf({ ...parts, ...options }, { launches, ...caches }, credentials),
    discover: discovererOf(providers, credentials, logger),
    settings: { ...options, clouds },
    logger,
    clock: systemClock,
    shutdown: stop,
  })
  measureClient(metrics, client, ending.signal)
  measureCaches(metrics, [...Object.values(caches), launches])
  const operations = await serveOperations(options, health, metrics)
  const server = createHttpServer(app)
  server.listen(options.port, options.host)
  await once(server, "listening")
  const watches = catalogueWatches(offers, { client, systemNamespace, logger })
  const reflectors = [...Object.values(caches), launches, ...Object.values(watches ?? {})].map((reflector) =>
    reflector.run(ending.signal),
  )
  const opening = gateway.run(ending.signal)
  const endRetention = keepOnlyLogsOfJobs({ client, jobs, logStore, logger }, ending.signal)
  const ended = stopped(stop).then(async () => {
    health.drain()
    endRetention()
    await closed(server)
    ending.abort()
    await Promise.all([opening, ...reflectors])
    await operations?.close()
  })
  const { address, port } = server.address() as AddressInfo
  const url = `http://${urlHost(address)}:${port}`
  return { url, metricsUrl: operations?.url, ended }
}

/** Plans jobs as the operator would place them. */
function plannerOf(
  parts: FacadeParts & Pick<FacadeOptions, "agentImage">,
  { jobs, launches, connections: { store }, projects }: ReturnType<typeof facadeCaches>,
  credentialsOf: ReadCredentials,
): Planner {
  const { offers, providers, ownAccounts, architectures, askRegistries, logger } = parts
  const payers = payersOf({ ownAccounts, connections: store, types: payingTypes(providers) })
  const connections = (namespace: string) => store.byIndex(NAMESPACE_INDEX, namespace)
  const looking = { connections, credentialsOf, clock: systemClock, logger }
  const images = askRegistries && { images: imageFinder(providers, askRegistries, looking) }
  const buckets = new BucketFinder({ ...looking, openAccount: accountOpener(providers) })
  const market = { offers, payers, jobs, launches, caps: capsOf(projects.store), clock: systemClock }
  return jobPlanner({ ...market, ...images, ...agentPlatforms(parts, parts), buckets }, { architectures })
}

/** All that the façade reads from memory. */
function facadeCaches(
  base: { client: KubeClient; logger: Logger },
  { systemNamespace, watchNamespace: namespace }: Pick<KubeOptions, "systemNamespace" | "watchNamespace">,
) {
  const launches = { resource: LAUNCHES, namespace: systemNamespace, indexes: launchIndexes }
  return {
    jobs: new Reflector({ ...base, ...CACHE_OPTIONS.jobs, namespace }),
    cronJobs: new Reflector({ ...base, ...CACHE_OPTIONS.cronJobs, namespace }),
    connections: new Reflector({ ...base, ...CACHE_OPTIONS.connections, namespace }),
    apiKeys: new Reflector({ ...base, ...CACHE_OPTIONS.apiKeys, namespace }),
    projects: new Reflector({ ...base, ...CACHE_OPTIONS.projects }),
    organizations: new Reflector({ ...base, ...CACHE_OPTIONS.organizations }),
    launches: new Reflector({ ...base, ...launches }),
  }
}

/** Removes the logs of jobs as these go, and of those that went while nobody looked; returns how to end it. */
function keepOnlyLogsOfJobs(
  retention: LogRetentionOptions & { jobs: Reflector<StoredJob> },
  ending: AbortSignal,
): () => void {
  const { jobs, logger } = retention
  void jobs
    .whenSynced(ending)
    .then(() => removeOrphanedLogs(retention))
    .catch((err: unknown) => ending.aborted || logger.warn({ err }, "logs of deleted jobs were not looked for"))
  return removeLogsOfDeletedJobs(retention)
}

async function stopped(stop: AbortSignal): Promise<void> {
  if (!stop.aborted) await once(stop, "abort")
}

async function closed(server: Server): Promise<void> {
  const cancel = systemClock.setTimer(DRAIN_SECONDS, () => server.closeAllConnections())
  await new Promise<void>((resolve) => {
    server.close(() => resolve())
    server.closeIdleConnections()
  })
  cancel()
}

function urlHost(host: string): string {
  return host.includes(":") ? `[${host}]` : host
}
