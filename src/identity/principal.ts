import type { Role } from "../apis/apikey.ts"
import type { KubeClient } from "../kube/client.ts"

/** The project that a request's host names, and where its objects live. */
export interface ProjectScope {
  /** Name of the Project: the contract's project_id. */
  id: string
  organizationId: string
  namespace: string
}

/** Who calls: an API key today; machine users' and people's tokens come beside it as further values of `kind`. */
export interface Principal {
  kind: "apiKey"
  /** Unique over all principals, safe to log: rate limits and log lines go by it. */
  id: string
  role: Role
  project: ProjectScope
}

/** What the façade does to the API server on a caller's behalf. */
export type CallerClient = Pick<KubeClient, "get" | "list" | "create" | "patch" | "replace" | "delete">

/** The one place that decides as whom the API server is called for a principal. */
export type CallerClients = (principal: Principal) => CallerClient

/** Every caller acts with the façade's own rights: the role was checked before. */
export function ownRights(client: CallerClient): CallerClients {
  return () => client
}
