import { randomUUID } from "node:crypto"
import { hostname } from "node:os"
import { ConnectionClouds } from "../accounts/connection-clouds.ts"
import { cachedCredentials } from "../accounts/credentials.ts"
import type { ImageSettings } from "../accounts/images.ts"
import { accountsInUse, credentialsCopier } from "../accounts/launch-accounts.ts"
import { placementInputs } from "../accounts/placement.ts"
import type { CloudAccount, Clouds } from "../clouds/cloud.ts"
import { buildUserData } from "../clouds/cloud-init.ts"
import { accountOpener, type Providers } from "../clouds/provider.ts"
import { type Clock, systemClock } from "../core/apis/clock.ts"
import { defined } from "../core/apis/defined.ts"
import { isOver } from "../core/apis/launch.ts"
import type { Architecture } from "../core/apis/offer.ts"
import { ensureIdentityKeys, type IdentityIssuer } from "../core/identity/identity-tokens.ts"
import {
  ensureInstallation,
  type Installation,
  OPERATOR_ABILITIES,
  OPERATOR_LEASE,
} from "../core/identity/installation.ts"
import { IDENTITIES_NAMESPACE } from "../core/identity/machine-users.ts"
import { ensureSealingKeys, storedKeysSealer } from "../core/identity/sealing-keys.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { EventRecorder } from "../core/kube/events.ts"
import { SharedHeartbeats } from "../core/kube/heartbeats.ts"
import { LeaderElector, type LeaderElectorOptions } from "../core/kube/lease.ts"
import type { Fetch } from "../core/outbound/guarded-fetch.ts"
import { NO_TARGETS, publicFetch } from "../core/outbound/public-fetch.ts"
import { packageVersion } from "../core/package.ts"
import { PROJECT_LIMITS } from "../core/quota/project-limits.ts"
import { Usage } from "../core/quota/usage.ts"
import { toRecord } from "../core/records/job.ts"
import { toOwner } from "../core/records/owner.ts"
import { Manager } from "../core/runtime/manager.ts"
import { measureCaps } from "../core/telemetry/caps.ts"
import { measureControllers, measureCopy, measureLeadership } from "../core/telemetry/controllers.ts"
import { Health } from "../core/telemetry/health.ts"
import { measureJobs } from "../core/telemetry/jobs.ts"
import { measureCaches, measureClient } from "../core/telemetry/kube.ts"
import type { Logger } from "../core/telemetry/logger.ts"
import { createMetrics, type Registry } from "../core/telemetry/metrics.ts"
import { measurePrices } from "../core/telemetry/prices.ts"
import { type Running, serveOperations } from "../core/telemetry/program.ts"
import { measureStorage } from "../core/telemetry/storage.ts"
import { measureWebhooks } from "../core/telemetry/webhooks.ts"
import { LiveCatalogue } from "../market/catalogue/live.ts"
import type { Offers } from "../market/catalogue/offers.ts"
import { type CatalogueWatches, catalogueWatches } from "../market/catalogue/watch.ts"
import { JOB_DEFAULTS } from "../market/placement/settings.ts"
import type { OperatorOptions } from "../options.ts"
import { createApiKeyController } from "./apikey/controller.ts"
import { arrayEndReader, createArrayController } from "./array/controller.ts"
import { operatorCaches } from "./caches.ts"
import { CapWatcher } from "./caps/watcher.ts"
import { createConnectionController } from "./connection/controller.ts"
import { createRetirementController, type RetirementOptions } from "./connection/retirement.ts"
import type { ConnectionSettings } from "./connection/settings.ts"
import { createCronJobController } from "./cronjob/controller.ts"
import { limitsHistory } from "./cronjob/jobs.ts"
import { createFence } from "./fence.ts"
import { CopyGuard } from "./installation/copy-guard.ts"
import { createJobController } from "./job/controller.ts"
import { HistoryPruner } from "./job/history.ts"
import { createLaunchController } from "./launch/controller.ts"
import { createMachineController } from "./machine/controller.ts"
import { machinesInUse, withOwnMachines } from "./machine/own-cloud.ts"
import { createOrganizationController } from "./organization/controller.ts"
import { Prerequisites } from "./prerequisites.ts"
import { PriceRefresher, type PriceRefresherOptions } from "./prices/refresher.ts"
import { createProjectController } from "./project/controller.ts"
import { checkSelection, SettledJobs } from "./settled-jobs.ts"
import { createStatementController } from "./statement/controller.ts"
import { VmImages } from "./vm-images.ts"
import { createWebhookController, type WebhookControl } from "./webhook/controller.ts"
import { reportingToWebhooks, reportThreshold } from "./webhook/other-events.ts"
import { gatewayOutput } from "./webhook/output.ts"
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
  const { client, logger, clock = systemClock } = parts
  const installation = await prepare(options, parts)
  const identity = `${hostname()}-${randomUUID()}`
  const elector = new LeaderElector({
    ...{ client, lease: { namespace: systemNamespace, name: OPERATOR_LEASE }, identity, clock, logger },
    abilities: OPERATOR_ABILITIES,
    ...parts.leaseTimes,
  })
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: identity, clock, logger })
  const caches = operatorCaches({ client, logger }, options)
  const watches = catalogueWatches(parts.offers, { client, systemNamespace, recorder, logger })
  const shared = sharedParts(options, parts, { caches, elector, recorder })
  const webhooks = webhookControl(shared, options, parts, installation)
  const vms = vmControllers(shared, options, parts, { installation, webhooks })
  const prices = priceRefresher(shared, options, parts, watches)
  const guard = copyGuard(shared, options, parts, { installation, elector })
  const capWatcher = new CapWatcher({
    ...shared,
    installation: options.caps,
    onThreshold: (reached) => reportThreshold(reached, webhooks.deliveries, clock.now()),
  })
  const metrics = createMetrics("operator")
  const isLeading = () => manager.readiness().leading
  const onPruned = measureStorage(metrics, { ...shared, isLeading })
  const pruner = new HistoryPruner({ ...shared, jobs: caches.jobs.store, onPruned })
  const tasks = [webhooks.deliveries, shared.settled, pruner, capWatcher, guard, ...(prices ? [prices] : [])]
  const manager = new Manager({
    reflectors: [...Object.values(caches), ...Object.values(watches ?? {})],
    controllers: [
      vms.jobs,
      vms.launches.controller,
      webhooks.controller,
      ...otherControllers(shared, parts, { webhooks, prices }),
    ],
    leaderTasks: [...vms.launches.leaderTasks, ...tasks.map((task) => (signal: AbortSignal) => task.run(signal))],
    cleared: (signal) => guard.cleared(signal),
    metricsOf: measureControllers(metrics),
    elector,
    clock,
    logger,
  })
  measureClient(metrics, client, stop)
  measureCaches(metrics, Object.values(caches))
  measureLoops(metrics, shared, {
    guard,
    capWatcher,
    webhooks,
    prices,
    isLeading,
    maxMonthlyUsd: options.caps?.maxMonthlyUsd,
  })
  const operations = await serveOperations(options, healthOf(manager, guard), metrics)
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

