import { randomUUID } from "node:crypto"
import { hostname } from "node:os"
import { BucketFinder } from "../accounts/buckets.ts"
import { CONNECTION_CACHE, CREDENTIALS_SECRET_CACHE } from "../accounts/caches.ts"
import { ConnectionClouds } from "../accounts/connection-clouds.ts"
import { cachedCredentials } from "../accounts/credentials.ts"
import { agentImagePlatforms, ImageFinder, type ImageSettings } from "../accounts/images.ts"
import { accountsInUse, credentialsCopier, launchAccountsOf } from "../accounts/launch-accounts.ts"
import type { CloudAccount, Clouds } from "../clouds/cloud.ts"
import { userDataOf } from "../clouds/cloud-init.ts"
import { accountOpener, type Providers, registriesOf, typesWithVms } from "../clouds/provider.ts"
import { imageReader } from "../clouds/registries/manifests.ts"
import { type Clock, systemClock } from "../core/apis/clock.ts"
import { defined } from "../core/apis/defined.ts"
import type { StoredJob } from "../core/apis/job.ts"
import { type HeartbeatTimes, isOver, type StoredLaunch } from "../core/apis/launch.ts"
import type { Architecture } from "../core/apis/offer.ts"
import { NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import { ensureIdentityKeys, type IdentityIssuer } from "../core/identity/identity-tokens.ts"
import {
  ensureInstallation,
  type Installation,
  OPERATOR_ABILITIES,
  OPERATOR_LEASE,
} from "../core/identity/installation.ts"
import { IDENTITIES_NAMESPACE } from "../core/identity/machine-users.ts"
import { capsIn, PROJECT_OF_NAMESPACE, tenantsIn } from "../core/identity/projects.ts"
import { ensureSealingKeys, SEALING_KEYS_CACHE, storedKeysSealer } from "../core/identity/sealing-keys.ts"
import { API_KEYS, JOB_ARRAYS, ORGANIZATIONS, PROJECTS } from "../core/kinds.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { EventRecorder } from "../core/kube/events.ts"
import { HEARTBEATS_CACHE, SharedHeartbeats } from "../core/kube/heartbeats.ts"
import { LeaderElector, type LeaderElectorOptions } from "../core/kube/lease.ts"
import { Reflector } from "../core/kube/reflector.ts"
import { PROJECT_LIMITS, type Quota } from "../core/limits/project-limits.ts"
import { Usage } from "../core/limits/usage.ts"
import type { Fetch } from "../core/outbound/guarded-fetch.ts"
import { NO_TARGETS, publicFetch } from "../core/outbound/public-fetch.ts"
import { packageVersion } from "../core/package.ts"
import { recordOf } from "../core/records/job.ts"
import { ownerOf } from "../core/records/owner.ts"
import type { Controller } from "../core/runtime/controller.ts"
import { Manager } from "../core/runtime/manager.ts"
import type { Sealer } from "../core/sealing/envelope.ts"
import { measureCaps } from "../core/telemetry/caps.ts"
import { measureControllers, measureCopy, measureLeadership } from "../core/telemetry/controllers.ts"
import { Health } from "../core/telemetry/health.ts"
import { measureJobs } from "../core/telemetry/jobs.ts"
import { measureCaches, measureClient } from "../core/telemetry/kube.ts"
import type { Logger } from "../core/telemetry/logger.ts"
import { createMetrics } from "../core/telemetry/metrics.ts"
import { measurePrices } from "../core/telemetry/prices.ts"
import { type Running, serveOperations } from "../core/telemetry/program.ts"
import type { OperationsServer } from "../core/telemetry/server.ts"
import { measureStorage } from "../core/telemetry/storage.ts"
import { measureWebhooks } from "../core/telemetry/webhooks.ts"
import { LAUNCH_CACHE, STATEMENT_CACHE } from "../market/caches.ts"
import { LiveCatalogue } from "../market/catalogue/live.ts"
import type { Offers } from "../market/catalogue/offers.ts"
import { type CatalogueWatches, catalogueWatches } from "../market/catalogue/watch.ts"
import { JOB_DEFAULTS } from "../market/placement/settings.ts"
import type { KubeOptions, OperatorOptions } from "../options.ts"
import { createApiKeyController } from "./apikey/controller.ts"
import { arrayEndReader, createArrayController } from "./array/controller.ts"
import {
  BINDING_CACHE,
  CRON_JOB_CACHE,
  ENV_SECRET_CACHE,
  JOB_CACHE,
  jobIndexes,
  MACHINE_USER_CACHE,
  MEMBER_BINDING_CACHE,
  NAMESPACE_CACHE,
  WEBHOOK_CACHE,
  WEBHOOK_SECRET_CACHE,
} from "./caches.ts"
import { CapWatcher } from "./caps/watcher.ts"
import { createConnectionController } from "./connection/controller.ts"
import { createRetirementController, type RetirementOptions } from "./connection/retirement.ts"
import type { ConnectionSettings } from "./connection/settings.ts"
import { creatorIndexes } from "./created-jobs.ts"
import { createCronJobController } from "./cronjob/controller.ts"
import { limitsHistory } from "./cronjob/jobs.ts"
import { type Fence, fenceOf } from "./fence.ts"
import { CopyGuard } from "./installation/copy-guard.ts"
import { createJobController } from "./job/controller.ts"
import { HistoryPruner } from "./job/history.ts"
import { createLaunchController } from "./launch/controller.ts"
import { createOrganizationController } from "./organization/controller.ts"
import { PriceRefresher, type PriceRefresherOptions } from "./prices/refresher.ts"
import { createProjectController } from "./project/controller.ts"
import { checkSelection, SettledJobs } from "./settled-jobs.ts"
import { createStatementController } from "./statement/controller.ts"
import { VmImages } from "./vm-images.ts"
import { createWebhookController, type WebhookControl } from "./webhook/controller.ts"
import { reportingToWebhooks, reportThreshold } from "./webhook/other-events.ts"
import type { WebhookSettings } from "./webhook/settings.ts"

/** Parts that differ between an installation, the stack on one machine, and tests. */
export interface OperatorParts {
  client: KubeClient
  /** Opens the accounts that need no connection. */
  clouds: Clouds
  /** Capabilities of each type of connection. */
  providers: Providers
  offers: Offers
  /** Accounts that need no connection: jobs of every project may run there, and their VMs are always listed. */
  ownAccounts: readonly CloudAccount[]
  /** Architectures assumed for an image whose own are unknown; none: any. */
  architectures: readonly Architecture[]
  /** Sends requests to registries for the architectures of images; absent: registries are not asked. */
  askRegistries?: Fetch
  /** Issuer of identity tokens for clouds. Absent: every connection needs a secret. */
  identity?: IdentityIssuer
  /** Limits of the lookup of an image's architectures. Default: the finder's own. */
  images?: Pick<ImageSettings, "limitSeconds">
  /** Between two lists of the VMs of an account. Default: the interval for public clouds. */
  observeSeconds?: number
  /** Pauses and timeouts of the verification of connections. */
  verification?: Partial<ConnectionSettings>
  /** Time for which the records of ended VMs are kept. Default: the launch controller's own. */
  retentionSeconds?: number
  /** Times of the leader's lease. Default: the elector's own. */
  leaseTimes?: Pick<LeaderElectorOptions, "leaseSeconds" | "renewDeadlineSeconds" | "retrySeconds">
  /** Delays before former sealing keys are deleted. Default: the controller's own. */
  retirement?: Pick<RetirementOptions, "graceSeconds" | "lookSeconds">
  /** Between two checks whether prices can be read. Default: the refresher's own. */
  prices?: Pick<PriceRefresherOptions, "lookSeconds">
  /** Between two checks whether this cluster is a copy. Default: the guard's own. */
  copyCheckSeconds?: number
  /** VMs created a minute, at most, over all projects. Default: the job controller's own. */
  launchesPerMinute?: number
  /** Settings of webhooks. Default: their controller's own. */
  webhooks?: Partial<WebhookSettings> & { timeoutSeconds?: number }
  /** Default: the machine's. */
  clock?: Clock
  logger: Logger
}

/** Options that decide how the operator works. Those that the command line requires may be absent in tests and in dev/. */
type Options = Partial<OperatorOptions> & Pick<OperatorOptions, "systemNamespace" | "gatewayUrl">

/** Starts the loops that bring Jobs to VMs, as one candidate of possibly several: only the leader acts. */
export async function startOperator(options: Options, parts: OperatorParts, stop: AbortSignal): Promise<Running> {
  const { systemNamespace } = options
  const { client, leaseTimes, logger, clock = systemClock } = parts
  const installation = await prepare(options, parts)
  const identity = `${hostname()}-${randomUUID()}`
  const elector = new LeaderElector({
    ...{ client, lease: { namespace: systemNamespace, name: OPERATOR_LEASE }, identity, clock, logger },
    abilities: OPERATOR_ABILITIES,
    ...leaseTimes,
  })
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: identity, clock, logger })
  const caches = operatorCaches({ client, logger }, options)
  const heartbeatTimes = new SharedHeartbeats(caches.heartbeats, clock)
  const watches = catalogueWatches(parts.offers, { client, systemNamespace, recorder, logger })
  const sealer = storedKeysSealer(client, systemNamespace)
  const fence = fenceOf(elector)
  const quota = { limits: { ...PROJECT_LIMITS, ...options.projectLimits }, usage: new Usage(caches, clock) }
  const settled = settledJobs({ client, clock, logger, fence }, { options, caches, quota })
  const base = { client, clock, recorder, heartbeatTimes, settled, logger }
  const identityIssuer = parts.identity?.issuer
  const installed: Installed = { options, parts, installation, caches, base, sealer, identityIssuer, fence, quota }
  const guard = copyGuard(installed, elector)
  const accounts = connectedAccounts(installed)
  const webhooks = webhookController(installed)
  const jobControl = jobController(installed, accounts, webhooks)
  const launchControl = launchController(installed, accounts)
  const refresher = priceRefresher(installed, watches)
  const metrics = createMetrics("operator")
  const onPruned = measureStorage(metrics, { quota, isLeading: () => manager.readiness().leading })
  const pruner = new HistoryPruner({ ...base, jobs: caches.jobs.store, quota, fence, onPruned })
  const reporting = { ...installed, base: { ...base, recorder: reportingToWebhooks(base, webhooks.deliveries) } }
  const capWatcher = capWatcherOf(installed, webhooks)
  const manager = new Manager({
    reflectors: [...Object.values(caches), ...Object.values(watches ?? {})],
    controllers: [
      jobControl,
      launchControl.controller,
      statementController(installed),
      cronJobController(reporting),
      arrayController(installed),
      ...tenancyControllers(installed),
      ...connectionControllers(reporting, refresher),
      webhooks.controller,
    ],
    leaderTasks: [
      ...launchControl.leaderTasks,
      ...[webhooks.deliveries, settled, pruner, capWatcher, guard, ...(refresher ? [refresher] : [])].map(
        (task) => (signal: AbortSignal) => task.run(signal),
      ),
    ],
    cleared: (signal) => guard.cleared(signal),
    metricsOf: measureControllers(metrics),
    elector,
    clock,
    logger,
  })
  const operations = await serveMetrics(installed, { metrics, manager, guard, capWatcher, webhooks, refresher, stop })
  const ended = manager
    .run(stop)
    .finally(() => recorder.flush())
    .finally(() => operations?.close())
  return { ended, metricsUrl: operations?.url }
}

