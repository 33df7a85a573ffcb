import express, { type Express, type RequestHandler, Router } from "express"
import helmet from "helmet"
import type { Clock } from "../core/apis/clock.ts"
import { CreationTimes } from "../core/apis/creation-times.ts"
import type { StoredCronJob } from "../core/apis/cronjob.ts"
import { quote } from "../core/apis/field-error.ts"
import type { StoredJobArray } from "../core/apis/jobarray.ts"
import { type HeartbeatTimes, jobUidOf, type StoredLaunch } from "../core/apis/launch.ts"
import { fromMetadataName, isUuid } from "../core/apis/names.ts"
import { ARRAY_FIELDS, CONNECTION_FIELDS, CRON_JOB_FIELDS, MACHINE_FIELDS } from "../core/apis/rest-names.ts"
import type { StoredStatement } from "../core/apis/statement.ts"
import { ApiKeyAuthenticator } from "../core/identity/authenticate.ts"
import { NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import type { CodeExchange } from "../core/identity/code-exchange.ts"
import { GroupsLog } from "../core/identity/groups-log.ts"
import type { IdentityIssuer } from "../core/identity/identity-tokens.ts"
import { ACCOUNTS_USER } from "../core/identity/machine-users.ts"
import { MemberEmails } from "../core/identity/member-emails.ts"
import { Memberships, ProjectMembers } from "../core/identity/memberships.ts"
import type { TokenVerifier, WorkloadVerifier } from "../core/identity/oidc.ts"
import { impersonating, impersonatingUser, type Principal } from "../core/identity/principal.ts"
import { endingIn, ProjectDirectory, personIn } from "../core/identity/projects.ts"
import type { KubeClient } from "../core/kube/client.ts"
import type { Store } from "../core/kube/store.ts"
import { holderOf } from "../core/machines/machine.ts"
import {
  type LimitReached,
  limitForJob,
  limitForObject,
  limitThatForbids,
  PROJECT_LIMITS,
  type ProjectLimits,
} from "../core/quota/project-limits.ts"
import { COUNTED_KINDS, type CountedKind, Usage } from "../core/quota/usage.ts"
import { costFields } from "../core/records/cost.ts"
import { CONNECTIONS, CRON_JOBS, JOB_ARRAYS, MACHINES, WEBHOOKS } from "../core/resources.ts"
import type { Sealer } from "../core/sealing/envelope.ts"
import type { Health } from "../core/telemetry/health.ts"
import { measureRequests } from "../core/telemetry/http.ts"
import type { Logger } from "../core/telemetry/logger.ts"
import type { Registry } from "../core/telemetry/metrics.ts"
import { operationsRouter } from "../core/telemetry/operations.ts"
import type { SendOptions } from "../core/webhooks/send.ts"
import type { Advisor } from "../market/advice/advisor.ts"
import type { CappedLevel } from "../market/placement/caps.ts"
import type { CreationWarnings } from "../market/placement/creation-warnings.ts"
import { ownMachines, ownOffers, withOwnOffers } from "../market/placement/machines.ts"
import type { Planner } from "../market/placement/place.ts"
import type { Catalogue } from "../market/router/catalogue.ts"
import { PROJECT_PATH, ProjectAddresses } from "./addresses.ts"
import { AccountAuthenticator, ProjectAuthenticator } from "./authentication.ts"
import type { Caches } from "./caches.ts"
import { queuePositions } from "./caches.ts"
import { Changes } from "./changes.ts"
import { Collection, type CollectionOptions } from "./collection.ts"
import { CONSOLE_PATH } from "./console/paths.ts"
import { type ConsoleOptions, consoleRouter } from "./console/routes.ts"
import { docsRoutes } from "./docs/routes.ts"
import { openApiRoute } from "./document.ts"
import { bodyReader } from "./http/body.ts"
import { API_ROOT, type Guard, mount } from "./http/mount.ts"
import { badRequest, beingDeleted, notFound, problemHandler, projectLimit } from "./http/problem.ts"
import { Processor } from "./http/processor.ts"
import { ConcurrencyLimit, FailureLimit, PrincipalLimit } from "./http/rate-limits.ts"
import { requestLog } from "./http/request-log.ts"
import { LeaseMutex } from "./idempotency.ts"
import { identityRouter } from "./identity-documents.ts"
import { type InstallationFacts, installationRouter, type SignIn } from "./installation-document.ts"
import { llmsRouter } from "./llms-text.ts"
import type { LogStore } from "./logs/store.ts"
import { Accounts } from "./resources/accounts/accounts.ts"
import { accountRoutes } from "./resources/accounts/routes.ts"
import { adviceRoutes } from "./resources/advice/routes.ts"
import { type ArrayServices, arrayRoutes } from "./resources/arrays/routes.ts"
import { CHECK_WAIT_SECONDS, Connections } from "./resources/connections/connections.ts"
import { connectionCheckRoutes, connectionRoutes } from "./resources/connections/routes.ts"
import { type CostServices, costRoutes } from "./resources/costs/routes.ts"
import { cronJobRoutes } from "./resources/cronjobs/routes.ts"
import type { RunOptions } from "./resources/cronjobs/runs.ts"
import { Dependents } from "./resources/dependents/dependents.ts"
import { resourceRoutes } from "./resources/discovery/routes.ts"
import type { Discoverer } from "./resources/discovery/schema.ts"
import { ChangeFeed } from "./resources/events/feed.ts"
import { type EventServices, eventRoutes } from "./resources/events/routes.ts"
import { createSources } from "./resources/events/sources.ts"
import { IdleVms } from "./resources/idle/idle.ts"
import { type IdleServices, idleRoutes } from "./resources/idle/routes.ts"
import type { Origin } from "./resources/jobs/groups.ts"
import { lastHeartbeatIn } from "./resources/jobs/heartbeat.ts"
import { Jobs, Submitter } from "./resources/jobs/jobs.ts"
import { LogStreams } from "./resources/jobs/logs.ts"
import { type JobServices, jobRoutes, MOST_CANCELLATIONS } from "./resources/jobs/routes.ts"
import type { JobSubmission } from "./resources/jobs/schema.ts"
import { catalogueCheck } from "./resources/jobs/submission.ts"
import { Keys } from "./resources/keys/keys.ts"
import { keyRoutes } from "./resources/keys/routes.ts"
import { type JoinFacts, Machines } from "./resources/machines/machines.ts"
import { type MachineServices, machineRoutes } from "./resources/machines/routes.ts"
import { type OfferServices, offerRoutes } from "./resources/offers/routes.ts"
import { sessionRoutes } from "./resources/sessions/routes.ts"
import { MOST_UPLOADS, UPLOAD_SECONDS, uploadRoutes } from "./resources/uploads/routes.ts"
import { Uploads } from "./resources/uploads/uploads.ts"
import { webhookRoutes, webhookTestRoutes } from "./resources/webhooks/routes.ts"
import { Webhooks } from "./resources/webhooks/webhooks.ts"
import { type CallerLimits, whoAmIRoutes } from "./resources/whoami/routes.ts"
import type { SessionHub } from "./sessions/hub.ts"
import type { PortSites } from "./sessions/ports/sites.ts"
import type { UploadStore } from "./uploads/store.ts"
import type { UsageTails } from "./usage/tails.ts"

export interface FacadeSettings {
  /** Domain below which each project has a host name of one label. */
  baseDomain: string
  /** False: no host names a project, and projects are only at `/projects/{project}/1`. Default true. */
  projectHosts?: boolean | undefined
  /** Version of Berth that clients see. */
  version: string
  /** Sign-in of command lines. Undefined: no user can sign in. */
  signIn?: SignIn | undefined
  /** Project of hosts without a project label, such as localhost or an IP. Undefined: they have no project. */
  defaultProject?: string | undefined
  /** Clouds that a job may name: those with VMs, and local in development. */
  clouds: readonly string[]
  /** Limit per principal and replica. Default 600; 0: no limit. */
  requestsPerMinute?: number | undefined
  /** Limit of discoveries per principal and replica, separate from the one of requests. Default 30; 0: no limit. */
  discoveriesPerMinute?: number | undefined
  /** Longest wait for the operator's check of a connection. */
  checkSeconds?: number | undefined
  /** Largest number of logs, and of streams of events, that a principal follows at the same time, per replica. Default 50. */
  followersPerPrincipal?: number | undefined
  /** Longest time of an upload, seconds. */
  uploadSeconds?: number | undefined
  /** Limits of what projects may store. Default: PROJECT_LIMITS. */
  projectLimits?: Partial<ProjectLimits> | undefined
  /** Limit of failed authentications per address and replica. Default 60; 0: no limit. */
  failuresPerMinute?: number | undefined
  /** Proxies whose X-Forwarded-* headers are trusted, as in express's "trust proxy". Default: none. */
  trustProxy?: string | number | undefined
}

export interface FacadeDependencies {
  client: KubeClient
  /** Running reflectors, constructed with CACHE_OPTIONS. */
  caches: Caches
  /** Cached, with the index `jobUid`. */
  launches: Store<StoredLaunch>
  /** Statements, with the indexes of the statement controller. */
  statements: Store<StoredStatement>
  /** Returns the levels with caps that a namespace's project is under, with the spending. */
  spending: (namespace: string) => readonly CappedLevel[]
  /** Heartbeats that are not in the Launches. */
  heartbeatTimes?: HeartbeatTimes | undefined
  logStore: LogStore
  /** Store of the working directories of jobs. */
  uploadStore: UploadStore
  /** Reader of what jobs use and used. */
  usage: Pick<UsageTails, "read">
  /** Sessions into running containers. Absent: this installation allows none. */
  sessions?: SessionHub | undefined
  /** Ports of jobs that browsers reach. Absent: the installation has no domain for them. */
  ports?: PortSites | undefined
  /** Seals the credentials of connections. */
  sealer: Sealer
  /** API of the agents, mounted at /agent/v1. It reads its own bodies. */
  gateway: RequestHandler
  health: Health
  /** Registry of the requests' metrics. It is served on another port, because tenants reach this one. */
  metrics?: Registry | undefined
  /** Verifier of bearer tokens. Undefined: no user can sign in. */
  tokens?: Pick<TokenVerifier, "verify"> | undefined
  /** Verifier of tokens that stand for keys. Undefined: none does. */
  workloads?: WorkloadVerifier | undefined
  /** Issuer of identity tokens for clouds. Undefined: every connection needs a secret. */
  identity?: IdentityIssuer | undefined
  /** Returns the current offers, whose fields a job may name. */
  catalogue: () => Catalogue
  /** Sender of the messages that test webhooks. */
  sending: SendOptions
  /** Planner of dry runs. */
  plan: Planner
  /** Advisor about the resources of measured jobs. */
  advise: Advisor
  /** Looks up what the VM of a job would cost now. */
  warningsNow: CreationWarnings
  /** Returns the id of this installation of Berth; undefined while it is not known. */
  installation: () => string | undefined
  /** Facts that hosts need to join as machines. */
  joins: JoinFacts
  /** Lists the resources in the accounts of connections. */
  discover: Discoverer
  /** Folder of the built web console. Undefined: it is not served. */
  consoleFolder?: string | undefined
  /** Exchanges the codes of the console's sign-ins. Undefined: the browser asks the issuer. */
  codeExchange?: CodeExchange | undefined
  settings: FacadeSettings
  logger: Logger
  clock: Clock
  /** Signal that aborts at shutdown, which ends the streams of followed logs. */
  shutdown: AbortSignal
}

const DEFAULT_REQUESTS_PER_MINUTE = 600
const DEFAULT_DISCOVERIES_PER_MINUTE = 30
const DEFAULT_FOLLOWERS = 50
const DEFAULT_FAILURES_PER_MINUTE = 60

/** Returns the REST API as an express application. The caller listens and closes. */
export function createFacade(dependencies: FacadeDependencies): Express {
  const { caches, gateway, health, metrics, settings, logger } = dependencies
  health.addReadyCheck("caches", () => unsyncedReason(caches))
  const app = express()
  app.disable("x-powered-by").disable("etag").enable("case sensitive routing")
  app.set("trust proxy", settings.trustProxy ?? false)
  app.use(requestLog(logger))
  if (metrics !== undefined) app.use(measureRequests(metrics))
  app.use(helmet())
  app.use(operationsRouter(health))
  app.use(requireHost)
  app.use("/agent/v1", gateway)
  app.use(installationRouter(installationFacts(dependencies)))
  app.use(llmsRouter(settings))
  if (dependencies.identity !== undefined) app.use("/.well-known", identityRouter(dependencies.identity))
  const groupsLog = groupsLogOf(dependencies)
  const tokens = notingEmails(dependencies)
  const processor = new Processor()
  const noting = { ...dependencies, groupsLog, tokens: tokens && groupsLog.noting(tokens), processor }
  const addresses = new ProjectAddresses(hostDomain(settings))
  const ofProjects = projectRouter(noting, addresses)
  app.use(PROJECT_PATH, addresses.notePath, ofProjects)
  app.use(API_ROOT, ofProjects)
  app.use(API_ROOT, accountRouter(noting, addresses))
  const { consoleFolder: folder } = dependencies
  if (folder !== undefined) app.use(CONSOLE_PATH, consoleRouter({ folder, ...consoleSignIn(dependencies) }))
  // For a person who opens the address in a browser.
  const home = folder === undefined ? "/1/docs" : `${CONSOLE_PATH}/`
  app.get("/", (req, res, next) => (req.accepts(["json", "html"]) === "html" ? res.redirect(home) : next()))
  app.use((req) => {
    throw notFound(`The path ${quote(req.path)} does not exist; the API is under /1 and /projects/{project}/1.`)
  })
  app.use(problemHandler)
  return app
}

function unsyncedReason(caches: Caches): string | undefined {
  const missing = Object.entries(caches).filter(([, cache]) => !cache.synced)
  return missing.length === 0 ? undefined : `not read yet: ${missing.map(([name]) => name).join(", ")}`
}

/** Dependencies of the operations of a project. */
type ProjectDependencies = AccountDependencies & { groupsLog: GroupsLog }

/** Dependencies of the operations of accounts. */
type AccountDependencies = FacadeDependencies & { processor: Processor }

/** Returns the operations of a project. */
function projectRouter(dependencies: ProjectDependencies, addresses: ProjectAddresses): Router {
  const { client, caches, settings, clock, installation } = dependencies
  const router = Router({ caseSensitive: true })
  const guard = projectGuard(dependencies, addresses)
  const callerClient = impersonating(client)
  const jobsOf = (principal: Principal): Jobs =>
    new Jobs(callerClient(principal), caches.jobs.store, principal.project.namespace)
  const creationTimes = new CreationTimes(clock)
  const creations = new LeaseMutex({ client, clock, logger: dependencies.logger })
  const mutexes = { creations, changes: new Changes() }
  const limits = callerLimits(settings)
  const quota = { limits: limits.project, usage: new Usage(caches, clock) }
  const uploads = new Uploads({ store: dependencies.uploadStore, limits: limits.project, clock })
  const ending = endingIn(caches.projects.store, caches.organizations.store)
  const admission = (namespace: string, limit: () => LimitReached | undefined) => () =>
    requireRoom(ending(namespace), limit())
  const submitterOf = (principal: Principal): Submitter => {
    const { namespace } = principal.project
    const requireRoom = admission(namespace, () => limitForJob(quota, namespace))
    const requireUpload = ({ workdir }: Pick<JobSubmission, "workdir">) =>
      uploads.require(namespace, workdir, "/workdir")
    const own = { client: callerClient(principal), jobs: jobsOf(principal), namespace, requireRoom, requireUpload }
    return new Submitter({ ...own, creationTimes, installation, creations })
  }
  const ofJobs = jobParts(dependencies)
  const collectionOf = (principal: Principal, kind: CountedKind) => ({
    requireRoom: admission(principal.project.namespace, () => limitForObject(quota, principal.project.namespace, kind)),
    namespace: principal.project.namespace,
    reader: client,
    writer: callerClient(principal),
    mutexes,
  })
  const { cronJobsOf, arraysOf, ...lookups } = creatorsOfJobs(caches, collectionOf)
  const dependentsIn = dependentLookup(caches, { jobsOf, arraysOf })
  mount(router, jobRoutes(settings.clouds), guard, { ...ofJobs, jobsOf, ...lookups, dependentsIn, submitterOf })
  mount(router, eventRoutes, guard, eventParts(dependencies, ofJobs))
  const ofSealed = { ...dependencies, creationTimes, collectionOf }
  const connectionsOf = connectionsIn(ofSealed)
  const asUser = (name: string) => impersonatingUser(client, name)
  const ofKeys = { store: caches.apiKeys.store, asUser, creationTimes, clock }
  const keysOf = (principal: Principal): Keys => new Keys({ ...collectionOf(principal, "apiKeys"), ...ofKeys })
  mount(router, keyRoutes, guard, { keysOf, clock })
  const ofRuns = { creations, reader: client }
  const runsOf = (one: Principal): RunOptions => ({ submitter: submitterOf(one), jobs: jobsOf(one), ...ofRuns })
  mount(router, cronJobRoutes(settings.clouds), guard, { cronJobsOf, creationTimes, uploads, runsOf, ...ofJobs })
  const ofArrays = { arraysOf, jobsOf, dependentsIn, creationTimes, uploads, ...ofJobs }
  mount(router, arrayRoutes(settings.clouds), guard, ofArrays)
  mount(router, connectionRoutes, guard, { connectionsOf })
  mount(router, connectionCheckRoutes, discoveryGuard(guard, limits), { connectionsOf })
  mountWebhooks(router, guard, ofSealed)
  mount(router, machineRoutes, guard, machineParts(ofSealed, limits.project))
  mount(router, offerRoutes(settings.clouds), guard, offerParts(dependencies, ofJobs))
  mount(router, costRoutes, guard, costParts(dependencies, ofJobs))
  mount(router, adviceRoutes, guard, { jobsOf, ...lookups, advise: dependencies.advise })
  mount(router, idleRoutes, guard, idleParts(dependencies, mutexes.changes, ofJobs))
  mount(router, uploadRoutes, guard, uploadParts(settings, uploads))
  mount(router, sessionRoutes, guard, { ...ofJobs, jobsOf, hub: dependencies.sessions, ports: dependencies.ports })
  mount(router, whoAmIRoutes, guard, { limits, version: settings.version })
  mount(router, resourceRoutes, discoveryGuard(guard, limits), { connectionsOf, discover: dependencies.discover })
  openApiRoute(router, settings, addresses)
  docsRoutes(router)
  return router
}

function mountWebhooks(router: Router, guard: Guard<Principal>, parts: SealedParts): void {
  const ofWebhooks = { webhooksOf: webhooksIn(parts), privateReceivers: parts.sending.privateTargets }
  mount(router, webhookRoutes, guard, ofWebhooks)
  mount(router, webhookTestRoutes, discoveryGuard(guard, callerLimits(parts.settings)), ofWebhooks)
}

/** Returns the parts of a project's collection that all kinds have. */
type CollectionOf = (
  principal: Principal,
  kind: CountedKind,
) => Omit<CollectionOptions<never>, "noun" | "resource" | "store">

/** Returns the collections of the objects that create jobs, and the lookups of their ids. */
function creatorsOfJobs({ cronJobs, jobArrays }: Caches, collectionOf: CollectionOf) {
  const ofCronJobs = { noun: "cronjob", resource: CRON_JOBS, store: cronJobs.store, fieldNames: CRON_JOB_FIELDS }
  const ofArrays = { noun: "array", resource: JOB_ARRAYS, store: jobArrays.store, fieldNames: ARRAY_FIELDS }
  const cronJobsOf = (principal: Principal): Collection<StoredCronJob> =>
    new Collection({ ...collectionOf(principal, "cronJobs"), ...ofCronJobs })
  const arraysOf = (principal: Principal): Collection<StoredJobArray> =>
    new Collection({ ...collectionOf(principal, "jobArrays"), ...ofArrays })
  const idIn =
    (collection: (principal: Principal) => Pick<Collection<StoredCronJob | StoredJobArray>, "find">) =>
    async (principal: Principal, idOrName: string): Promise<string> =>
      isUuid(idOrName) ? idOrName.toLowerCase() : (await collection(principal).find(idOrName)).metadata.uid
  const creatorOf = (principal: Principal, { kind, uid }: Origin) =>
    (kind === "array" ? arraysOf(principal) : cronJobsOf(principal)).cached(uid)
  return { cronJobsOf, cronJobIdOf: idIn(cronJobsOf), arraysOf, arrayIdOf: idIn(arraysOf), creatorOf }
}

/** Returns the lookup of what waits for the jobs and arrays of a project. */
function dependentLookup(
  { jobs, jobArrays }: Caches,
  { jobsOf, arraysOf }: Pick<ArrayServices, "arraysOf"> & Pick<JobServices, "jobsOf">,
): JobServices["dependentsIn"] {
  const stores = { jobs: jobs.store, jobArrays: jobArrays.store }
  return (principal) => new Dependents({ stores, jobs: jobsOf(principal), arrays: arraysOf(principal) })
}

/** Parts of the services of connections and of webhooks, which seal secrets. */
type SealedParts = FacadeDependencies & {
  creationTimes: CreationTimes
  collectionOf: CollectionOf
}

function connectionsIn({ caches, sealer, identity, settings, creationTimes, collectionOf }: SealedParts) {
  const { checkSeconds = CHECK_WAIT_SECONDS } = settings
  const options = { sealer, checkSeconds, creationTimes, issuesTokens: identity !== undefined }
  return (principal: Principal): Connections => {
    const kind = {
      ...{ noun: "connection", resource: CONNECTIONS, store: caches.connections.store },
      fieldNames: CONNECTION_FIELDS,
    }
    const collection = new Collection({ ...collectionOf(principal, "connections"), ...kind })
    return new Connections({ collection, store: kind.store, project: principal.project, ...options })
  }
}

function webhooksIn({ client, caches, sealer, creationTimes, collectionOf, sending, clock }: SealedParts) {
  const options = { sealer, creationTimes, reader: client, sending, clock }
  return (principal: Principal): Webhooks => {
    const kind = { noun: "webhook", resource: WEBHOOKS, store: caches.webhooks.store }
    const collection = new Collection({ ...collectionOf(principal, "webhooks"), ...kind })
    return new Webhooks({ collection, project: principal.project, ...options })
  }
}

function machineParts(parts: SealedParts, limits: ProjectLimits): MachineServices {
  const { caches, joins, creationTimes, collectionOf, clock } = parts
  const requireAllowed = (): void => requireRoom(undefined, limitThatForbids(limits, "machines"))
  const machinesOf = (principal: Principal): Machines => {
    const kind = { noun: "machine", resource: MACHINES, store: caches.machines.store, fieldNames: MACHINE_FIELDS }
    const collection = new Collection({ ...collectionOf(principal, "machines"), ...kind })
    const { namespace } = principal.project
    return new Machines({ collection, namespace, creationTimes, joins, requireAllowed, clock })
  }
  return { machinesOf, jobOn: jobOnMachine(parts) }
}

/** Returns the lookup of the job that has a machine. Jobs of other projects are theirs alone. */
function jobOnMachine({ launches }: FacadeDependencies): MachineServices["jobOn"] {
  return (machine) => {
    const holder = holderOf(machine)
    const { namespace = "" } = machine.metadata
    if (holder?.namespace !== namespace) return undefined
    const found = launches.byIndex("unmarked", namespace).find(({ metadata }) => metadata.name === holder.name)
    return found && fromMetadataName(found.spec.job.name)
  }
}

/** Returns the guard of discoveries, which have a limit of their own. */
function discoveryGuard(guard: Guard<Principal>, { discoveriesPerMinute }: CallerLimits): Guard<Principal> {
  const { principalOf } = guard
  const limit = new PrincipalLimit({ name: "discovery", requestsPerMinute: discoveriesPerMinute, principalOf })
  return { ...guard, limit: limit.countRequest }
}

/** Returns the domain whose subdomains name projects; undefined if no host names a project. */
function hostDomain({ baseDomain, projectHosts = true }: FacadeSettings): string | undefined {
  return projectHosts ? baseDomain : undefined
}

function installationFacts({ settings, codeExchange, ports }: FacadeDependencies): InstallationFacts {
  const { version, signIn, defaultProject } = settings
  const exchangesCodes = codeExchange !== undefined
  const sessionDomain = ports?.domain
  return { version, signIn, baseDomain: hostDomain(settings), defaultProject, exchangesCodes, sessionDomain }
}

/** Returns how people sign in to the console. */
function consoleSignIn({ settings, codeExchange }: FacadeDependencies): Omit<ConsoleOptions, "folder"> {
  const { baseDomain, projectHosts = true, failuresPerMinute = DEFAULT_FAILURES_PER_MINUTE } = settings
  const facts = { baseDomain, hasProjectHosts: projectHosts, failuresPerMinute }
  return { issuer: settings.signIn?.issuer, signIn: codeExchange && { ...facts, codeExchange } }
}

function callerLimits(settings: FacadeSettings): CallerLimits {
  return {
    requestsPerMinute: settings.requestsPerMinute ?? DEFAULT_REQUESTS_PER_MINUTE,
    discoveriesPerMinute: settings.discoveriesPerMinute ?? DEFAULT_DISCOVERIES_PER_MINUTE,
    followersPerPrincipal: settings.followersPerPrincipal ?? DEFAULT_FOLLOWERS,
    project: { ...PROJECT_LIMITS, ...settings.projectLimits },
  }
}

/** Returns what the operations of jobs need for any caller. */
function jobParts(
  dependencies: FacadeDependencies,
): Omit<JobServices, "jobsOf" | "cronJobIdOf" | "arrayIdOf" | "creatorOf" | "dependentsIn" | "submitterOf"> {
  const { caches, catalogue, clock, heartbeatTimes, launches, logStore, plan, settings, shutdown, usage, warningsNow } =
    dependencies
  return {
    ...{ plan, warningsNow },
    catalogueErrorsIn: (namespace) => {
      const own = () => ownOffers(caches.machines.store.list(), namespace)
      return catalogueCheck(() => withOwnOffers(catalogue(), own()), settings.clouds)
    },
    readUsage: (job, current) => usage.read(job, current),
    logStreams: new LogStreams({ logStore, store: caches.jobs.store, launches, clock, shutdown }),
    followers: new ConcurrencyLimit(settings.followersPerPrincipal ?? DEFAULT_FOLLOWERS),
    launchesOf: ({ metadata: { uid, namespace } }) =>
      launches.byIndex("jobUid", uid).filter(({ spec }) => spec.job.namespace === namespace),
    jobNameOf: (launch) => caches.jobs.store.getByUid(jobUidOf(launch))?.metadata.name,
    cancellations: new ConcurrencyLimit(MOST_CANCELLATIONS),
    clock,
    lastHeartbeatOf: (job) => lastHeartbeatIn(job, launches, heartbeatTimes),
    queuePositionsIn: (namespace) => queuePositions(caches.jobs.store, namespace),
  }
}

function offerParts(
  { caches, launches, catalogue, clock }: FacadeDependencies,
  { catalogueErrorsIn }: Pick<JobServices, "catalogueErrorsIn">,
): OfferServices {
  const unmarked = (namespace: string) => launches.byIndex("unmarked", namespace)
  return {
    ...{ catalogue, catalogueErrorsIn },
    ownMachinesOf: (namespace) => ownMachines(namespace, caches.machines.store.list(), unmarked),
    now: () => clock.now(),
  }
}

function costParts(
  { caches, launches, statements, spending, clock }: FacadeDependencies,
  { lastHeartbeatOf }: Pick<JobServices, "lastHeartbeatOf">,
): CostServices {
  return {
    sourcesOf: (namespace) => ({
      statements: statements.byIndex("project", namespace),
      launches: launches.byIndex("unmarked", namespace),
    }),
    levelsOf: spending,
    jobsIn: (namespace) => caches.jobs.store.byIndex(NAMESPACE_INDEX, namespace),
    cronJobsIn: (namespace) => caches.cronJobs.store.byIndex(NAMESPACE_INDEX, namespace),
    costOfJob: (job) => costFields(job.status, lastHeartbeatOf(job)).accrued_cost ?? 0,
    now: () => clock.now(),
  }
}

function uploadParts({ uploadSeconds = UPLOAD_SECONDS }: FacadeSettings, uploads: Uploads) {
  return { uploads, uploading: new ConcurrencyLimit(MOST_UPLOADS), uploadSeconds }
}

function idleParts(
  { client, launches, clock }: FacadeDependencies,
  changes: Changes,
  { jobNameOf }: Pick<JobServices, "jobNameOf">,
): IdleServices {
  const own = { client, launches, changes, clock, jobNameOf }
  return { idleOf: ({ project: { namespace } }) => new IdleVms({ ...own, namespace }) }
}

function eventParts(
  { client, caches, clock, settings, shutdown }: FacadeDependencies,
  { lastHeartbeatOf }: Pick<JobServices, "lastHeartbeatOf">,
): EventServices {
  const feed = new ChangeFeed({ sources: createSources({ client, caches, lastHeartbeatOf }), clock })
  return {
    eventStreams: { feed, clock, shutdown },
    eventClients: new ConcurrencyLimit(settings.followersPerPrincipal ?? DEFAULT_FOLLOWERS),
  }
}

/** Returns the lookups of a user's roles in projects and organizations. */
function membershipsOf({ client, caches, clock }: FacadeDependencies): {
  memberships: Memberships
  projectMembers: ProjectMembers
} {
  const memberships = new Memberships({ client, organizations: caches.organizations.store, clock })
  return { memberships, projectMembers: new ProjectMembers(memberships, { client, clock }) }
}

/** Returns the verifier of tokens, which notes users' addresses in their organizations. */
function notingEmails(dependencies: FacadeDependencies): FacadeDependencies["tokens"] {
  const { tokens, caches, client, clock, logger } = dependencies
  if (tokens === undefined) return undefined
  const { memberships } = membershipsOf(dependencies)
  const organizations = caches.organizations.store
  const writer = impersonatingUser(client, ACCOUNTS_USER)
  return new MemberEmails({ client: writer, memberships, organizations, clock, logger }).noting(tokens)
}

function groupsLogOf({ caches, clock, logger }: FacadeDependencies): GroupsLog {
  const stores = [caches.organizations.store, caches.projects.store]
  const hasGroupRoles = (): boolean =>
    stores.some((store) => store.list().some(({ spec: { groups = [] } }) => groups.length > 0))
  return new GroupsLog({ hasGroupRoles, clock, logger })
}

/** @throws Problem 409 if the project is being deleted, 403 for too many objects, 429 for too many jobs or bytes */
function requireRoom(ending: string | undefined, reached: LimitReached | undefined): void {
  if (ending !== undefined) throw beingDeleted(`${sentence(ending)} New objects are rejected.`)
  if (reached === undefined) return
  const isCount = (COUNTED_KINDS as readonly string[]).includes(reached.limit)
  throw projectLimit(isCount ? 403 : 429, sentence(reached.message))
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}

function projectGuard(dependencies: ProjectDependencies, { labelOf }: ProjectAddresses): Guard<Principal> {
  const { client, caches, settings, clock, tokens, workloads, groupsLog, processor } = dependencies
  const { defaultProject } = settings
  const failures = new FailureLimit({
    perMinute: settings.failuresPerMinute ?? DEFAULT_FAILURES_PER_MINUTE,
    statuses: [401],
    failures: "requests without valid credentials",
  })
  const authenticator = new ProjectAuthenticator({
    projects: new ProjectDirectory({ client, store: caches.projects.store, defaultProject }),
    labelOf,
    apiKeys: new ApiKeyAuthenticator({ client, store: caches.apiKeys.store, clock }),
    tokens,
    workloads,
    projectMembers: membershipsOf(dependencies).projectMembers,
    personOf: (organization) => personIn(caches.organizations.store, organization),
    groupsLog,
    isSuspect: failures.areTooMany,
    processor,
  })
  const guard = withLimits(authenticator, "requests", dependencies)
  return { ...guard, authenticate: failures.counting(guard.authenticate) }
}

/** Adds the limits of requests and bodies to a guard. */
function withLimits<Caller extends { id: string }>(
  { authenticate, principalOf, isStillAuthenticated }: Omit<Guard<Caller>, "limit" | "readBody" | "countMore">,
  name: string,
  { settings }: Pick<FacadeDependencies, "settings">,
): Guard<Caller> {
  const requestsPerMinute = settings.requestsPerMinute ?? DEFAULT_REQUESTS_PER_MINUTE
  const { countRequest, countBody, countMore } = new PrincipalLimit({ name, requestsPerMinute, principalOf })
  const readBody = bodyReader({ principalOf, countBody })
  return { authenticate, limit: countRequest, readBody, countMore, principalOf, isStillAuthenticated }
}

/** Returns the operations of organizations, members and projects, for signed-in users. */
function accountRouter(dependencies: AccountDependencies, { ofHost }: ProjectAddresses): Router {
  const { client, caches, clock, tokens, processor } = dependencies
  const router = Router({ caseSensitive: true })
  const guard = withLimits(new AccountAuthenticator({ tokens, labelOf: ofHost, processor }), "accounts", dependencies)
  const accounts = new Accounts({
    client: impersonatingUser(client, ACCOUNTS_USER),
    reader: client,
    creations: new LeaseMutex({ client, clock, logger: dependencies.logger }),
    memberships: membershipsOf(dependencies).memberships,
    organizations: caches.organizations.store,
    projects: caches.projects.store,
    creationTimes: new CreationTimes(clock),
  })
  mount(router, accountRoutes, guard, { accounts })
  return router
}

/**
 * Rejects requests with no Host header or with several, because the host names the project. Node.js does not require
 * the header of HTTP/1.0, and drops all but the first of several. @throws Problem 400
 */
const requireHost: RequestHandler = (req, _res, next) => {
  const hosts = req.rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === "host")
  if (hosts.length > 1) throw badRequest(`The request has ${hosts.length} Host headers: send one.`)
  if (!req.hostname) throw badRequest("The request has no host: send it in the Host header.")
  next()
}
