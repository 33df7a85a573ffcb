import { randomUUID } from "node:crypto"
import { existsSync } from "node:fs"
import type { RequestListener, Server } from "node:http"
import { hostname } from "node:os"
import { CONNECTION_CACHE } from "../accounts/caches.ts"
import { liveCredentials, type ReadCredentials } from "../accounts/credentials.ts"
import { Discoverer } from "../accounts/discoverer.ts"
import { placementInputs } from "../accounts/placement.ts"
import type { CloudAccount } from "../clouds/cloud.ts"
import { accountOpener, type Providers } from "../clouds/provider.ts"
import { pullAccess } from "../clouds/registries/pulls.ts"
import { untilAborted } from "../core/apis/abort.ts"
import { systemClock } from "../core/apis/clock.ts"
import { defined } from "../core/apis/defined.ts"
import type { Architecture } from "../core/apis/offer.ts"
import { NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import { CodeExchange } from "../core/identity/code-exchange.ts"
import type { IdentityIssuer } from "../core/identity/identity-tokens.ts"
import { type Installation, readInstallation } from "../core/identity/installation.ts"
import { IDENTITIES_NAMESPACE } from "../core/identity/machine-users.ts"
import { TokenVerifier, WorkloadVerifier } from "../core/identity/oidc.ts"
import { storedKeysSealer } from "../core/identity/sealing-keys.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { nextTurn } from "../core/kube/flow.ts"
import { SharedHeartbeats } from "../core/kube/heartbeats.ts"
import { joinCommandsOf } from "../core/machines/commands.ts"
import type { Fetch } from "../core/outbound/guarded-fetch.ts"
import { NO_TARGETS, publicFetch } from "../core/outbound/public-fetch.ts"
import { packageFile, packageVersion } from "../core/package.ts"
import { limitThatForbids, PROJECT_LIMITS } from "../core/quota/project-limits.ts"
import { Health } from "../core/telemetry/health.ts"
import { answerObserver } from "../core/telemetry/http.ts"
import { measureCaches, measureClient } from "../core/telemetry/kube.ts"
import type { Logger } from "../core/telemetry/logger.ts"
import { createMetrics, type Registry } from "../core/telemetry/metrics.ts"
import { type Running, serveOperations } from "../core/telemetry/program.ts"
import type { SendOptions } from "../core/webhooks/send.ts"
import { jobAdvisor } from "../market/advice/advisor.ts"
import type { Offers } from "../market/catalogue/offers.ts"
import { catalogueWatches } from "../market/catalogue/watch.ts"
import { creationWarnings } from "../market/placement/creation-warnings.ts"
import { LaunchLedger } from "../market/placement/ledger.ts"
import type { MarketSources } from "../market/placement/market.ts"
import { cappedLevels } from "../market/placement/market.ts"
import { jobPlanner, type ObstacleTo } from "../market/placement/place.ts"
import { JOB_DEFAULTS } from "../market/placement/settings.ts"
import type { FacadeOptions } from "../options.ts"
import { createFacade, type FacadeDependencies, type FacadeSettings } from "./app.ts"
import { facadeCaches, jobsInLine } from "./caches.ts"
import { AwaitedGateway } from "./gateway/awaited.ts"
import { type BucketProvider, connectedBuckets } from "./gateway/buckets.ts"
import type { ConnectionsReader } from "./gateway/candidates.ts"
import { HeartbeatWriter } from "./gateway/heartbeats.ts"
import { kubeLaunches } from "./gateway/launches.ts"
import { kubeMachines } from "./gateway/machines.ts"
import { leaderReader } from "./gateway/owner.ts"
import { connectedRegistries, type RegistryProvider } from "./gateway/registries.ts"
import { REPORT_ROUTE, withReports } from "./gateway/reports.ts"
import { kubeSecretEnv, secretChecker } from "./gateway/secrets.ts"
import { createHttpServer, drain, listen } from "./http/server.ts"
import { DEFAULT_SCOPES } from "./installation-document.ts"
import { plannedObstacle } from "./order.ts"
import { pruneLogs } from "./resources/jobs/logs.ts"
import type { JoinFacts } from "./resources/machines/machines.ts"
import { keepRemovingUploads } from "./resources/uploads/retention.ts"
import type { SessionHub } from "./sessions/hub.ts"
import { SessionService } from "./sessions/service.ts"
import { openStores, type Stores } from "./stores.ts"
import { UsageTails } from "./usage/tails.ts"

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
  /** Returns the commands with which a host joins by a token. Default: those of an installation in a cluster. */
  joinCommands?: JoinFacts["commands"]
  /** Folder of the built web console. Default: the one in a bundle. */
  consoleFolder?: string
  logger: Logger
}