/** Checks the cluster, and creates the objects that an installation has once. @throws Error if the cluster is too old */
async function prepare(
  { systemNamespace, watchNamespace }: Options,
  { client, identity }: OperatorParts,
): Promise<Installation> {
  await checkSelection(client, watchNamespace)
  const installation = await ensureInstallation(client, systemNamespace)
  await ensureSealingKeys(client, systemNamespace)
  if (identity !== undefined) await ensureIdentityKeys(client, systemNamespace)
  return installation
}

/** Everything that more than one controller is constructed from. */
interface Installed {
  options: Options
  parts: OperatorParts
  installation: Installation
  caches: ReturnType<typeof operatorCaches>
  base: {
    client: KubeClient
    clock: Clock
    recorder: Pick<EventRecorder, "record">
    heartbeatTimes: HeartbeatTimes
    settled: SettledJobs
    logger: Logger
  }
  sealer: Sealer
  identityIssuer: string | undefined
  fence: Fence
  quota: Quota
}

/** Constructs the guard that keeps the operator of a copied cluster from acting. */
function copyGuard({ options, parts, installation, caches, base }: Installed, elector: LeaderElector): CopyGuard {
  const { systemNamespace, gatewayUrl } = options
  const { copyCheckSeconds: intervalSeconds } = parts
  const launches = caches.launches.store
  return new CopyGuard({
    ...base,
    systemNamespace,
    installation,
    gatewayUrl,
    launchedGateways: () => launches.list().flatMap((launch) => (isOver(launch) ? [] : [launch.spec.gatewayUrl])),
    elector,
    // Gateways are asked by the machine's clock, in tests too.
    clock: systemClock,
    ...defined({ intervalSeconds }),
  })
}