/** Constructs what more than one controller needs, and adds the caches. Each takes from it what it names. */
function sharedParts(
  { systemNamespace, watchNamespace, projectLimits, defaultReuseIdleSeconds: reuseIdleSeconds }: Options,
  { client, identity, clock = systemClock, logger }: OperatorParts,
  { caches, elector, recorder }: { caches: Caches; elector: LeaderElector; recorder: Pick<EventRecorder, "record"> },
) {
  const { heartbeats, ...objects } = caches
  const fence = createFence(elector)
  const quota = { limits: { ...PROJECT_LIMITS, ...projectLimits }, usage: new Usage(caches, clock) }
  const prerequisites = new Prerequisites({ client, ...caches })
  const settled = new SettledJobs({
    ...{ client, namespace: watchNamespace, fence, clock, logger },
    isAwaited: ({ metadata }) => prerequisites.isAwaited({ job: metadata.name }, metadata),
    ttlSeconds: JOB_DEFAULTS.ttlSeconds,
    limitsHistory: (creatorUid) => {
      const cronJob = caches.cronJobs.store.getByUid(creatorUid)
      return cronJob === undefined ? caches.jobArrays.store.getByUid(creatorUid) !== undefined : limitsHistory(cronJob)
    },
    usage: quota.usage,
  })
  const heartbeatTimes = new SharedHeartbeats(heartbeats, clock)
  const sealer = storedKeysSealer(client, systemNamespace)
  const addresses = { systemNamespace, watchNamespace, identityIssuer: identity?.issuer }
  const parts = { client, clock, recorder, logger, fence, quota, prerequisites, settled, heartbeatTimes, sealer }
  return { ...objects, ...addresses, ...parts, reuseDefault: defined({ reuseIdleSeconds }) }
}

