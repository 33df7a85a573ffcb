import type { Request, RequestHandler, Response } from "express"
import { type Role, roleAllows } from "../core/apis/apikey.ts"
import { quote } from "../core/apis/field-error.ts"
import type { ApiKeyAuthenticator } from "../core/identity/authenticate.ts"
import { groupsWithoutRole } from "../core/identity/group-claim.ts"
import type { GroupsLog } from "../core/identity/groups-log.ts"
import type { ProjectMembers } from "../core/identity/memberships.ts"
import type { TokenVerifier, User, Workload, WorkloadIssuer, WorkloadVerifier } from "../core/identity/oidc.ts"
import type { Principal } from "../core/identity/principal.ts"
import { type ProjectDirectory, type ProjectLabel, projectScope } from "../core/identity/projects.ts"
import { type CountedFlow, runIn } from "../core/kube/flow.ts"
import { badRequest, forbidden, notFound, toProblem, unauthorized } from "./http/problem.ts"
import type { Processor } from "./http/processor.ts"
import { clientAddress } from "./http/rate-limits.ts"

/** Signed-in user, outside of any project. */
export interface AuthenticatedUser {
  /** Unique id that is safe to log, like that of a principal. */
  id: string
  user: User
}

/** Most reads at the API server for one request. Work that grows with a request's body or with a project needs the caches. */
const MOST_READS = 64

/** Words of the log line about a request with more reads. Tests look for them. */
export const TOO_MANY_READS = "the request has read too much at the API server"

/** Logs an error if a request has read more than MOST_READS objects and lists at the API server. */
function limitReads(flow: CountedFlow, req: Request, res: Response): void {
  res.once("close", () => {
    if (flow.reads > MOST_READS) req.log.error({ reads: flow.reads, most: MOST_READS }, TOO_MANY_READS)
  })
}

/**
 * Authenticates requests and stores the caller of each one. All that a request does at the API server is in the caller's flow,
 * so that callers share the calls, and the processor after each, fairly. The check of credentials has its own flow, with a
 * reserve.
 */
abstract class Authenticator<Caller> {
  readonly #callers = new WeakMap<Request, Caller>()
  readonly #processor: Processor

  constructor(processor: Processor) {
    this.#processor = processor
  }

  /** Handler that passes on requests with valid credentials. */
  readonly authenticate: RequestHandler = async (req, res, next) => {
    const caller = await this.#identified(req)
    this.#callers.set(req, caller)
    const flow: CountedFlow = {
      kind: "requests",
      path: this.pathOf(caller),
      reads: 0,
      nextTurn: () => this.#processor.next(flow),
    }
    limitReads(flow, req, res)
    runIn(flow, next)
  }

  /** Returns the caller of a request that has passed `authenticate`. */
  readonly principalOf = (req: Request): Caller => {
    const caller = this.#callers.get(req)
    if (caller === undefined) throw new Error(`${req.method} ${req.path} is not behind authentication`)
    return caller
  }

  /**
   * Returns false if the credentials are no longer valid, or no longer have the role. Returns true if the check fails, for
   * example with a 503. @param needed role of the request; undefined: it needs none
   */
  readonly isStillAuthenticated = async (req: Request, needed?: Role): Promise<boolean> => {
    try {
      const { role } = (await this.#identified(req)) as { role?: Role }
      return needed === undefined || (role !== undefined && roleAllows(role, needed))
    } catch (error) {
      return ![401, 404].includes(toProblem(error).status)
    }
  }

  #identified(req: Request): Promise<Caller> {
    return runIn({ kind: "authentication", path: [clientAddress(req)], reads: 0 }, () => this.identify(req))
  }

  /** Checks the credentials, before and during the response. */
  protected abstract identify(req: Request): Promise<Caller>

  /** Returns for whom a caller's requests are: the person with all organizations, the project, the caller. */
  protected abstract pathOf(caller: Caller): [person: string, project: string, caller: string]
}

export interface ProjectAuthenticatorOptions {
  projects: ProjectDirectory
  /** Returns the project that the request's address names. */
  labelOf: (req: Request) => ProjectLabel
  apiKeys: ApiKeyAuthenticator
  /** Verifier of bearer tokens. Undefined: no user can sign in. */
  tokens?: Pick<TokenVerifier, "verify"> | undefined
  /** Verifier of tokens that stand for keys. Undefined: none does. */
  workloads?: WorkloadVerifier | undefined
  projectMembers: ProjectMembers
  /** Returns the id of the person who created an organization, or the organization's if that is unknown. */
  personOf: (organizationId: string) => string
  groupsLog: Pick<GroupsLog, "noteWithoutRole">
  /** Returns true if the request's address has too many failures. Then only the caches are read, not the API server. */
  isSuspect: (req: Request) => Promise<boolean>
  /** Processor whose turns the requests share. */
  processor: Processor
}

/** Authenticates requests to a project. */
export class ProjectAuthenticator extends Authenticator<Principal> {
  readonly #options: ProjectAuthenticatorOptions

  constructor(options: ProjectAuthenticatorOptions) {
    super(options.processor)
    this.#options = options
  }

