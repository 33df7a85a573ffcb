import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { existsSync } from "node:fs"
import type { RequestListener, Server } from "node:http"
import type { AddressInfo } from "node:net"
import { hostname } from "node:os"
import { join } from "node:path"
import { BucketFinder } from "../accounts/buckets.ts"
import { CONNECTION_CACHE } from "../accounts/caches.ts"
import { liveCredentials, type ReadCredentials } from "../accounts/credentials.ts"
import { Discoverer } from "../accounts/discoverer.ts"
import { agentImagePlatforms, ImageFinder } from "../accounts/images.ts"
import { launchAccountsOf } from "../accounts/launch-accounts.ts"
import type { CloudAccount } from "../clouds/cloud.ts"
import { accountOpener, type Providers, registriesOf, typesWithVms } from "../clouds/provider.ts"
import { imageReader } from "../clouds/registries/manifests.ts"
import { pullAccess } from "../clouds/registries/pulls.ts"
import { untilAborted } from "../core/apis/abort.ts"
import { systemClock } from "../core/apis/clock.ts"
import { defined } from "../core/apis/defined.ts"
import type { StoredJob } from "../core/apis/job.ts"
import type { Architecture } from "../core/apis/offer.ts"
import { NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import { CodeExchange } from "../core/identity/code-exchange.ts"
import type { IdentityIssuer } from "../core/identity/identity-tokens.ts"
import { type Installation, readInstallation } from "../core/identity/installation.ts"
import { IDENTITIES_NAMESPACE } from "../core/identity/machine-users.ts"
import { TokenVerifier } from "../core/identity/oidc.ts"
import { capsIn, tenantsIn } from "../core/identity/projects.ts"
import { storedKeysSealer } from "../core/identity/sealing-keys.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { nextTurn } from "../core/kube/flow.ts"
import { HEARTBEATS_CACHE, SharedHeartbeats } from "../core/kube/heartbeats.ts"
import { Reflector } from "../core/kube/reflector.ts"
import type { Fetch } from "../core/outbound/guarded-fetch.ts"
import { NO_TARGETS, publicFetch } from "../core/outbound/public-fetch.ts"
import { packageFile, packageVersion } from "../core/package.ts"
import { Health } from "../core/telemetry/health.ts"
import { answerObserver } from "../core/telemetry/http.ts"
import { measureCaches, measureClient } from "../core/telemetry/kube.ts"
import type { Logger } from "../core/telemetry/logger.ts"
import { createMetrics, type Registry } from "../core/telemetry/metrics.ts"
import { type Running, serveOperations } from "../core/telemetry/program.ts"
import type { SendOptions } from "../core/webhooks/send.ts"
import { LAUNCH_CACHE, STATEMENT_CACHE } from "../market/caches.ts"
import type { Offers } from "../market/catalogue/offers.ts"
import { catalogueWatches } from "../market/catalogue/watch.ts"
import { LaunchLedger } from "../market/placement/ledger.ts"
import { cappedLevels } from "../market/placement/market.ts"
import { jobPlanner, type Planner } from "../market/placement/place.ts"
import { JOB_DEFAULTS } from "../market/placement/settings.ts"
import type { FacadeOptions, KubeOptions } from "../options.ts"
import { createFacade, type FacadeDependencies, type FacadeSettings } from "./app.ts"
import { CACHE_OPTIONS } from "./caches.ts"
import { AwaitedGateway } from "./gateway/awaited.ts"
import { type BucketProvider, connectedBuckets } from "./gateway/buckets.ts"
import type { ConnectionsReader } from "./gateway/candidates.ts"
import { HeartbeatWriter } from "./gateway/heartbeats.ts"
import { kubeLaunches } from "./gateway/launches.ts"
import { leaderReader } from "./gateway/owner.ts"
import { connectedRegistries, type RegistryProvider } from "./gateway/registries.ts"
import { REPORT_ROUTE, withReports } from "./gateway/reports.ts"
import { kubeSecretEnv, secretChecker } from "./gateway/secrets.ts"
import { createHttpServer } from "./http/server.ts"
import { DEFAULT_SCOPES } from "./installation-document.ts"
import { FileLogStore } from "./logs/file-store.ts"
import type { JobRef, LogStore } from "./logs/store.ts"
import { type LogRetentionOptions, removeLogsOfDeletedJobs, removeOrphanedLogs } from "./resources/jobs/logs.ts"
import { keepRemovingUploads } from "./resources/uploads/retention.ts"
import { FileUploadStore } from "./uploads/file-store.ts"
import { UPLOADS_FOLDER, type UploadStore } from "./uploads/store.ts"

/** Parts that differ between an installation, the stack on one machine, and tests. */
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
  /** Issuer of identity tokens for clouds, the operator's. Absent: every connection needs a secret. */
  identity?: IdentityIssuer
  /** Folder of the built web console. Default: the one in a bundle. */
  consoleFolder?: string
  logger: Logger
}

