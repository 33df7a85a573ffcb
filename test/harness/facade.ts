import { mkdtemp, rm } from "node:fs/promises"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import type { KubeConfig } from "@kubernetes/client-node"
import { type Express, Router } from "express"
import { expect } from "vitest"
import { createFacade, type FacadeSettings } from "../../src/api/app.ts"
import { TOO_MANY_READS } from "../../src/api/authentication.ts"
import { CACHE_OPTIONS } from "../../src/api/caches.ts"
import { UNDECLARED } from "../../src/api/http/mount.ts"
import { createHttpServer, listen, type ServerLimits } from "../../src/api/http/server.ts"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import { plannedObstacle } from "../../src/api/order.ts"
import type { Discoverer } from "../../src/api/resources/discovery/schema.ts"
import { removeLogsOfDeletedJobs } from "../../src/api/resources/jobs/logs.ts"
import { SESSIONS_CACHE } from "../../src/api/sessions/lease.ts"
import { SessionService } from "../../src/api/sessions/service.ts"
import { FileUploadStore } from "../../src/api/uploads/file-store.ts"
import { UPLOADS_FOLDER } from "../../src/api/uploads/store.ts"
import { FileObjects } from "../../src/api/usage/objects.ts"
import { USAGE_FOLDER, UsageStore } from "../../src/api/usage/store.ts"
import { UsageTails } from "../../src/api/usage/tails.ts"
import type { StoredApiKey } from "../../src/core/apis/apikey.ts"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { StoredMachine } from "../../src/core/apis/machine.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import type { StoredStatement } from "../../src/core/apis/statement.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import type { CodeExchange } from "../../src/core/identity/code-exchange.ts"
import type { IdentityIssuer } from "../../src/core/identity/identity-tokens.ts"
import { IDENTITIES_NAMESPACE } from "../../src/core/identity/machine-users.ts"
import type { TokenVerifier, WorkloadVerifier } from "../../src/core/identity/oidc.ts"
import { capsIn } from "../../src/core/identity/projects.ts"
import { readSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { nextTurn } from "../../src/core/kube/flow.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { joinCommands } from "../../src/core/machines/commands.ts"
import { publicFetch } from "../../src/core/outbound/public-fetch.ts"
import { LAUNCHES, STATEMENTS } from "../../src/core/resources.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { Health } from "../../src/core/telemetry/health.ts"
import { measureClient } from "../../src/core/telemetry/kube.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { createMetrics } from "../../src/core/telemetry/metrics.ts"
import { jobAdvisor } from "../../src/market/advice/advisor.ts"
import { LAUNCH_CACHE, STATEMENT_CACHE } from "../../src/market/caches.ts"
import { buildOffers } from "../../src/market/catalogue/file.ts"
import { LiveCatalogue } from "../../src/market/catalogue/live.ts"
import type { Offers } from "../../src/market/catalogue/offers.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { creationWarnings } from "../../src/market/placement/creation-warnings.ts"
import { LaunchLedger } from "../../src/market/placement/ledger.ts"
import { ownAccount } from "../../src/market/placement/machines.ts"
import { cappedLevels, type LaunchAccounts } from "../../src/market/placement/market.ts"
import { jobPlanner } from "../../src/market/placement/place.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { BASE_DOMAIN } from "./caller.ts"
import { PATIENCE_MS } from "./eventually.ts"
import { BOOTSTRAP_KEY } from "./gateway.ts"
import { clientOf } from "./machine-users.ts"
import { type ShowingCache, showWritesIn } from "./shown-writes.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/** Id of the installation that the replicas belong to. */
export const INSTALLATION_ID = "5d3c5a0e-3f36-4a3a-9d3c-0c6d0c8f2f10"

/** Settings without a limit of failed authentications, because tests exceed any limit. */
const SETTINGS = {
  baseDomain: BASE_DOMAIN,
  version: "1.2.3",
  clouds: ["aws", "gcp", "azure", "nebius", "own", "local"],
  failuresPerMinute: 0,
}

/** Receivers of webhooks that tests may use. */
const RECEIVERS = { hosts: [], networks: ["127.0.0.0/8"] }

/** One façade replica that listens, with real parts behind it. */
export interface Replica {
  app: Express
  port: number
  logStore: FileLogStore
  /** Folder of logs and uploads. */
  folder: string
  uploadStore: FileUploadStore
  usageStore: UsageStore
  usage: UsageTails
  jobs: Reflector<StoredJob>
  cronJobs: Reflector<StoredCronJob>
  jobArrays: Reflector<StoredJobArray>
  apiKeys: Reflector<StoredApiKey>
  /** All log lines of the replica. */
  logged: () => string
  /** All metrics of the replica, in the exposition format. */
  measured: () => Promise<string>
  shutdown: AbortController
  /** Number of connected clients. */
  connections: () => Promise<number>
  close: () => Promise<void>
}

export interface ReplicaOptions {
  settings?: Partial<FacadeSettings>
  /** Time limits for clients; default: the server's own. */
  limits?: Partial<ServerLimits>
  /** Client of the API server; default: a direct one with the rights that manifests/base gives the façade. */
  kubeConfig?: KubeConfig
  /** Namespace of the sealing keys; default: their usual one. */
  sealingNamespace?: string
  /** Verifier of tokens; default: none, so every token is rejected. */
  tokens?: TokenVerifier
  /** Verifier of tokens that stand for keys; default: none. */
  workloads?: WorkloadVerifier
  /** Offers, and the accounts that pay for them; default: the shipped price list, and no accounts. */
  market?: { offers: Offers; launchAccounts: LaunchAccounts }
  /** Discovery of resources in accounts; default: finds nothing. */
  discover?: Discoverer
  /** Folder of logs; default: a new one. */
  logStore?: FileLogStore
  /** Issuer of identity tokens; default: none. */
  identity?: IdentityIssuer
  /** Caps of the installation; default: none. */
  caps?: SpendCaps
  /** Folder of the built web console; default: it is not served. */
  consoleFolder?: string
  /** Exchange of the codes of sign-ins; default: the browser asks the issuer. */
  codeExchange?: CodeExchange
}

export async function startReplica(options: ReplicaOptions = {}): Promise<Replica> {
  const client = options.kubeConfig === undefined ? await clientOf("berth-facade") : new KubeClient(options.kubeConfig)
  const lines: string[] = []
  const logger = createLogger({
    level: "trace",
    name: "facade",
    destination: { write: (line) => void lines.push(line) },
  })
  const running = new AbortController()
  const shutdown = new AbortController()
  const jobs = new Reflector<StoredJob>({ client, logger, ...CACHE_OPTIONS.jobs })
  const cronJobs = new Reflector<StoredCronJob>({ client, logger, ...CACHE_OPTIONS.cronJobs })
  const jobArrays = new Reflector<StoredJobArray>({ client, logger, ...CACHE_OPTIONS.jobArrays })
  const connections = new Reflector<StoredConnection>({ client, logger, ...CACHE_OPTIONS.connections })
  const webhooks = new Reflector<StoredWebhook>({ client, logger, ...CACHE_OPTIONS.webhooks })
  const machines = new Reflector<StoredMachine>({ client, logger, ...CACHE_OPTIONS.machines })
  const apiKeys = new Reflector<StoredApiKey>({ client, logger, ...CACHE_OPTIONS.apiKeys })
  const projects = new Reflector<StoredProject>({ client, logger, ...CACHE_OPTIONS.projects })
  const organizations = new Reflector<StoredOrganization>({ client, logger, ...CACHE_OPTIONS.organizations })
  const launchCache = { ...LAUNCH_CACHE, namespace: SYSTEM_NAMESPACE }
  const launches = new Reflector<StoredLaunch>({ client, logger, ...launchCache })
  const ofStatements = { ...STATEMENT_CACHE, namespace: SYSTEM_NAMESPACE }
  const statements = new Reflector<StoredStatement>({ client, logger, ...ofStatements })
  const sessionLeases = new Reflector({ client, logger, ...SESSIONS_CACHE, namespace: IDENTITIES_NAMESPACE })
  const sessions = new SessionService({
    ...{ client, cache: sessionLeases, clock: systemClock, logger },
    gateway: () => undefined,
  })
  const reflectors = [
    jobs,
    cronJobs,
    jobArrays,
    connections,
    webhooks,
    machines,
    apiKeys,
    projects,
    organizations,
    launches,
    statements,
  ]
  const caches: { run: Reflector["run"]; whenSynced: Reflector["whenSynced"] }[] = [...reflectors, sessionLeases]
  const loops = caches.map((cache) => cache.run(running.signal))
  await Promise.all(caches.map((cache) => cache.whenSynced(AbortSignal.timeout(PATIENCE_MS))))
  // A suite that gives its own path to the API server may cut it, so no write waits for that replica.
  const hide = options.kubeConfig === undefined ? showWritesIn(reflectors.map(showingCache)) : () => {}
  const own: LaunchAccounts = { of: (namespace) => ownAccount(machines.store.list(), namespace) }
  const { market = { offers: shippedOffers(), launchAccounts: own } } = options
  const folder = await mkdtemp(join(tmpdir(), "berth-facade-"))
  const { logStore = new FileLogStore(folder) } = options
  const uploadStore = new FileUploadStore(join(folder, UPLOADS_FOLDER))
  const usageStore = new UsageStore(new FileObjects(join(folder, USAGE_FOLDER)))
  const launchOf = (name: string) => launches.store.get({ namespace: SYSTEM_NAMESPACE, name })
  const usage = new UsageTails({ store: usageStore, launches: { get: launchOf }, clock: systemClock, logger })
  removeLogsOfDeletedJobs({ client, jobs, logStore, usageStore, logger })
  const gateway = Router().post("/hello", (_req, res) => void res.json({ hello: "agent" }))
  const metrics = createMetrics("facade")
  measureClient(metrics, client, running.signal)
  const caps = capsIn({ projects: projects.store, organizations: organizations.store, installation: options.caps })
  const app = createFacade({
    client,
    caches: { jobs, cronJobs, jobArrays, connections, webhooks, machines, apiKeys, projects, organizations },
    launches: launches.store,
    statements: statements.store,
    spending: (namespace) =>
      cappedLevels(
        namespace,
        { statements, caps, clock: systemClock },
        new LaunchLedger(launches.store, systemClock),
        JOB_DEFAULTS,
      ),
    logStore,
    uploadStore,
    usage,
    sessions: sessions.hub,
    sealer: new Sealer(
      new KeyringEncryption(() => readSealingKeys(client, options.sealingNamespace ?? SYSTEM_NAMESPACE)),
    ),
    gateway,
    health: new Health(),
    metrics,
    installation: () => INSTALLATION_ID,
    joins: {
      bootstrapKey: () => BOOTSTRAP_KEY,
      commands: (token) => joinCommands({ gatewayUrl: "https://berth.example.com", image: "berth:test", token }),
    },
    tokens: options.tokens,
    workloads: options.workloads,
    identity: options.identity,
    consoleFolder: options.consoleFolder,
    codeExchange: options.codeExchange,
    catalogue: () => market.offers.current(),
    plan: jobPlanner({
      ...market,
      ...{ jobs, launches, machines, statements, nextTurn },
      clock: systemClock,
      obstacleTo: (namespace, order) =>
        plannedObstacle({ jobs: jobs.store, jobArrays: jobArrays.store }, namespace, order),
    }),
    warningsNow: creationWarnings({ ...market, nextTurn, clock: systemClock }),
    advise: jobAdvisor({ ...market, ...{ jobs, launches, statements, nextTurn }, clock: systemClock }),
    sending: { send: publicFetch(RECEIVERS), privateTargets: RECEIVERS, clock: systemClock, version: "test" },
    discover: options.discover ?? (async () => ({ found: [], failures: [] })),
    settings: { ...SETTINGS, ...options.settings },
    logger,
    clock: systemClock,
    shutdown: shutdown.signal,
  })
  const server = createHttpServer(app, options.limits)
  sessions.listenOn(server)
  sessions.setAddress(await listen(server, { host: "127.0.0.1", port: 0 }), undefined)
  loops.push(sessions.run(running.signal))
  const close = async (): Promise<void> => {
    hide()
    sessions.close()
    shutdown.abort()
    running.abort()
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
    await Promise.all(loops)
    await client.close()
    await rm(folder, { recursive: true, force: true })
    const faults = [UNDECLARED, TOO_MANY_READS]
    expect(lines.filter((line) => faults.some((fault) => line.includes(fault)))).toEqual([])
  }
  const { port } = server.address() as AddressInfo
  return {
    app,
    port,
    logStore,
    folder,
    uploadStore,
    usageStore,
    usage,
    jobs,
    cronJobs,
    jobArrays,
    apiKeys,
    logged: () => lines.join(""),
    measured: () => metrics.metrics(),
    connections: promisify(server.getConnections.bind(server)),
    shutdown,
    close,
  }
}

function showingCache(reflector: ShowingCache["reflector"]): ShowingCache {
  const ofSystem: string[] = [LAUNCHES.plural, STATEMENTS.plural]
  const isOfSystem = ofSystem.includes(reflector.resource.plural)
  return { reflector, ...(isOfSystem && { namespace: SYSTEM_NAMESPACE }) }
}

let shipped: Offers | undefined

/** Returns the shipped price list. Reads the file once, when a test first needs it. */
export function shippedOffers(): Offers {
  shipped ??= new LiveCatalogue(buildOffers(readPriceList()))
  return shipped
}
