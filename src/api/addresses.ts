import type { Request, RequestHandler } from "express"
import { quote } from "../core/apis/field-error.ts"
import { hostLabel, type ProjectLabel, projectLabel } from "../core/identity/projects.ts"
import { badRequest } from "./http/problem.ts"

/** Path below which a project has the same operations as below `/1` on its own host. */
export const PROJECT_PATH = "/projects/:project/1"

/** Finds the project that a request's address names: the path `/projects/{project}/1`, or else the host. */
export class ProjectAddresses {
  readonly #baseDomain: string | undefined
  readonly #inPaths = new WeakMap<Request, string>()

  /** @param baseDomain parent domain of the projects' hosts; undefined if no host names a project */
  constructor(baseDomain: string | undefined) {
    this.#baseDomain = baseDomain
  }

  /** Returns the project that the request names. */
  readonly labelOf = (req: Request): ProjectLabel => {
    const name = this.#inPaths.get(req)
    return name === undefined ? this.ofHost(req) : projectLabel(name)
  }

  /** Returns the project that the request's host names. */
  readonly ofHost = (req: Request): ProjectLabel => hostLabel(req.hostname, this.#baseDomain)

  /** Handler of PROJECT_PATH that notes the project of the path. @throws Problem 400 if the host names another project */
  readonly notePath: RequestHandler = (req, _res, next) => {
    const name = String(req.params["project"])
    const host = this.ofHost(req)
    if (host.kind === "invalid" || (host.kind === "project" && host.name !== name)) {
      throw badRequest(
        `The host ${quote(req.hostname)} does not name the project ${quote(name)} of the path. ` +
          `Send the request to a host without a project, such as ${this.#baseDomain}.`,
      )
    }
    this.#inPaths.set(req, name)
    next()
  }
}