/** Options that decide how the façade works. Those with a default may be absent in tests and in dev/. */
type Options = Partial<FacadeOptions> & Pick<FacadeOptions, "systemNamespace" | "host" | "port" | "baseDomain">

/** Time that requests under way get when the façade stops, seconds: everything ends within ten. */
export const DRAIN_SECONDS = 7

/**
 * Starts the REST API and the gateway. Resolves when it listens. `/readyz` says when its caches are filled and the
 * operator has made the installation.
 */
export async function startFacade(
  options: Options,
  parts: FacadeParts,
  stop: AbortSignal,
): Promise<Running & { url: string }> {
  const { systemNamespace, issuer } = options
  const { client, clouds, providers, offers, logger } = parts
  const ending = new AbortController()
  const { launches, statements, heartbeats, ...caches } = facadeCaches({ client, logger }, options)
  const heartbeatTimes = new SharedHeartbeats(heartbeats, systemClock)
  const kept = await storesOf(options, logger)
  const sealer = storedKeysSealer(client, systemNamespace)
  const identityIssuer = parts.identity?.issuer
  const credentialsOf = liveCredentials(client, { projects: caches.projects, sealer, identityIssuer })
  const writer = heartbeatWriter(options, parts, { launches, heartbeats, heartbeatTimes })
  const money = moneyOf(options, { ...caches, launches, statements })
  const ofGateway = { ...caches, launches, credentialsOf, ...kept, writer }
  const { gateway, installation } = agentGateway(options, parts, ofGateway)
  const metrics = createMetrics("facade")
  const health = new Health()
  health.addReadyCheck("launches", () => (launches.synced ? undefined : "not read yet"))
  health.addReadyCheck("installation", () => gateway.fault())
  const finding = { openAccount: accountOpener(providers), credentialsOf, clock: systemClock, logger }
  const stores = { launches: launches.store, statements: statements.store }
  const app = createFacade({
    client,
    ...{ caches, ...stores, ...money, sending: sendingOf(options) },
    heartbeatTimes,
    ...kept,
    sealer,
    gateway: gateway.handle,
    health,
    metrics,
    tokens: issuer && new TokenVerifier({ issuers: [issuer], clock: systemClock }),
    identity: parts.identity,
    catalogue: () => offers.current(),
    installation,
    plan: planner(options, parts, { ...caches, launches, statements, credentialsOf, ...money }),
    discover: discovererOf(finding),
    consoleFolder: consoleFolderOf(options, parts),
    codeExchange: codeExchangeOf(options),
    settings: { ...options, clouds, version: packageVersion(), signIn: signInOf(options) },
    logger,
    clock: systemClock,
    shutdown: stop,
  })
  measureClient(metrics, client, ending.signal)
  const internal = [launches, statements, heartbeats]
  measureCaches(metrics, [...Object.values(caches), ...internal])
  const operations = await serveOperations(options, health, metrics)
  const server = await listening(serverOf(app, gateway, metrics), options)
  const watches = catalogueWatches(offers, { client, systemNamespace, logger })
  const reflectors = [...Object.values(caches), ...internal, ...Object.values(watches ?? {})].map((reflector) =>
    reflector.run(ending.signal),
  )
  const removing = keepRemovingUploads({ ...parts, caches, store: kept.uploadStore, clock: systemClock }, ending.signal)
  const loops = [gateway.run(ending.signal), writer.run(ending.signal), removing, ...reflectors]
  const endRetention = pruneLogs({ client, jobs: caches.jobs, logger, ...kept }, ending.signal)
  const ended = untilAborted(stop).then(async () => {
    health.drain()
    endRetention()
    await closed(server)
    ending.abort()
    await Promise.all(loops)
    await operations?.close()
  })
  return { url: urlOf(server), metricsUrl: operations?.url, ended }
}