/** Constructs the operator's caches. */
function operatorCaches(
  base: { client: KubeClient; logger: Logger },
  { systemNamespace, watchNamespace: namespace }: Pick<KubeOptions, "systemNamespace" | "watchNamespace">,
) {
  const indexes = { ...creatorIndexes, ...jobIndexes }
  const jobs = { ...JOB_CACHE, namespace, indexes }
  const launches = { ...LAUNCH_CACHE, namespace: systemNamespace }
  return {
    jobs: new Reflector<StoredJob>({ ...base, ...jobs }),
    cronJobs: new Reflector({ ...base, ...CRON_JOB_CACHE, namespace }),
    jobArrays: new Reflector({ ...base, resource: JOB_ARRAYS, namespace }),
    launches: new Reflector<StoredLaunch>({ ...base, ...launches }),
    statements: new Reflector({
      ...base,
      ...STATEMENT_CACHE,
      namespace: systemNamespace,
    }),
    projects: new Reflector({ ...base, resource: PROJECTS, indexes: PROJECT_OF_NAMESPACE }),
    organizations: new Reflector({ ...base, resource: ORGANIZATIONS }),
    namespaces: new Reflector({ ...base, ...NAMESPACE_CACHE }),
    memberBindings: new Reflector({ ...base, ...MEMBER_BINDING_CACHE }),
    connections: new Reflector({ ...base, ...CONNECTION_CACHE, namespace }),
    secrets: new Reflector({ ...base, ...CREDENTIALS_SECRET_CACHE, namespace }),
    envSecrets: new Reflector({ ...base, ...ENV_SECRET_CACHE, namespace }),
    webhooks: new Reflector({ ...base, ...WEBHOOK_CACHE, namespace }),
    webhookSecrets: new Reflector({ ...base, ...WEBHOOK_SECRET_CACHE, namespace }),
    sealingKeys: new Reflector({ ...base, ...SEALING_KEYS_CACHE, namespace: systemNamespace }),
    apiKeys: new Reflector({ ...base, resource: API_KEYS, namespace }),
    users: new Reflector({ ...base, ...MACHINE_USER_CACHE }),
    bindings: new Reflector({ ...base, ...BINDING_CACHE, namespace }),
    heartbeats: new Reflector({ ...base, ...HEARTBEATS_CACHE, namespace: IDENTITIES_NAMESPACE }),
  }
}

