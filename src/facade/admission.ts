import type { Request, RequestHandler } from "express"
import { badRequest, forbidden, notFound, problemOf, unauthorized } from "../http/problem.ts"
import type { ApiKeyAuthenticator } from "../identity/authenticate.ts"
import type { Person, TokenVerifier } from "../identity/oidc.ts"
import type { PeopleInProjects } from "../identity/persons.ts"
import type { Principal } from "../identity/principal.ts"
import { hostLabel, type ProjectDirectory, scopeOf } from "../identity/projects.ts"

/** A person who is signed in, outside of any project. */
export interface SignedIn {
  /** As a principal's: unique, safe to log. */
  id: string
  person: Person
}

/** Remembers who makes each request, from the moment on that it is admitted. */
abstract class Gate<Caller> {
  readonly #callers = new WeakMap<Request, Caller>()

  /** Admits requests with good credentials. */
  readonly authenticate: RequestHandler = async (req, _res, next) => {
    this.#callers.set(req, await this.identify(req))
    next()
  }

  /** Who makes a request that `authenticate` admitted. */
  readonly principalOf = (req: Request): Caller => {
    const caller = this.#callers.get(req)
    if (caller === undefined) throw new Error(`${req.method} ${req.path} is not behind authentication`)
    return caller
  }

  /** Whether the credentials of an admitted request are still good; true when that can't be told for the moment. */
  readonly isStillAdmitted = async (req: Request): Promise<boolean> => {
    try {
      await this.identify(req)
      return true
    } catch (error) {
      return ![401, 404].includes(problemOf(error).status)
    }
  }

  /** Looks at the credentials, before and during the answer. */
  protected abstract identify(req: Request): Promise<Caller>
}

export interface GatekeeperOptions {
  projects: ProjectDirectory
  apiKeys: ApiKeyAuthenticator
  /** Absent: nobody signs in. */
  tokens?: TokenVerifier | undefined
  people: PeopleInProjects
  /** Whether a request comes from where too many have failed: it costs the API server nothing, then. */
  isSuspect: (req: Request) => Promise<boolean>
}

/** Tells who makes a request to a project. */
export class Gatekeeper extends Gate<Principal> {
  readonly #options: GatekeeperOptions

  constructor(options: GatekeeperOptions) {
    super()
    this.#options = options
  }

  /**
   * @throws Problem 401 (the same for every kind of wrong key, token and host), 400 for two credentials, 404 for a
   * person who has no role in the project, whether there is one or not, 503 while it has no namespace
   */
  protected override async identify(req: Request): Promise<Principal> {
    const credentials = credentialsOf(req)
    const { projects, apiKeys, tokens, people, isSuspect } = this.#options
    if (credentials.kind === "key") {
      const lookup = { onlyCached: await isSuspect(req) }
      const project = await projects.find(req.hostname, lookup)
      const scope = project && scopeOf(project)
      const principal = scope && (await apiKeys.authenticate(credentials.value, scope, lookup))
      if (principal === undefined)
        throw unauthorized("The API key is not valid for this host. Use a key of this project.")
      return principal
    }
    const person = await personOf(credentials.value, tokens)
    const project = await projects.find(req.hostname)
    const principal = project && (await people.principal(person, project))
    if (principal === undefined) throw notFound("You have no role in a project of this host.")
    return principal
  }
}

export interface AccountGatekeeperOptions {
  tokens?: TokenVerifier | undefined
  /** Hosts below it are projects', where nothing of the account scope is. */
  baseDomain: string
}

/** Tells who makes a request to the account scope: people, never API keys (contract, "Authentication", 7). */
export class AccountGatekeeper extends Gate<SignedIn> {
  readonly #options: AccountGatekeeperOptions

  constructor(options: AccountGatekeeperOptions) {
    super()
    this.#options = options
  }

  /** @throws Problem 401, 403 for an API key, 400 for two credentials, 404 on a project's host */
  protected override async identify(req: Request): Promise<SignedIn> {
    const { tokens, baseDomain } = this.#options
    if (hostLabel(req.hostname, baseDomain).kind !== "none") {
      throw notFound("This path does not exist here: organizations are on the host without a project.")
    }
    const credentials = credentialsOf(req)
    if (credentials.kind === "key") {
      throw forbidden(
        "API keys belong to a project and are not accepted here. Sign in and send your token as Authorization: Bearer.",
      )
    }
    const person = await personOf(credentials.value, tokens)
    return { id: `person/${person.userId}`, person }
  }
}

interface Credentials {
  kind: "key" | "token"
  value: string
}

/** Beside a key another scheme's Authorization is none of ours: proxies ask for Basic. @throws Problem 400, 401 */
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

async function personOf(token: string, tokens: TokenVerifier | undefined): Promise<Person> {
  if (tokens === undefined) {
    throw unauthorized("Sign-in is disabled because no issuer is configured. Send an API key as X-Service-Api-Key.")
  }
  const person = await tokens.verify(token)
  if (person === undefined) throw unauthorized("The token is invalid or expired: sign in again.")
  return person
}