function discovererOf(options: ConstructorParameters<typeof Discoverer>[0]): FacadeDependencies["discover"] {
  const discoverer = new Discoverer(options)
  return (sort, connections) => discoverer.discover(sort, connections)
}

/** Returns the folder of the console; undefined if the options disable it, or if this is a source tree without a build. */
function consoleFolderOf({ console: isServed = true }: Options, { consoleFolder, logger }: FacadeParts) {
  if (!isServed) return undefined
  const folder = consoleFolder ?? packageFile("console")
  if (existsSync(folder)) return folder
  logger.warn({ folder }, "the web console is not built, so it is not served: use dist/ of npm run build, or npm start")
  return undefined
}

/** Constructs the sender of test messages, with the operator's own limits. */
function sendingOf({ privateReceivers = NO_TARGETS }: Options): SendOptions {
  const send = publicFetch(privateReceivers)
  return { send, privateTargets: privateReceivers, clock: systemClock, version: packageVersion() }
}

function signInOf({ issuer, oidcClientId: clientId, consoleClient }: Options): FacadeSettings["signIn"] {
  if (issuer === undefined || clientId === undefined) return undefined
  const { issuer: url, audience, consoleAudience = audience } = issuer
  const { clientId: ofConsole = clientId, scopes = DEFAULT_SCOPES } = consoleClient ?? {}
  return { issuer: url, audience, clientId, console: { clientId: ofConsole, audience: consoleAudience, scopes } }
}

/** Returns the exchange of codes by the façade; undefined if browsers ask the issuer. */
function codeExchangeOf(options: Options): CodeExchange | undefined {
  const { issuer, console: client } = signInOf(options) ?? {}
  const { exchange, secretFile } = options.consoleClient ?? {}
  if (issuer === undefined || client === undefined || exchange !== "facade") return undefined
  return new CodeExchange({ issuer, clientId: client.clientId, secretFile, clock: systemClock })
}

/** Constructs the caps that projects are under, and the spending under them. */
function moneyOf({ caps: installation }: Options, caches: Omit<ReturnType<typeof facadeCaches>, "heartbeats">) {
  const { projects, organizations, ...sources } = caches
  const caps = capsIn({ projects: projects.store, organizations: organizations.store, installation })
  const ledger = new LaunchLedger(sources.launches.store, systemClock)
  const spending = (namespace: string) =>
    cappedLevels(namespace, { ...sources, caps, clock: systemClock }, ledger, JOB_DEFAULTS)
  return { caps, spending }
}

/** Constructs the writer of the heartbeats that this replica hears. */
function heartbeatWriter(
  { systemNamespace }: Options,
  { client, logger }: FacadeParts,
  { launches, heartbeats, heartbeatTimes: times }: HeartbeatSources,
): HeartbeatWriter {
  return new HeartbeatWriter({
    client,
    namespace: IDENTITIES_NAMESPACE,
    written: heartbeats.store,
    times,
    launches: { get: (name) => launches.store.get({ namespace: systemNamespace, name }) },
    holder: `${hostname()}-${randomUUID()}`,
    clock: systemClock,
    logger,
  })
}

type HeartbeatSources = Pick<ReturnType<typeof facadeCaches>, "launches" | "heartbeats"> & {
  heartbeatTimes: SharedHeartbeats
}

/**
 * Constructs the gateway that agents talk to. It answers 503 until there is an installation, whose id is returned by
 * `installation` from then on.
 */