/** Options that decide how the façade works. Those with a default may be absent in tests and in dev/. */
type Options = Partial<FacadeOptions> & Pick<FacadeOptions, "systemNamespace" | "host" | "port" | "baseDomain">

type Caches = ReturnType<typeof facadeCaches>

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
  const { systemNamespace, issuer, workloadIssuers, sessionDomain: domain } = options
  const { client, clouds, providers, offers, logger } = parts
  const clock = systemClock
  const ending = new AbortController()
  const caches = facadeCaches({ client, logger }, options)
  const { launches, statements, heartbeats, sessions: sessionsCache, ...objects } = caches
  const stores = await openStores(options, logger)
  const sealer = storedKeysSealer(client, systemNamespace)
  const credentialsOf = liveCredentials(client, { ...caches, sealer, identityIssuer: parts.identity?.issuer })
  const placement = placementInputs({ ...options, ...parts, ...caches, credentialsOf })
  const heartbeatTimes = new SharedHeartbeats(heartbeats, clock)
  const writer = heartbeatWriter(options, parts, { ...caches, heartbeatTimes })
  const usage = usageTails(options, parts, { ...caches, ...stores })
  const ofSessions = { client, cache: sessionsCache, domain, clock, logger }
  const sessions = new SessionService({ ...ofSessions, gateway: () => gateway.current })
  const ofAgents = { ...caches, ...stores, credentialsOf, writer, usage, sessions: sessions.hub, shutdown: stop }
  const { gateway, installation, bootstrapKey } = agentGateway(options, parts, ofAgents)
  const metrics = createMetrics("facade")
  const health = healthOf(launches, gateway)
  const app = createFacade({
    ...{ client, caches: objects, launches: launches.store, statements: statements.store, heartbeatTimes },
    ...{ ...stores, usage, sealer, gateway: gateway.handle, health, metrics },
    tokens: issuer && new TokenVerifier({ issuers: [issuer], clock }),
    workloads: workloadIssuers && new WorkloadVerifier({ issuers: workloadIssuers, clock }),
    identity: parts.identity,
    catalogue: () => offers.current(),
    installation,
    spending: spendingIn(caches, placement),
    ...planners({ ...placement, ...caches, clock }, options, parts),
    joins: { bootstrapKey, commands: parts.joinCommands ?? joinCommandsOf({ ...options, image: options.agentImage }) },
    discover: discovererOf({ openAccount: accountOpener(providers), credentialsOf, clock, logger }),
    sending: sendingOf(options),
    consoleFolder: consoleFolderOf(options, parts),
    codeExchange: codeExchangeOf(options),
    settings: { ...options, clouds, version: packageVersion(), signIn: signInOf(options) },
    ...{ sessions: sessions.hub, ports: sessions.ports, logger, clock, shutdown: stop },
  })
  measureClient(metrics, client, ending.signal)
  measureCaches(metrics, Object.values(caches))
  const operations = await serveOperations(options, health, metrics)
  const server = serverOf(app, gateway, metrics, sessions)
  sessions.listenOn(server)
  const url = await listen(server, options)
  sessions.setAddress(url, options.replicaHost)
  const watches = catalogueWatches(offers, { client, systemNamespace, logger })
  const uploads = { ...parts, caches: objects, store: stores.uploadStore, clock }
  const runners = [gateway, writer, sessions, ...Object.values(caches), ...Object.values(watches ?? {})]
  const loops = [...runners.map((each) => each.run(ending.signal)), keepRemovingUploads(uploads, ending.signal)]
  const endRetention = pruneLogs({ client, jobs: caches.jobs, logger, ...stores }, ending.signal)
  const ended = untilAborted(stop).then(async () => {
    health.drain()
    endRetention()
    sessions.close()
    await drain(server, DRAIN_SECONDS)
    ending.abort()
    await Promise.all(loops)
    await operations?.close()
  })
  return { url, metricsUrl: operations?.url, ended }
}

function healthOf(launches: Caches["launches"], gateway: AwaitedGateway): Health {
  const health = new Health()
  health.addReadyCheck("launches", () => (launches.synced ? undefined : "not read yet"))
  health.addReadyCheck("installation", () => gateway.fault())
  return health
}