/** Constructs the record of the jobs that the caches don't have. */
function settledJobs(
  base: { client: KubeClient; clock: Clock; logger: Logger; fence: Fence },
  { options, caches, quota }: Pick<Installed, "options" | "caches" | "quota">,
): SettledJobs {
  const limitsHistoryOf = (uid: string) => {
    const cronJob = caches.cronJobs.store.getByUid(uid)
    return cronJob === undefined ? caches.jobArrays.store.getByUid(uid) !== undefined : limitsHistory(cronJob)
  }
  return new SettledJobs({
    ...base,
    namespace: options.watchNamespace,
    ttlSeconds: JOB_DEFAULTS.ttlSeconds,
    limitsHistory: limitsHistoryOf,
    usage: quota.usage,
  })
}

/** Constructs what jobs and Launches need of accounts: a project's connections, and accounts without one. */
function connectedAccounts({ parts, caches, base: { logger }, sealer, identityIssuer }: Installed) {
  const { providers, ownAccounts, askRegistries: send, images: settings } = parts
  const connections = caches.connections.store
  const sources = { secrets: caches.secrets, projects: caches.projects, sealer, identityIssuer }
  const finding = {
    connections: (namespace: string) => connections.byIndex(NAMESPACE_INDEX, namespace),
    credentialsOf: cachedCredentials(sources),
    // Answers of providers age by the machine's clock, in tests too.
    clock: systemClock,
    logger,
  }
  const readImage = send && imageReader({ clock: systemClock, send })
  const images =
    readImage &&
    new ImageFinder({ ...finding, registriesOf: registriesOf(providers), readImage, ...(settings && { settings }) })
  return {
    clouds: new ConnectionClouds({
      providers,
      connections,
      launches: caches.launches.store,
      own: parts.clouds,
      ...sources,
    }),
    launchAccounts: launchAccountsOf({ ownAccounts, connections, types: typesWithVms(providers), sources }),
    copyCredentials: credentialsCopier(connections, sources, images),
    vmImages: new VmImages(systemClock),
    inUse: () => [...ownAccounts, ...accountsInUse(connections, sources)],
    buckets: new BucketFinder({ ...finding, openAccount: accountOpener(providers) }),
    readImage,
    images,
  }
}