type Caches = ReturnType<typeof operatorCaches>
type Shared = ReturnType<typeof sharedParts>

/** Constructs the sender of events to webhooks. */
function webhookControl(
  shared: Shared,
  { privateReceivers = NO_TARGETS, gatewayUrl }: Options,
  { webhooks }: OperatorParts,
  installation: Installation,
): WebhookControl {
  const { timeoutSeconds, ...settings } = webhooks ?? {}
  const sending = { send: publicFetch(privateReceivers), privateTargets: privateReceivers, version: packageVersion() }
  return createWebhookController({
    ...shared,
    secrets: shared.webhookSecrets,
    recordOf: (job, project) => toRecord(job, toOwner(project)),
    readOutput: gatewayOutput(gatewayUrl, installation.bootstrapKey),
    sending: { ...sending, clock: shared.clock, timeoutSeconds },
    settings,
  })
}

/** Constructs the controllers of jobs and their VMs. */
function vmControllers(
  shared: Shared,
  options: Options,
  parts: OperatorParts,
  { installation, webhooks }: { installation: Installation; webhooks: WebhookControl },
) {
  const {
    systemNamespace,
    gatewayUrl,
    vmProxy,
    vmCa,
    agentImage,
    volumesImage,
    defaultIdleSeconds: idleSeconds,
  } = options
  const { providers, ownAccounts, architectures, launchesPerMinute, observeSeconds, retentionSeconds } = parts
  const connections = shared.connections.store
  const launches = shared.launches.store
  const placement = placementInputs({
    ...parts,
    ...shared,
    agentImage,
    caps: options.caps,
    credentialsOf: cachedCredentials(shared),
  })
  const vmImages = new VmImages(systemClock)
  const jobController = createJobController({
    ...shared,
    ...placement,
    tenancy: shared,
    endReaders: [arrayEndReader(shared), webhooks.deliveries],
    copyCredentials: credentialsCopier(connections, shared, placement.images),
    vmImage: (launch) => vmImages.find(launch),
    installation: {
      ...{ id: installation.id, systemNamespace, gatewayUrl },
      ...defined({ vmProxy, gatewayCa: vmCa, agentImage, volumesImage }),
    },
    settings: {
      architectures,
      ...defined({ idleSeconds, allowsSessions: options.sessions }),
      ...shared.reuseDefault,
      ...(launchesPerMinute && { launchesPerMinute }),
    },
  })
  const launchController = createLaunchController({
    ...shared,
    installation: installation.id,
    clouds: new ConnectionClouds({
      ...{ ...shared, providers, connections, launches },
      own: withOwnMachines(parts.clouds, shared),
    }),
    vmImages,
    userData: (launch) => buildUserData(launch, installation.bootstrapKey),
    garbageCollection: {
      accounts: () => [...ownAccounts, ...machinesInUse(shared.machines.store), ...accountsInUse(connections, shared)],
    },
    ...(observeSeconds && { observeSeconds }),
    ...(retentionSeconds && { settings: { retentionSeconds } }),
  })
  return { jobs: jobController, launches: launchController }
}

