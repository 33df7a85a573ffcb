import express, { type Express, type RequestHandler, Router } from "express"
import helmet from "helmet"
import type { Clock } from "../apis/clock.ts"
import { CreationTimes } from "../apis/creation-times.ts"
import type { StoredCronJob } from "../apis/cronjob.ts"
import type { StoredLaunch } from "../apis/launch.ts"
import { FailureLimit, principalRateLimit } from "../http/limits.ts"
import { type Guard, mount } from "../http/mount.ts"
import { badRequest, notFound, problemHandler } from "../http/problem.ts"
import { requestLog } from "../http/request-log.ts"
import { ApiKeyAuthenticator } from "../identity/authenticate.ts"
import { ACCOUNTS_USER } from "../identity/machine-users.ts"
import type { TokenVerifier } from "../identity/oidc.ts"
import { Memberships, PeopleInProjects } from "../identity/persons.ts"
import { impersonating, impersonatingUser, type Principal } from "../identity/principal.ts"
import { ProjectDirectory } from "../identity/projects.ts"
import type { KubeClient } from "../kube/client.ts"
import type { Store } from "../kube/store.ts"
import type { LogStore } from "../logs/store.ts"
import type { Planner } from "../placement/place.ts"
import type { Catalogue } from "../router/catalogue.ts"
import type { Sealer } from "../sealing/envelope.ts"
import type { Health } from "../telemetry/health.ts"
import { measureRequests } from "../telemetry/http.ts"
import type { Logger } from "../telemetry/logger.ts"
import type { Registry } from "../telemetry/metrics.ts"
import { operationsRouter } from "../telemetry/operations.ts"
import { Accounts } from "./accounts/accounts.ts"
import { accountRoutes } from "./accounts/routes.ts"
import { AccountGatekeeper, Gatekeeper } from "./admission.ts"
import { type Caches, CONNECTIONS, CRON_JOBS } from "./caches.ts"
import { Collection } from "./collection.ts"
import { Connections } from "./connections/connections.ts"
import { connectionRoutes } from "./connections/routes.ts"
import { cronJobRoutes } from "./cronjobs/routes.ts"
import { CRON_JOB_FIELDS } from "./cronjobs/translate.ts"
import { docsRoutes } from "./docs/routes.ts"
import { openApiRoute } from "./document.ts"
import { SharedTurns } from "./idempotency.ts"
import { Jobs, Submitter } from "./jobs/jobs.ts"
import { LogStreams } from "./jobs/logs.ts"
import { jobRoutes } from "./jobs/routes.ts"
import { catalogueCheck } from "./jobs/submission.ts"
import { Keys } from "./keys/keys.ts"
import { keyRoutes } from "./keys/routes.ts"
import { resourceRoutes } from "./resources/routes.ts"
import type { Discoverer } from "./resources/schema.ts"

export interface FacadeSettings {
  /** Projects are the host names one label below it. */
  baseDomain: string
  /** Project of hosts without a project label, such as localhost or an IP; none: they have no project. */
  defaultProject?: string | undefined
  /** The clouds that a job may name: aws, gcp and azure, and local in development. */
  clouds: readonly string[]
  /** Per principal, each replica on its own. Default 600; 0: no limit. */
  requestsPerMinute?: number | undefined
  /** The same of discovery, which has a limit of its own. Default 30; 0: no limit. */
  discoveriesPerMinute?: number | undefined
  /** Failed authentications from one address, each replica on its own. Default 60; 0: no limit. */
  failuresPerMinute?: number | undefined
  /** Which proxies' X-Forwarded-* headers are believed, as express's "trust proxy" takes it. Default: none's. */
  trustProxy?: string | number | undefined
}