type Accounts = ReturnType<typeof connectedAccounts>

function jobController(
  { options, parts, installation, caches, base, fence, quota }: Installed,
  accounts: Accounts,
  { deliveries }: WebhookControl,
): Controller {
  const { systemNamespace, gatewayUrl, vmProxy, vmCa, agentImage, volumesImage } = options
  const { offers, architectures, launchesPerMinute } = parts
  const { images, readImage, buckets, launchAccounts, copyCredentials, vmImages } = accounts
  return createJobController({
    ...base,
    jobs: caches.jobs,
    endReaders: [arrayEndReader(caches), deliveries],
    launches: caches.launches,
    statements: caches.statements,
    connections: caches.connections,
    envSecrets: caches.envSecrets,
    caps: capsIn({
      projects: caches.projects.store,
      organizations: caches.organizations.store,
      installation: options.caps,
    }),
    tenants: tenantsIn(caches.projects.store, caches.organizations.store),
    quota,
    tenancy: { projects: caches.projects, organizations: caches.organizations },
    fence,
    offers,
    launchAccounts,
    copyCredentials,
    vmImage: (launch) => vmImages.find(launch),
    buckets,
    ...(images && { images }),
    ...agentImagePlatforms({
      agentImage,
      readImage,
      assumed: architectures,
      clock: systemClock,
      logger: base.logger,
      ...(parts.images && { settings: parts.images }),
    }),
    installation: {
      ...{ id: installation.id, systemNamespace, gatewayUrl },
      ...defined({ vmProxy, gatewayCa: vmCa, agentImage, volumesImage }),
    },
    settings: { architectures, ...(launchesPerMinute && { launchesPerMinute }) },
  })
}

/** Constructs the sender of events to webhooks. */
function webhookController({ options, parts, caches, base, sealer, fence, quota }: Installed): WebhookControl {
  const { webhooks, webhookSecrets: secrets, projects, jobs, sealingKeys } = caches
  const { timeoutSeconds, ...settings } = parts.webhooks ?? {}
  const { privateReceivers = NO_TARGETS } = options
  const sending = { send: publicFetch(privateReceivers), privateTargets: privateReceivers, version: packageVersion() }
  return createWebhookController({
    ...{ ...base, webhooks, secrets, projects, jobs, sealingKeys, sealer, fence, quota, settings },
    recordOf: (job, project) => recordOf(job, ownerOf(project)),
    sending: { ...sending, clock: base.clock, timeoutSeconds },
  })
}

function launchController({ options, parts, installation, caches, base, fence }: Installed, accounts: Accounts) {
  const { observeSeconds, retentionSeconds } = parts
  return createLaunchController({
    ...base,
    jobs: caches.jobs,
    launches: caches.launches,
    statements: caches.statements,
    fence,
    systemNamespace: options.systemNamespace,
    installation: installation.id,
    clouds: accounts.clouds,
    vmImages: accounts.vmImages,
    userData: (launch) => userDataOf(launch, installation.bootstrapKey),
    garbageCollection: { accounts: accounts.inUse },
    ...(observeSeconds && { observeSeconds }),
    ...(retentionSeconds && { settings: { retentionSeconds } }),
  })
}

function statementController({ options, caches, base, fence }: Installed): Controller {
  const { statements, launches } = caches
  const { systemNamespace } = options
  return createStatementController({ ...base, statements, launches, systemNamespace, fence })
}

function capWatcherOf({ options, caches, base, fence }: Installed, { deliveries }: WebhookControl): CapWatcher {
  return new CapWatcher({
    ...base,
    ...caches,
    installation: options.caps,
    systemNamespace: options.systemNamespace,
    watchNamespace: options.watchNamespace,
    onThreshold: (reached) => reportThreshold(reached, deliveries, base.clock.now()),
    fence,
  })
}

function cronJobController({ caches, base, fence, quota }: Installed): Controller {
  const { cronJobs, jobs, projects, organizations } = caches
  return createCronJobController({ ...base, cronJobs, jobs, fence, quota, tenancy: { projects, organizations } })
}