function agentGateway(
  { systemNamespace, workdirMibPerMinute }: Options,
  { client, providers, logger }: FacadeParts,
  { launches, connections, credentialsOf, logStore, uploadStore, writer }: GatewaySources,
): { gateway: AwaitedGateway; installation: () => string | undefined } {
  let installation: Installation | undefined
  const gateway = new AwaitedGateway({
    readInstallation: async () => {
      installation = await readInstallation(client, systemNamespace)
      return installation
    },
    isSynced: () => launches.synced,
    readLeader: leaderReader(client, systemNamespace),
    launches: kubeLaunches(client, launches.store, systemNamespace),
    secretEnv: kubeSecretEnv(client),
    ...openedByConnections(connectionsReader(client, connections), providers, credentialsOf),
    logs: logStore,
    uploads: uploadStore,
    ...defined({ workdirMibPerMinute }),
    heartbeats: writer,
    clock: systemClock,
    logger,
  })
  return { gateway, installation: () => installation?.id }
}

/** Constructs the façade's caches. */
function facadeCaches(
  base: { client: KubeClient; logger: Logger },
  { systemNamespace, watchNamespace: namespace }: Pick<KubeOptions, "systemNamespace" | "watchNamespace">,
) {
  const launches = { ...LAUNCH_CACHE, namespace: systemNamespace }
  return {
    jobs: new Reflector({ ...base, ...CACHE_OPTIONS.jobs, namespace }),
    cronJobs: new Reflector({ ...base, ...CACHE_OPTIONS.cronJobs, namespace }),
    jobArrays: new Reflector({ ...base, ...CACHE_OPTIONS.jobArrays, namespace }),
    connections: new Reflector({ ...base, ...CACHE_OPTIONS.connections, namespace }),
    webhooks: new Reflector({ ...base, ...CACHE_OPTIONS.webhooks, namespace }),
    apiKeys: new Reflector({ ...base, ...CACHE_OPTIONS.apiKeys, namespace }),
    projects: new Reflector({ ...base, ...CACHE_OPTIONS.projects }),
    organizations: new Reflector({ ...base, ...CACHE_OPTIONS.organizations }),
    launches: new Reflector({ ...base, ...launches }),
    statements: new Reflector({
      ...base,
      ...STATEMENT_CACHE,
      namespace: systemNamespace,
    }),
    heartbeats: new Reflector({ ...base, ...HEARTBEATS_CACHE, namespace: IDENTITIES_NAMESPACE }),
  }
}

/** Returns the stores of logs and uploads. @throws Error when the options name no place for them */
async function storesOf(options: Options, logger: Logger): Promise<{ logStore: LogStore; uploadStore: UploadStore }> {
  const { logsDir, logsBucket: bucket, logsPrefix, logsEndpoint: endpoint, logsRegion: region } = options
  const cap = options.logCapMib === undefined ? {} : { capBytes: options.logCapMib * 1024 * 1024 }
  if (logsDir !== undefined) {
    const onRemovedForSpace = (job: JobRef): void => {
      logger.warn(
        { job },
        "the log volume is full: deleted an old log of the project with the most; enlarge the volume",
      )
    }
    return {
      logStore: new FileLogStore(logsDir, { ...cap, onRemovedForSpace }),
      uploadStore: new FileUploadStore(join(logsDir, UPLOADS_FOLDER)),
    }
  }
  if (bucket === undefined) {
    throw new Error("no place for logs: give --logs-dir (one replica) or --logs-bucket (any number of replicas)")
  }
  const { S3LogStore, s3Client } = await import("./logs/s3-store.ts")
  const { S3UploadStore } = await import("./uploads/s3-store.ts")
  const client = s3Client({ ...defined({ endpoint, region }) })
  const prefix = logsPrefix === undefined ? "" : `${logsPrefix.replace(/\/+$/, "")}/`
  return {
    logStore: new S3LogStore({
      ...cap,
      client,
      bucket,
      prefix,
      onCompactionError: (err, job) => logger.warn({ err, job }, "the small pieces of a log could not be merged yet"),
    }),
    uploadStore: new S3UploadStore({ client, bucket, prefix: `${prefix}${UPLOADS_FOLDER}/` }),
  }
}