export interface FacadeDependencies {
  client: KubeClient
  /** Reflectors made with CACHE_OPTIONS and running. */
  caches: Caches
  /** Cached, with the index `jobUid`. */
  launches: Store<StoredLaunch>
  logStore: LogStore
  /** Seals the credentials of connections. */
  sealer: Sealer
  /** What agents talk to, mounted at /agent/v1; it reads its own bodies. */
  gateway: RequestHandler
  health: Health
  /** Where given, requests are measured. It is served elsewhere: tenants reach this port. */
  metrics?: Registry | undefined
  /** Tells whom a bearer token stands for; absent: nobody signs in. */
  tokens?: TokenVerifier | undefined
  /** The offers as they are now: what a job may name. */
  catalogue: () => Catalogue
  /** For dry runs. */
  plan: Planner
  /** Looks into the accounts of connections. */
  discover: Discoverer
  settings: FacadeSettings
  logger: Logger
  clock: Clock
  /** Aborted when the process shall end: who follows a log is let go. */
  shutdown: AbortSignal
}

const DEFAULT_REQUESTS_PER_MINUTE = 600
const DEFAULT_DISCOVERIES_PER_MINUTE = 30
const DEFAULT_FAILURES_PER_MINUTE = 60

/** The REST API as an express application; the caller listens and closes. */
export function createFacade(dependencies: FacadeDependencies): Express {
  const { caches, gateway, health, metrics, settings, logger } = dependencies
  health.addReadyCheck("caches", () => unsynced(caches))
  const app = express()
  app.disable("x-powered-by").disable("etag")
  app.set("trust proxy", settings.trustProxy ?? false)
  app.use(requestLog(logger))
  if (metrics !== undefined) app.use(measureRequests(metrics))
  app.use(helmet())
  app.use(operationsRouter(health))
  app.use(requireHost)
  app.use("/agent/v1", gateway)
  app.use("/1", projectRouter(dependencies))
  app.use("/1", accountRouter(dependencies))
  // A person who opens the address in a browser.
  app.get("/", (req, res, next) => (req.accepts(["json", "html"]) === "html" ? res.redirect("/1/docs") : next()))
  app.use((req) => {
    throw notFound(`The path ${JSON.stringify(req.path)} does not exist; the API is under /1.`)
  })
  app.use(problemHandler)
  return app
}

function unsynced(caches: Caches): string | undefined {
  const missing = Object.entries(caches).filter(([, cache]) => !cache.synced)
  return missing.length === 0 ? undefined : `not read yet: ${missing.map(([name]) => name).join(", ")}`
}

/** Everything under /1. */
function projectRouter(dependencies: FacadeDependencies): Router {
  const { client, caches, launches, settings, clock, logStore, plan, shutdown } = dependencies
  const router = Router()
  const admission = admissionOf(dependencies)
  const callerClient = impersonating(client)
  const jobsOf = (principal: Principal): Jobs =>
    new Jobs(callerClient(principal), caches.jobs.store, principal.project.namespace)
  const creationTimes = new CreationTimes(clock)
  const turns = new SharedTurns({ client, clock, logger: dependencies.logger })
  const submitterOf = (principal: Principal): Submitter => {
    const { namespace } = principal.project
    const caller = callerClient(principal)
    return new Submitter({ client: caller, jobs: jobsOf(principal), namespace, creationTimes, turns })
  }
  const catalogueFaults = catalogueCheck(dependencies.catalogue, settings.clouds)
  const logStreams = new LogStreams({ logStore, store: caches.jobs.store, launches, clock, shutdown })
  mount(router, jobRoutes(settings.clouds), admission, { jobsOf, submitterOf, catalogueFaults, plan, logStreams })
  const collectionOf = (principal: Principal) => ({
    namespace: principal.project.namespace,
    reader: client,
    writer: callerClient(principal),
    turns,
  })
  const cronJobsOf = (principal: Principal): Collection<StoredCronJob> =>
    new Collection({
      ...collectionOf(principal),
      noun: "cronjob",
      resource: CRON_JOBS,
      store: caches.cronJobs.store,
      fieldNames: CRON_JOB_FIELDS,
    })
  const connectionsOf = (principal: Principal): Connections => {
    const { store } = caches.connections
    const kind = { noun: "connection", resource: CONNECTIONS, store }
    const collection = new Collection({ ...collectionOf(principal), ...kind })
    return new Connections({ collection, sealer: dependencies.sealer, project: principal.project, creationTimes })
  }
  const keysOf = (principal: Principal): Keys =>
    new Keys({ ...collectionOf(principal), store: caches.apiKeys.store, creationTimes, clock })
  mount(router, keyRoutes, admission, { keysOf, clock })
  mount(router, cronJobRoutes(settings.clouds), admission, { cronJobsOf, creationTimes, catalogueFaults })
  mount(router, connectionRoutes, admission, { connectionsOf })
  const limit = principalRateLimit({
    name: "discovery",
    requestsPerMinute: settings.discoveriesPerMinute ?? DEFAULT_DISCOVERIES_PER_MINUTE,
    principalOf: admission.principalOf,
  })
  mount(router, resourceRoutes, { ...admission, limit }, { connectionsOf, discover: dependencies.discover })
  openApiRoute(router, settings.clouds)
  docsRoutes(router)
  return router
}

