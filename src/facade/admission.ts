import type { Request, RequestHandler } from "express"
import type { ApiKeyAuthenticator } from "../identity/authenticate.ts"
import type { Principal } from "../identity/principal.ts"
import type { ProjectDirectory } from "../identity/projects.ts"
import { badRequest, problemOf, unauthorized } from "./problem.ts"

/** Tells who makes a request. */
export class Gatekeeper {
  readonly #projects: ProjectDirectory
  readonly #apiKeys: ApiKeyAuthenticator
  readonly #principals = new WeakMap<Request, Principal>()

  constructor(projects: ProjectDirectory, apiKeys: ApiKeyAuthenticator) {
    this.#projects = projects
    this.#apiKeys = apiKeys
  }

  /** Admits requests with good credentials. */
  readonly authenticate: RequestHandler = async (req, _res, next) => {
    this.#principals.set(req, await this.#identify(req))
    next()
  }

  /** Who makes a request that `authenticate` admitted. */
  readonly principalOf = (req: Request): Principal => {
    const principal = this.#principals.get(req)
    if (principal === undefined) throw new Error(`${req.method} ${req.path} is not behind authentication`)
    return principal
  }

  /** Whether the credentials of an admitted request are still good; true when that can't be told for the moment. */
  readonly isStillAdmitted = async (req: Request): Promise<boolean> => {
    try {
      await this.#identify(req)
      return true
    } catch (error) {
      return problemOf(error).status !== 401
    }
  }

  /**
   * Looks at the credentials, before and during the answer.
   * @throws Problem 401 (the same for every kind of wrong key and host), 400 for two credentials
   */
  async #identify(req: Request): Promise<Principal> {
    const value = req.get("X-Service-Api-Key")
    if (req.get("Authorization") !== undefined) {
      if (value !== undefined) throw badRequest("Send either X-Service-Api-Key or Authorization, not both.")
      throw unauthorized("Authorization tokens are not taken here: send an API key as X-Service-Api-Key.")
    }
    if (value === undefined) throw unauthorized("Send an API key as X-Service-Api-Key.")
    const project = await this.#projects.find(req.hostname)
    const principal = project && (await this.#apiKeys.authenticate(value, project))
    if (principal === undefined) throw unauthorized("The API key is not valid for this host.")
    return principal
  }
}
