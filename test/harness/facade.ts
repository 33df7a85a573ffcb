import { randomBytes } from "node:crypto"
import { mkdtemp, rm } from "node:fs/promises"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import type { KubeConfig } from "@kubernetes/client-node"
import { type Express, Router } from "express"
import { Agent, fetch, type RequestInit, type Response } from "undici"
import { afterAll, beforeAll, expect } from "vitest"
import { installBase } from "../../dev/base.ts"
import { createFacade, type FacadeSettings } from "../../src/api/app.ts"
import { TOO_MANY_READS } from "../../src/api/authentication.ts"
import { CACHE_OPTIONS } from "../../src/api/caches.ts"
import { UNDECLARED } from "../../src/api/http/mount.ts"
import type { ProblemDocument } from "../../src/api/http/problem.ts"
import { createHttpServer, type ServerLimits } from "../../src/api/http/server.ts"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import type { Discoverer } from "../../src/api/resources/discovery/schema.ts"
import { removeLogsOfDeletedJobs } from "../../src/api/resources/jobs/logs.ts"
import type { JobCreated } from "../../src/api/resources/jobs/schema.ts"
import { FileUploadStore } from "../../src/api/uploads/file-store.ts"
import { UPLOADS_FOLDER } from "../../src/api/uploads/store.ts"
import type { ApiKey, Role, StoredApiKey } from "../../src/core/apis/apikey.ts"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { Job, JobStatus, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import type { StoredStatement } from "../../src/core/apis/statement.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import type { CodeExchange } from "../../src/core/identity/code-exchange.ts"
import type { IdentityIssuer } from "../../src/core/identity/identity-tokens.ts"
import type { TokenVerifier } from "../../src/core/identity/oidc.ts"
import type { CallerClient } from "../../src/core/identity/principal.ts"
import { capsIn } from "../../src/core/identity/projects.ts"
import { ensureSealingKeys, readSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { nextTurn } from "../../src/core/kube/flow.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import type { ObjectRef } from "../../src/core/kube/resource.ts"
import { publicFetch } from "../../src/core/outbound/public-fetch.ts"
import type { JobRecord } from "../../src/core/records/job.ts"
import { API_KEYS, JOBS, PROJECTS } from "../../src/core/resources.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { Health } from "../../src/core/telemetry/health.ts"
import { measureClient } from "../../src/core/telemetry/kube.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { createMetrics } from "../../src/core/telemetry/metrics.ts"
import { LAUNCH_CACHE, STATEMENT_CACHE } from "../../src/market/caches.ts"
import { buildOffers } from "../../src/market/catalogue/file.ts"
import { LiveCatalogue } from "../../src/market/catalogue/live.ts"
import type { Offers } from "../../src/market/catalogue/offers.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { LaunchLedger } from "../../src/market/placement/ledger.ts"
import { cappedLevels, type LaunchAccounts } from "../../src/market/placement/market.ts"
import { jobPlanner } from "../../src/market/placement/place.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { confirmedProject } from "./confirmed-project.ts"
import { eventually } from "./eventually.ts"
import { clientOf, type KeyController, startKeyController } from "./machine-users.ts"

export const BASE_DOMAIN = "berth.test"

/** Namespace of Berth's own Secrets in manifests/base. */
export const SYSTEM_NAMESPACE = "berth-system"

/** Id of the installation that the replicas belong to. */
export const INSTALLATION_ID = "5d3c5a0e-3f36-4a3a-9d3c-0c6d0c8f2f10"

/** Timeout of what a suite needs before it starts, so that no suite waits for ever. */
export const PATIENCE_MS = 120_000

/** DNS lookup that resolves every host to this machine. */
const loopback = new Agent({
  connect: { lookup: (_host, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]) },
})

/** Settings without a limit of failed authentications, because tests exceed any limit. */
const SETTINGS = {
  baseDomain: BASE_DOMAIN,
  version: "1.2.3",
  clouds: ["aws", "gcp", "azure", "local"],
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
  const apiKeys = new Reflector<StoredApiKey>({ client, logger, ...CACHE_OPTIONS.apiKeys })
  const projects = new Reflector<StoredProject>({ client, logger, ...CACHE_OPTIONS.projects })
  const organizations = new Reflector<StoredOrganization>({ client, logger, ...CACHE_OPTIONS.organizations })
  const launchCache = { ...LAUNCH_CACHE, namespace: SYSTEM_NAMESPACE }
  const launches = new Reflector<StoredLaunch>({ client, logger, ...launchCache })
  const ofStatements = { ...STATEMENT_CACHE, namespace: SYSTEM_NAMESPACE }
  const statements = new Reflector<StoredStatement>({ client, logger, ...ofStatements })
  const reflectors = [
    jobs,
    cronJobs,
    jobArrays,
    connections,
    webhooks,
    apiKeys,
    projects,
    organizations,
    launches,
    statements,
  ]
  const loops = reflectors.map((reflector) => reflector.run(running.signal))
  await Promise.all(reflectors.map((reflector) => reflector.whenSynced(AbortSignal.timeout(PATIENCE_MS))))
  const { market = { offers: shippedOffers(), launchAccounts: { of: () => [] } } } = options
  const folder = await mkdtemp(join(tmpdir(), "berth-facade-"))
  const { logStore = new FileLogStore(folder) } = options
  const uploadStore = new FileUploadStore(join(folder, UPLOADS_FOLDER))
  removeLogsOfDeletedJobs({ client, jobs, logStore, logger })
  const gateway = Router().post("/hello", (_req, res) => void res.json({ hello: "agent" }))
  const metrics = createMetrics("facade")
  measureClient(metrics, client, running.signal)
  const caps = capsIn({ projects: projects.store, organizations: organizations.store, installation: options.caps })
  const app = createFacade({
    client,
    caches: { jobs, cronJobs, jobArrays, connections, webhooks, apiKeys, projects, organizations },
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
    sealer: new Sealer(
      new KeyringEncryption(() => readSealingKeys(client, options.sealingNamespace ?? SYSTEM_NAMESPACE)),
    ),
    gateway,
    health: new Health(),
    metrics,
    installation: () => INSTALLATION_ID,
    tokens: options.tokens,
    identity: options.identity,
    consoleFolder: options.consoleFolder,
    codeExchange: options.codeExchange,
    catalogue: () => market.offers.current(),
    plan: jobPlanner({
      ...market,
      jobs,
      launches,
      statements,
      clock: systemClock,
      nextTurn,
    }),
    sending: { send: publicFetch(RECEIVERS), privateTargets: RECEIVERS, clock: systemClock, version: "test" },
    discover: options.discover ?? (async () => ({ found: [], failures: [] })),
    settings: { ...SETTINGS, ...options.settings },
    logger,
    clock: systemClock,
    shutdown: shutdown.signal,
  })
  const server = createHttpServer(app, options.limits)
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const close = async (): Promise<void> => {
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

let shipped: Offers | undefined

/** Returns the shipped price list. Reads the file once, when a test first needs it. */
export function shippedOffers(): Offers {
  shipped ??= new LiveCatalogue(buildOffers(readPriceList()))
  return shipped
}

/** Returns a client's methods as an object whose parts a test may replace. */
export function plainClient(client: KubeClient): CallerClient {
  return {
    get: (resource, ref, options) => client.get(resource, ref, options),
    list: (resource, options) => client.list(resource, options),
    create: (resource, object, options) => client.create(resource, object, options),
    patch: (resource, ref, patch, options) => client.patch(resource, ref, patch, options),
    replace: (resource, object, options) => client.replace(resource, object, options),
    delete: (resource, ref, options) => client.delete(resource, ref, options),
  }
}

/** A project with a namespace of its own and a key of each role. */
export interface Fixture {
  readonly client: KubeClient
  readonly namespace: string
  /** Name of the project, and of its organization. */
  readonly project: string
  readonly organization: string
  readonly keys: Record<Role, string>
}

/**
 * Creates a project, and what every installation has, before a suite, and removes the project after it. An ApiKey
 * controller serves its keys meanwhile.
 */
export function testFixture(prefix: string): Fixture {
  const namespace = testNamespace(prefix)
  const project = `p-${randomBytes(4).toString("hex")}`
  const keys = { admin: "", developer: "", viewer: "" }
  const fixture = { client: new KubeClient(kubeConfig()), namespace, project, organization: `org-of-${project}`, keys }
  let keyController: KeyController
  beforeAll(async () => {
    await installBase(fixture.client, AbortSignal.timeout(PATIENCE_MS))
    await ensureSealingKeys(fixture.client, SYSTEM_NAMESPACE)
    await makeProject(fixture.client, project, namespace)
    keyController = await startKeyController(namespace)
    tendedNamespaces.add(namespace)
    for (const role of ["admin", "developer", "viewer"] as const)
      keys[role] = await makeKey(fixture.client, namespace, role)
  })
  afterAll(async () => {
    await ifFound(fixture.client.delete(PROJECTS, { name: project }))
    await keyController.stop()
    await fixture.client.close()
  })
  return fixture
}

export function makeProject(client: KubeClient, name: string, namespace: string): Promise<void> {
  return confirmedProject(client, { name, organization: `org-of-${name}`, namespace })
}

/** Creates an ApiKey like the REST API or `berth key` does; returns its value. */
export async function makeKey(
  client: KubeClient,
  namespace: string,
  role: Role,
  more: { name?: string; expiresAt?: string } = {},
): Promise<string> {
  const { value, keyId, tokenHash } = makeApiKey()
  const { name = `key-${keyId}`, ...rest } = more
  const key: ApiKey = {
    apiVersion: API_VERSION,
    kind: "ApiKey",
    metadata: { name, namespace },
    spec: { role, keyId, tokenHash, ...rest },
  }
  await client.create(API_KEYS, key as StoredApiKey)
  if (tendedNamespaces.has(namespace)) await tendedTo(client, { namespace, name })
  return value
}

/** Namespaces of fixtures, in which a controller gives keys their machine users. */
const tendedNamespaces = new Set<string>()

/** Resolves when the ApiKey controller has handled a key's present state. */
export async function tendedTo(client: KubeClient, ref: ObjectRef): Promise<StoredApiKey> {
  return eventually(async () => {
    const key = await client.get(API_KEYS, ref)
    const reconciling = findCondition(key.status?.conditions, "Reconciling")
    expect(reconciling).toMatchObject({ status: "False", observedGeneration: key.metadata.generation })
    return key
  })
}

/** Deletes a key; resolves when the key and its machine user are deleted. */
export async function deleteKey(client: KubeClient, ref: ObjectRef): Promise<void> {
  await client.delete(API_KEYS, ref)
  await eventually(() => expect(client.get(API_KEYS, ref)).rejects.toMatchObject({ code: 404 }))
}

export interface Call {
  method?: string
  key?: string | undefined
  /** Body, sent as JSON unless it is text or bytes. */
  body?: unknown
  type?: string
  headers?: Record<string, string>
  host?: string
  signal?: AbortSignal
  redirect?: "manual"
}

/** Form of a project's address: its own host, or a path on the host without a project. */
export const ADDRESS_FORMS = ["host", "path"] as const
export type AddressForm = (typeof ADDRESS_FORMS)[number]

/** Returns host and path of a request in the form of address. */
function addressed(form: AddressForm, host: string, path: string): { host: string; path: string } {
  const suffix = `.${BASE_DOMAIN}`
  if (form === "host" || !host.endsWith(suffix)) return { host, path }
  return { host: BASE_DOMAIN, path: `/projects/${host.slice(0, -suffix.length)}${path}` }
}

/** Calls a replica like a client of the fixture's project does. */
export function caller(replica: () => Replica, fixture: Fixture, form: () => AddressForm = () => "host") {
  return (path: string, call: Call = {}): Promise<Response> => {
    const { key = fixture.keys.admin, body, type, headers, host = `${fixture.project}.${BASE_DOMAIN}` } = call
    const init: RequestInit = { dispatcher: loopback, method: call.method ?? (body === undefined ? "GET" : "POST") }
    const isSentAsIs = body === undefined || typeof body === "string" || body instanceof Uint8Array
    const text = isSentAsIs ? body : JSON.stringify(body)
    init.headers = {
      ...(key !== "" && { "X-Service-Api-Key": key }),
      ...(text !== undefined && { "Content-Type": type ?? "application/json" }),
      ...headers,
    }
    if (text !== undefined) init.body = text
    if (call.signal !== undefined) init.signal = call.signal
    if (call.redirect !== undefined) init.redirect = call.redirect
    const to = addressed(form(), host, path)
    return fetch(`http://${to.host}:${replica().port}${to.path}`, init)
  }
}

export type Caller = ReturnType<typeof caller>

/** Returns the problem document of a response, and checks the rules for problems: status, media type, request id. */
export async function problemIn(response: Response): Promise<ProblemDocument> {
  const text = await response.text()
  if (response.headers.get("content-type") !== "application/problem+json; charset=utf-8") {
    throw new Error(`${response.status} is no problem document: ${text}`)
  }
  const problem = JSON.parse(text) as ProblemDocument
  if (problem.status !== response.status) throw new Error(`the document says ${problem.status}: ${text}`)
  if (problem.instance !== response.headers.get("x-request-id")) throw new Error(`instance is not the id: ${text}`)
  return problem
}

export async function created(response: Response): Promise<JobCreated> {
  if (response.status !== 201)
    throw new Error(`the object was not created: ${response.status} ${await response.text()}`)
  return (await response.json()) as JobCreated
}

export async function recordIn(response: Response): Promise<JobRecord> {
  if (response.status !== 200) throw new Error(`no record: ${response.status} ${await response.text()}`)
  return (await response.json()) as JobRecord
}

/** Returns the jobs that the API server has. */
export async function jobsOf(fixture: Fixture): Promise<StoredJob[]> {
  return (await fixture.client.list(JOBS, { namespace: fixture.namespace })).items
}

/** Creates a Job like kubectl does. */
export async function applyJob(
  fixture: Fixture,
  name: string,
  spec: Partial<Job["spec"]> = {},
  annotations: Record<string, string> = {},
): Promise<StoredJob> {
  const job: Job = {
    apiVersion: API_VERSION,
    kind: "Job",
    metadata: { name, namespace: fixture.namespace, annotations },
    spec: { image: "alpine", ...spec },
  }
  return fixture.client.create(JOBS, job as StoredJob)
}

/** Writes a Job's status like the job controller does. */
export function setStatus(fixture: Fixture, name: string, status: JobStatus): Promise<StoredJob> {
  return fixture.client.patchStatus(JOBS, { namespace: fixture.namespace, name }, { merge: { status } })
}

/** Deletes a Job without its finalizer, which no operator removes here. */
export async function removeJob({ client }: Pick<Fixture, "client">, job: ObjectRef): Promise<void> {
  const withoutFinalizers = { merge: { metadata: { finalizers: null } } }
  await ifFound(client.patch(JOBS, job, withoutFinalizers))
  await ifFound(client.delete(JOBS, job))
}