  /**
   * @throws Problem 401 (the same for every kind of wrong key, token and host), 400 for two credentials, 404 for a user
   * without a role in the project, whether or not the project exists, 503 while the project has no namespace
   */
  protected override async identify(req: Request): Promise<Principal> {
    const credentials = credentialsOf(req)
    const { projects, labelOf, apiKeys, tokens, workloads, projectMembers, groupsLog, isSuspect } = this.#options
    if (credentials.kind === "key") {
      const lookup = { onlyCached: await isSuspect(req) }
      const project = await projects.find(labelOf(req), lookup)
      const scope = project && projectScope(project)
      const principal = scope && (await apiKeys.authenticate(credentials.value, scope, lookup))
      if (principal === undefined)
        throw unauthorized("The API key is not valid for this project. Use a key of this project.")
      return principal
    }
    const issuer = workloads?.issuerOf(credentials.value)
    if (workloads !== undefined && issuer !== undefined)
      return this.#keyOf(req, await workloads.verify(credentials.value, issuer), issuer)
    const user = await userOf(credentials.value, tokens)
    const project = await projects.find(labelOf(req))
    const principal = project && (await projectMembers.principal(user, project))
    if (principal !== undefined) return principal
    groupsLog.noteWithoutRole(user)
    throw notFound(`You have no role in a project of this address. ${groupsWithoutRole(user)}`)
  }

  /** Returns the principal of the key that a workload's token stands for. @throws Problem 401, also without a project */
  async #keyOf(req: Request, workload: Workload | undefined, { issuer, audience }: WorkloadIssuer): Promise<Principal> {
    if (workload === undefined)
      throw unauthorized(`The token of ${issuer} is invalid or expired, or its audience is not ${quote(audience)}.`)
    const { projects, labelOf, apiKeys, isSuspect } = this.#options
    const lookup = { onlyCached: await isSuspect(req) }
    const project = await projects.find(labelOf(req), lookup)
    const scope = project && projectScope(project)
    const principal = scope && (await apiKeys.authenticateWorkload(workload, scope, lookup))
    if (principal !== undefined) return principal
    throw unauthorized(
      `No key of this project trusts this token. It has ${claimsText(workload)}. An admin of the project creates a key with these claims: berth key create --help.`,
    )
  }

  protected override pathOf({ id, project }: Principal): [string, string, string] {
    return [this.#options.personOf(project.organizationId), project.id, id]
  }
}

export interface AccountAuthenticatorOptions {
  tokens?: Pick<TokenVerifier, "verify"> | undefined
  /** Returns the project that the request's host names. The hosts of projects have no account scope. */
  labelOf: (req: Request) => ProjectLabel
  /** Processor whose turns the requests share. */
  processor: Processor
}

/** Authenticates requests to the account scope: users only, no API keys (contract, "Authentication", 7). */
export class AccountAuthenticator extends Authenticator<AuthenticatedUser> {
  readonly #options: AccountAuthenticatorOptions

  constructor(options: AccountAuthenticatorOptions) {
    super(options.processor)
    this.#options = options
  }

  /** @throws Problem 401, 403 for an API key, 400 for two credentials, 404 on a project's host */
  protected override async identify(req: Request): Promise<AuthenticatedUser> {
    const { tokens, labelOf } = this.#options
    if (labelOf(req).kind !== "none") {
      throw notFound("This path does not exist here: organizations are on the host without a project.")
    }
    const credentials = credentialsOf(req)
    if (credentials.kind === "key") {
      throw forbidden(
        "API keys belong to a project and are not accepted here. Sign in and send your token as Authorization: Bearer.",
      )
    }
    const user = await userOf(credentials.value, tokens)
    return { id: `person/${user.userId}`, user }
  }

  protected override pathOf({ id, user }: AuthenticatedUser): [string, string, string] {
    return [user.userId, "", id]
  }
}

interface Credentials {
  kind: "key" | "token"
  value: string
}

/**
 * Returns the credentials of a request. With an API key, an Authorization of another scheme is ignored: proxies ask for
 * Basic. @throws Problem 400, 401
 */
function credentialsOf(req: Request): Credentials {
  const key = req.get("X-Service-Api-Key")
  const authorization = req.get("Authorization")?.trim()
  const isBearer = authorization !== undefined && /^Bearer( |$)/i.test(authorization)
  if (key !== undefined) {
    if (isBearer) throw badRequest("Send either X-Service-Api-Key or Authorization: Bearer, not both.")
    return { kind: "key", value: key }
  }
  if (authorization === undefined) {
    throw unauthorized("Send an API key as X-Service-Api-Key, or your token as Authorization: Bearer.")
  }
  const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1]
  if (token === undefined) throw unauthorized("Authorization must be of the form: Bearer <token>.")
  return { kind: "token", value: token }
}

/** Claims of a token that say whose it is, for the person whose token no key trusts. */
const SHOWN_CLAIMS = ["sub", "repository", "ref", "environment", "project_path"] as const
/** Longest text of a claim that a message has. */
const SHOWN_CHARACTERS = 200

function claimsText({ issuer, claims }: Workload): string {
  const shown = SHOWN_CLAIMS.flatMap((claim) => {
    const text = claims[claim]
    return text === undefined ? [] : [`${claim} ${quote(text.slice(0, SHOWN_CHARACTERS))}`]
  })
  return [`the issuer ${issuer}`, ...shown].join(", ")
}

async function userOf(token: string, tokens: Pick<TokenVerifier, "verify"> | undefined): Promise<User> {
  if (tokens === undefined) {
    throw unauthorized("Sign-in is disabled because no issuer is configured. Send an API key as X-Service-Api-Key.")
  }
  const user = await tokens.verify(token)
  if (user === undefined)
    throw unauthorized("The token is invalid or expired, or its issuer is not allowed here: sign in again.")
  return user
}