/** Who people are to the projects and organizations that they belong to. */
function peopleOf({ client, caches, clock }: FacadeDependencies): {
  memberships: Memberships
  people: PeopleInProjects
} {
  const memberships = new Memberships({ client, organizations: caches.organizations.store, clock })
  return { memberships, people: new PeopleInProjects(memberships, { client, clock }) }
}

function admissionOf(dependencies: FacadeDependencies): Guard<Principal> {
  const { client, caches, settings, clock, tokens } = dependencies
  const { baseDomain, defaultProject } = settings
  const failures = new FailureLimit({
    perMinute: settings.failuresPerMinute ?? DEFAULT_FAILURES_PER_MINUTE,
    statuses: [401],
    failures: "requests without valid credentials",
  })
  const gatekeeper = new Gatekeeper({
    projects: new ProjectDirectory({ client, store: caches.projects.store, baseDomain, defaultProject }),
    apiKeys: new ApiKeyAuthenticator({ client, store: caches.apiKeys.store, clock }),
    tokens,
    people: peopleOf(dependencies).people,
    isSuspect: failures.areTooMany,
  })
  const admission = limited(gatekeeper, "requests", settings)
  return { ...admission, authenticate: failures.counting(admission.authenticate) }
}

/** What a gate admits, as often as the settings allow. */
function limited<Caller extends { id: string }>(
  { authenticate, principalOf, isStillAdmitted }: Omit<Guard<Caller>, "limit">,
  name: string,
  settings: FacadeSettings,
): Guard<Caller> {
  const requestsPerMinute = settings.requestsPerMinute ?? DEFAULT_REQUESTS_PER_MINUTE
  const limit = principalRateLimit({ name, requestsPerMinute, principalOf })
  return { authenticate, limit, principalOf, isStillAdmitted }
}

/** Organizations, members and projects, for people who are signed in. */
function accountRouter(dependencies: FacadeDependencies): Router {
  const { client, caches, settings, clock, tokens } = dependencies
  const router = Router()
  const admission = limited(new AccountGatekeeper({ tokens, baseDomain: settings.baseDomain }), "accounts", settings)
  const accounts = new Accounts({
    client: impersonatingUser(client, ACCOUNTS_USER),
    memberships: peopleOf(dependencies).memberships,
    organizations: caches.organizations.store,
    projects: caches.projects.store,
    creationTimes: new CreationTimes(clock),
  })
  mount(router, accountRoutes, admission, { accounts })
  return router
}

/**
 * Rejects requests without a host, or with several: the host names the project. Node.js leaves the Host header of
 * HTTP/1.0 to us, and drops all but the first of several. @throws Problem 400
 */
const requireHost: RequestHandler = (req, _res, next) => {
  const hosts = req.rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === "host")
  if (hosts.length > 1) throw badRequest(`The request has ${hosts.length} Host headers: send one.`)
  if (!req.hostname) throw badRequest("The request has no host: send it in the Host header.")
  next()
}