function arrayController({ caches, base, fence, quota }: Installed): Controller {
  const { jobArrays, jobs, projects, organizations } = caches
  const tenancy = { projects, organizations }
  return createArrayController({
    ...{ ...base, jobArrays, jobs, fence, quota, tenancy },
    ttlSeconds: JOB_DEFAULTS.ttlSeconds,
  })
}

/** Constructs the controllers of organizations, projects and API keys. */
function tenancyControllers({ options, caches: all, base, quota }: Installed): Controller[] {
  const { projects, organizations, namespaces, memberBindings, users, jobs, apiKeys, bindings } = all
  const reservedNamespaces = [options.systemNamespace, IDENTITIES_NAMESPACE]
  const caches = { projects, organizations, namespaces, memberBindings, users, jobs }
  const tenancy = { ...base, ...caches, watchNamespace: options.watchNamespace, reservedNamespaces }
  return [
    createApiKeyController({ ...base, apiKeys, users, bindings, quota }),
    createProjectController(tenancy),
    createOrganizationController(tenancy),
  ]
}

/** Constructs the controllers of connections and of the sealing keys that their credentials are sealed under. */
function connectionControllers(
  { options, parts, caches, base, sealer, identityIssuer, quota }: Installed,
  prices: PriceRefresher | undefined,
): Controller[] {
  const { connections, secrets, projects, launches, sealingKeys } = caches
  const sealed = { ...base, secrets, projects, sealer, identityIssuer, sealingKeys }
  const openAccount = accountOpener(parts.providers)
  const settings = parts.verification ?? {}
  const connection = createConnectionController({
    ...sealed,
    connections,
    launches,
    openAccount,
    prices,
    quota,
    settings,
  })
  // An operator of one namespace can't see what other namespaces have sealed under a key.
  if (options.watchNamespace !== undefined) return [connection]
  const { systemNamespace } = options
  return [connection, createRetirementController({ ...sealed, systemNamespace, ...parts.retirement })]
}

/** Constructs the reader of clouds' prices; undefined where the options turn it off or the catalogue is fixed. */
function priceRefresher(
  { options, parts, caches, base, sealer, identityIssuer, fence }: Installed,
  watches: CatalogueWatches | undefined,
): PriceRefresher | undefined {
  const { systemNamespace, priceRefreshHours: list = 0, spotPriceRefreshHours: market = 0 } = options
  const { offers, providers, prices } = parts
  if (!(offers instanceof LiveCatalogue) || watches === undefined || (list === 0 && market === 0)) return undefined
  return new PriceRefresher({
    ...base,
    systemNamespace,
    providers,
    connections: caches.connections.store,
    sources: { secrets: caches.secrets, projects: caches.projects, sealer, identityIssuer },
    stored: watches.prices,
    list: offers.list,
    hours: { list, market },
    fence,
    ...prices,
  })
}

/** Registers the operator's metrics and health, and serves them. */
function serveMetrics(
  { options, caches, base: { client, settled } }: Installed,
  {
    metrics,
    manager,
    guard,
    capWatcher,
    webhooks,
    refresher,
    stop,
  }: {
    metrics: ReturnType<typeof createMetrics>
    manager: Manager
    guard: CopyGuard
    capWatcher: CapWatcher
    webhooks: WebhookControl
    refresher: PriceRefresher | undefined
    stop: AbortSignal
  },
): Promise<OperationsServer | undefined> {
  const isLeading = () => manager.readiness().leading
  measureClient(metrics, client, stop)
  measureCaches(metrics, Object.values(caches))
  measureLeadership(metrics, "berth-operator", isLeading)
  measureCopy(metrics, () => guard.fault() !== undefined)
  measureJobs(metrics, { ...caches, settled, isLeading })
  measureCaps(metrics, { amounts: () => capWatcher.amounts(), maxMonthlyUsd: options.caps?.maxMonthlyUsd })
  measureWebhooks(metrics, { ...webhooks, isLeading })
  if (refresher !== undefined) measurePrices(metrics, { ages: () => refresher.ages(), isLeading })
  const health = new Health()
  health.addReadyCheck("caches", () => manager.readiness().reasons.join("; ") || undefined)
  health.addReadyCheck("copy", () => guard.fault())
  return serveOperations(options, health, metrics)
}
