import type { Role } from "../apis/apikey.ts"
import type { KubeClient } from "../kube/client.ts"
import { isForbidden } from "../kube/errors.ts"
import { asMachineUser } from "./machine-users.ts"

/** The project that a request's host names, and where its objects live. */
export interface ProjectScope {
  /** Name of the Project: the contract's project_id. */
  id: string
  organizationId: string
  namespace: string
}

/** Who calls something of a project: the holder of an API key, or a person who is signed in. */
export interface Principal {
  kind: "apiKey" | "person"
  /** Unique over all principals, safe to log: rate limits and log lines go by it. */
  id: string
  role: Role
  project: ProjectScope
  /** The ServiceAccount in IDENTITIES_NAMESPACE that the API server takes the caller for. */
  machineUser: string
  /** Whether that one has its role's rights already: a key that was just made or changed gets them in a moment. */
  isBound: boolean
}

/** What the façade does to the API server on a caller's behalf. */
export type CallerClient = Pick<KubeClient, "get" | "list" | "create" | "patch" | "replace" | "delete">

/** The one place that decides as whom the API server is called for a principal. */
export type CallerClients = (principal: Principal) => CallerClient

/** The caller's machine user does not have its rights yet, or the project no namespace. Try again shortly. */
export class NotBoundYet extends Error {
  override readonly name = "NotBoundYet"
}

/**
 * Every call is made as the caller's machine user, so that Kubernetes' own RBAC, admission and audit log see the caller,
 * and a check that the façade forgot is still made. Calls throw KubeError, or NotBoundYet.
 */
export function impersonating(client: CallerClient): CallerClients {
  return ({ machineUser, isBound }) =>
    calling(client, machineUser, (error) => {
      if (isBound || !isForbidden(error)) throw error
      throw new NotBoundYet("the caller's machine user is being made", { cause: error })
    })
}

/** Every call is made as a ServiceAccount of IDENTITIES_NAMESPACE. Calls throw KubeError. */
export function impersonatingUser(client: CallerClient, name: string): CallerClient {
  return calling(client, name, (error) => {
    throw error
  })
}

function calling(client: CallerClient, machineUser: string, explain: (error: unknown) => never): CallerClient {
  const as = asMachineUser(machineUser)
  return {
    get: (resource, ref, options) => client.get(resource, ref, { ...options, as }).catch(explain),
    list: (resource, options) => client.list(resource, { ...options, as }).catch(explain),
    create: (resource, object, options) => client.create(resource, object, { ...options, as }).catch(explain),
    patch: (resource, ref, patch, options) => client.patch(resource, ref, patch, { ...options, as }).catch(explain),
    replace: (resource, object, options) => client.replace(resource, object, { ...options, as }).catch(explain),
    delete: (resource, ref, options) => client.delete(resource, ref, { ...options, as }).catch(explain),
  }
}
