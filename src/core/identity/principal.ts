import type { Role } from "../apis/apikey.ts"
import type { KubeClient } from "../kube/client.ts"
import { isForbidden } from "../kube/errors.ts"
import { asMachineUser } from "./machine-users.ts"

/** Project that a request's address names, with the namespace of its objects. */
export interface ProjectScope {
  /** Name of the Project; `project_id` in the contract. */
  id: string
  organizationId: string
  namespace: string
}

/** Caller of a project's API: the holder of an API key, or a user who is signed in. */
export interface Principal {
  kind: "apiKey" | "person"
  /** Unique over all principals, and safe to log. Rate limits and log lines use it. */
  id: string
  /** Id in the API: the key's, or the person's user id. */
  publicId: string
  /** Name of the key, or email address of the person if the issuer has verified it. */
  name?: string | undefined
  /** Time at which the credentials expire. Absent: never. */
  expiresAt?: string | undefined
  role: Role
  /** Number of groups that the person's token names. Absent: a key. */
  groupCount?: number | undefined
  /** Sentences about groups of the person that the token does not name. */
  warning?: string | undefined
  project: ProjectScope
  /** ServiceAccount in IDENTITIES_NAMESPACE that the API server sees as the caller. */
  machineUser: string
  /**
   * True if the machine user has its role's rights. A key that was just created or changed gets them within moments.
   */
  isBound: boolean
}

/** Calls that the façade makes to the API server for a caller. */
export type CallerClient = Pick<KubeClient, "get" | "list" | "create" | "patch" | "replace" | "delete">

/** Returns the client that impersonates a principal. No other place decides this. */
export type CallerClients = (principal: Principal) => CallerClient

/** The caller's machine user has no rights yet, or the project has no namespace yet. Try again soon. */
export class NotBoundYet extends Error {
  override readonly name = "NotBoundYet"
  /** Reason why the controller has stopped to set the project up. Undefined: it has not stopped. */
  readonly stalled: string | undefined

  constructor(message: string, options: ErrorOptions & { stalled?: string | undefined } = {}) {
    super(message, options)
    this.stalled = options.stalled
  }
}

/**
 * Makes every call as the caller's machine user. So Kubernetes' RBAC, admission and audit log see the caller, and RBAC
 * catches a check that the façade forgot. Calls throw KubeError or NotBoundYet.
 */
export function impersonating(client: CallerClient): CallerClients {
  return ({ machineUser, isBound }) =>
    calling(client, machineUser, (error) => {
      if (isBound || !isForbidden(error)) throw error
      throw new NotBoundYet("the controller is still creating the caller's machine user", { cause: error })
    })
}

/** Makes every call as a ServiceAccount of IDENTITIES_NAMESPACE. Calls throw KubeError. */
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