/** Returns the planner of jobs, which knows the lines that jobs wait in, the advisor, and the lookup of prices. */
function planners(
  sources: MarketSources & Pick<ReturnType<typeof facadeCaches>, "jobs" | "jobArrays">,
  { defaultReuseIdleSeconds: reuseIdleSeconds, sessions: allowsSessions }: Options,
  { client, architectures }: FacadeParts,
): Pick<FacadeDependencies, "plan" | "advise" | "warningsNow"> {
  const inLine = (namespace: string) => jobsInLine(sources.jobs.store, namespace)
  const stores = { jobs: sources.jobs.store, jobArrays: sources.jobArrays.store }
  const obstacleTo: ObstacleTo = (namespace, order) => plannedObstacle(stores, namespace, order)
  const own = { whySecretMissing: secretChecker(client), nextTurn, inLine, obstacleTo }
  const settings = { architectures, ...defined({ reuseIdleSeconds, allowsSessions }) }
  return {
    plan: jobPlanner({ ...sources, ...own }, settings),
    advise: jobAdvisor({ ...sources, nextTurn }, settings),
    warningsNow: creationWarnings({ ...sources, nextTurn }, settings),
  }
}

/** Returns the lookup of the caps that a project is under, with the spending under them. */
function spendingIn(caches: Caches, { caps }: Pick<ReturnType<typeof placementInputs>, "caps">) {
  const ledger = new LaunchLedger(caches.launches.store, systemClock)
  const sources = { ...caches, caps, clock: systemClock }
  return (namespace: string) => cappedLevels(namespace, sources, ledger, JOB_DEFAULTS)
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

type HeartbeatSources = Pick<Caches, "launches" | "heartbeats"> & { heartbeatTimes: SharedHeartbeats }

/** Constructs the memory of what runs use. */
function usageTails(
  { systemNamespace: namespace }: Options,
  { logger }: FacadeParts,
  { launches, usageStore: store }: Pick<Caches, "launches"> & Pick<Stores, "usageStore">,
): UsageTails {
  const get = (name: string) => launches.store.get({ namespace, name })
  return new UsageTails({ store, launches: { get }, clock: systemClock, logger })
}

/**
 * Constructs the gateway that agents talk to. It answers 503 until there is an installation, whose id is returned by
 * `installation` from then on.
 */
function agentGateway(
  { systemNamespace, workdirMibPerMinute, projectLimits }: Options,
  { client, providers, logger }: FacadeParts,
  {
    launches,
    machines,
    connections,
    credentialsOf,
    logStore,
    uploadStore,
    writer,
    usage,
    sessions,
    shutdown,
  }: GatewaySources,
): { gateway: AwaitedGateway; installation: () => string | undefined; bootstrapKey: () => Uint8Array | undefined } {
  let installation: Installation | undefined
  const gateway = new AwaitedGateway({
    readInstallation: async () => {
      installation = await readInstallation(client, systemNamespace)
      return installation
    },
    isSynced: () => launches.synced && machines.synced,
    readLeader: leaderReader(client, systemNamespace),
    launches: kubeLaunches(client, launches.store, systemNamespace),
    machines: kubeMachines(client, machines.store),
    whyForbidden: limitThatForbids({ ...PROJECT_LIMITS, ...projectLimits }, "machines")?.message,
    secretEnv: kubeSecretEnv(client),
    ...openedByConnections(connectionsReader(client, connections), providers, credentialsOf),
    logs: logStore,
    uploads: uploadStore,
    ...defined({ workdirMibPerMinute }),
    heartbeats: writer,
    usage,
    ...(sessions !== undefined && { sessionsOf: (launch) => sessions.idsOf(launch) }),
    shutdown,
    clock: systemClock,
    logger,
  })
  return { gateway, installation: () => installation?.id, bootstrapKey: () => installation?.bootstrapKey }
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

type GatewaySources = Pick<Caches, "launches" | "machines" | "connections"> &
  Stores & {
    credentialsOf: ReadCredentials
    writer: HeartbeatWriter
    usage: UsageTails
    shutdown: AbortSignal
    sessions: SessionHub | undefined
  }

/** Constructs the server. Reports of VMs don't pass the app. */
function serverOf(app: RequestListener, gateway: AwaitedGateway, metrics: Registry, sessions: SessionService): Server {
  const onAnswer = answerObserver(metrics, { method: "POST", route: REPORT_ROUTE, status: "200" })
  return createHttpServer(sessions.apart(withReports(app, { gateway: () => gateway.current, onAnswer })))
}