/** Constructs what VMs get by the connections of their project: buckets, and images of private registries. */
function openedByConnections(connections: ConnectionsReader, providers: Providers, credentials: ReadCredentials) {
  const base = { connections, credentials, clock: systemClock }
  return {
    buckets: connectedBuckets({ ...base, providers: bucketProviders(providers) }),
    registries: connectedRegistries({ ...base, providers: registryProviders(providers) }),
  }
}

function connectionsReader(client: KubeClient, cache: GatewaySources["connections"]): ConnectionsReader {
  return {
    cached: (namespace) => (cache.synced ? cache.store.byIndex(NAMESPACE_INDEX, namespace) : undefined),
    live: async (namespace) => (await client.list(CONNECTION_CACHE.resource, { namespace })).items,
  }
}

/** Finds the types of connections that can open buckets for VMs. */
function bucketProviders(providers: Providers): Record<string, BucketProvider> {
  const usable = Object.entries(providers).flatMap(([type, { account, buckets: access }]) => {
    if (account === undefined || access === undefined) return []
    const find: BucketProvider["find"] = async (credentials, bucket, signal) =>
      await account(credentials).bucket?.(bucket, signal)
    return [[type, { find, access }] as const]
  })
  return Object.fromEntries(usable)
}

/** Finds the types of connections that can pull images. */
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

/** Constructs the planner of dry runs, which places jobs as the operator would. */
function planner(
  { agentImage }: Options,
  { client, offers, providers, ownAccounts, architectures, askRegistries: send, logger }: FacadeParts,
  { jobs, launches, statements, connections, projects, organizations, credentialsOf, caps }: PlannerSources,
): Planner {
  const { store } = connections
  const finding = {
    connections: (namespace: string) => store.byIndex(NAMESPACE_INDEX, namespace),
    credentialsOf,
    clock: systemClock,
    logger,
  }
  const readImage = send && imageReader({ clock: systemClock, send })
  const images = readImage && new ImageFinder({ ...finding, registriesOf: registriesOf(providers), readImage })
  return jobPlanner(
    {
      offers,
      launchAccounts: launchAccountsOf({ ownAccounts, connections: store, types: typesWithVms(providers) }),
      jobs,
      launches,
      statements,
      caps,
      tenants: tenantsIn(projects.store, organizations.store),
      clock: systemClock,
      buckets: new BucketFinder({ ...finding, openAccount: accountOpener(providers) }),
      whySecretMissing: secretChecker(client),
      nextTurn,
      ...(images && { images }),
      ...agentImagePlatforms({ agentImage, readImage, assumed: architectures, clock: systemClock, logger }),
    },
    { architectures },
  )
}

type PlannerSources = Pick<
  ReturnType<typeof facadeCaches>,
  "jobs" | "launches" | "statements" | "connections" | "projects" | "organizations"
> & {
  credentialsOf: ReadCredentials
  caps: ReturnType<typeof capsIn>
}

type GatewaySources = Pick<PlannerSources, "launches" | "connections" | "credentialsOf"> & {
  logStore: LogStore
  uploadStore: UploadStore
  writer: HeartbeatWriter
}

/** Removes the log of each deleted job, and at the start those of jobs deleted meanwhile. Returns how to end it. */
function pruneLogs(retention: LogRetentionOptions & { jobs: Reflector<StoredJob> }, ending: AbortSignal): () => void {
  const { jobs, logger } = retention
  void jobs
    .whenSynced(ending)
    .then(() => removeOrphanedLogs(retention))
    .catch((err: unknown) => ending.aborted || logger.warn({ err }, "logs of deleted jobs could not be listed"))
  return removeLogsOfDeletedJobs(retention)
}

/** Constructs the server. Reports of VMs don't pass the app. */
function serverOf(app: RequestListener, gateway: AwaitedGateway, metrics: Registry): Server {
  const onAnswer = answerObserver(metrics, { method: "POST", route: REPORT_ROUTE, status: "200" })
  return createHttpServer(withReports(app, { gateway: () => gateway.current, onAnswer }))
}

async function listening(server: Server, { port, host }: Pick<Options, "port" | "host">): Promise<Server> {
  server.listen(port, host)
  await once(server, "listening")
  return server
}

function urlOf(server: Server): string {
  const { address, port } = server.address() as AddressInfo
  return `http://${urlHost(address)}:${port}`
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