/** Constructs the controllers of all other kinds, and of the sealing keys that credentials are sealed under. */
function otherControllers(
  shared: Shared,
  { providers, verification = {}, retirement }: OperatorParts,
  { webhooks, prices }: { webhooks: WebhookControl; prices: PriceRefresher | undefined },
) {
  const reporting = { ...shared, recorder: reportingToWebhooks(shared, webhooks.deliveries) }
  const reservedNamespaces = [shared.systemNamespace, IDENTITIES_NAMESPACE]
  // An operator of one namespace can't see what other namespaces have sealed under a key.
  const seesAllSealed = shared.watchNamespace === undefined
  return [
    createStatementController(shared),
    createMachineController(shared),
    createCronJobController({ ...reporting, tenancy: shared }),
    createArrayController({ ...shared, tenancy: shared, ttlSeconds: JOB_DEFAULTS.ttlSeconds }),
    createApiKeyController(shared),
    createProjectController({ ...shared, reservedNamespaces }),
    createOrganizationController({ ...shared, reservedNamespaces }),
    createConnectionController({
      ...reporting,
      openAccount: accountOpener(providers),
      prices,
      settings: verification,
    }),
    ...(seesAllSealed ? [createRetirementController({ ...reporting, ...retirement })] : []),
  ]
}

/** Constructs the reader of clouds' prices; undefined where the options turn it off or the catalogue is fixed. */
function priceRefresher(
  shared: Shared,
  { priceRefreshHours: list = 0, spotPriceRefreshHours: market = 0 }: Options,
  { offers, providers, prices }: OperatorParts,
  watches: CatalogueWatches | undefined,
): PriceRefresher | undefined {
  if (!(offers instanceof LiveCatalogue) || watches === undefined || (list === 0 && market === 0)) return undefined
  return new PriceRefresher({
    ...shared,
    providers,
    connections: shared.connections.store,
    sources: shared,
    stored: watches.prices,
    list: offers.list,
    hours: { list, market },
    ...prices,
  })
}

/** Constructs the guard that keeps the operator of a copied cluster from acting. */
function copyGuard(
  shared: Shared,
  { gatewayUrl }: Options,
  { copyCheckSeconds: intervalSeconds }: OperatorParts,
  { installation, elector }: { installation: Installation; elector: LeaderElector },
): CopyGuard {
  const launches = shared.launches.store
  return new CopyGuard({
    ...shared,
    installation,
    gatewayUrl,
    launchedGateways: () => launches.list().flatMap((launch) => (isOver(launch) ? [] : [launch.spec.gatewayUrl])),
    elector,
    // Gateways are asked by the machine's clock, in tests too.
    clock: systemClock,
    ...defined({ intervalSeconds }),
  })
}

/** Loops that have metrics. */
interface Measured {
  guard: CopyGuard
  capWatcher: CapWatcher
  webhooks: WebhookControl
  prices: PriceRefresher | undefined
  isLeading: () => boolean
  maxMonthlyUsd: number | undefined
}

function measureLoops(
  metrics: Registry,
  shared: Shared,
  { guard, capWatcher, webhooks, prices, isLeading, maxMonthlyUsd }: Measured,
): void {
  measureLeadership(metrics, "berth-operator", isLeading)
  measureCopy(metrics, () => guard.fault() !== undefined)
  measureJobs(metrics, { ...shared, isLeading })
  measureCaps(metrics, { amounts: () => capWatcher.amounts(), maxMonthlyUsd })
  measureWebhooks(metrics, { ...webhooks, isLeading })
  if (prices !== undefined) measurePrices(metrics, { ages: () => prices.ages(), isLeading })
}

function healthOf(manager: Manager, guard: CopyGuard): Health {
  const health = new Health()
  health.addReadyCheck("caches", () => manager.readiness().reasons.join("; ") || undefined)
  health.addReadyCheck("copy", () => guard.fault())
  return health
}
