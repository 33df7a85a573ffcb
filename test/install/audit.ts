import { readFile } from "node:fs/promises"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"

/** Part of the API server's audit event of a request (audit.k8s.io/v1 Event) that this module reads. */
interface AuditEvent {
  verb: string
  requestURI: string
  user: { username: string }
  impersonatedUser?: { username: string }
  objectRef?: { resource: string; subresource?: string; apiGroup?: string; namespace?: string; name?: string }
  responseStatus?: { code: number }
  requestObject?: { roleRef?: { name: string } }
  annotations?: Record<string, string>
}

/** Verb on a resource that a role grants to a ServiceAccount. */
export interface Grant {
  /** User in the form `system:serviceaccount:<namespace>:<name>`. */
  user: string
  verb: string
  group: string
  /** Resource with its subresource. */
  resource: string
  /** Absent for all namespaces. */
  namespace?: string
  /** Absent for all objects. */
  name?: string
}

interface Rule {
  apiGroups?: string[]
  resources?: string[]
  resourceNames?: string[]
  verbs: string[]
}

interface Role extends ApiObject {
  rules?: Rule[]
}

interface Binding extends ApiObject {
  roleRef: { kind: string; name: string }
  subjects?: { kind: string; namespace?: string; name: string }[]
}

const rbac = { group: "rbac.authorization.k8s.io", version: "v1" } as const
const ROLES = declareResource<Role>({ ...rbac, kind: "Role", plural: "roles", namespaced: true })
const CLUSTER_ROLES = declareResource<Role>({ ...rbac, kind: "ClusterRole", plural: "clusterroles", namespaced: false })
const ROLE_BINDINGS = declareResource<Binding>({
  ...rbac,
  kind: "RoleBinding",
  plural: "rolebindings",
  namespaced: true,
})
const CLUSTER_ROLE_BINDINGS = declareResource<Binding>({
  ...rbac,
  kind: "ClusterRoleBinding",
  plural: "clusterrolebindings",
  namespaced: false,
})

/** Returns all grants of these ServiceAccounts, one for each verb on each resource. */
export async function grantsOf(client: KubeClient, users: readonly string[]): Promise<Grant[]> {
  const [bindings, clusterBindings] = await Promise.all([
    client.list(ROLE_BINDINGS),
    client.list(CLUSTER_ROLE_BINDINGS),
  ])
  const grants: Grant[] = []
  for (const { metadata, roleRef, subjects = [] } of [...bindings.items, ...clusterBindings.items]) {
    for (const { kind, namespace = "", name } of subjects) {
      const user = `system:serviceaccount:${namespace}:${name}`
      if (kind !== "ServiceAccount" || !users.includes(user)) continue
      const role =
        roleRef.kind === "Role"
          ? await client.get(ROLES, { namespace: metadata.namespace, name: roleRef.name })
          : await client.get(CLUSTER_ROLES, { name: roleRef.name })
      grants.push(...grantsBy(role.rules ?? [], { user, ...(metadata.namespace && { namespace: metadata.namespace }) }))
    }
  }
  return grants
}

function grantsBy(rules: readonly Rule[], to: Pick<Grant, "user" | "namespace">): Grant[] {
  return rules.flatMap(({ apiGroups = [], resources = [], resourceNames, verbs }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) =>
        verbs.flatMap((verb) =>
          (resourceNames ?? [undefined]).map((name) => ({ ...to, verb, group, resource, ...(name && { name }) })),
        ),
      ),
    ),
  )
}

/** Uses of grants, and messages about forbidden requests. */
export interface Audit {
  uses: Grant[]
  /**
   * Forbidden requests, without those that the same user was allowed later: the API server notices a new binding late.
   */
  refusals: string[]
}

/** Reads the audit log of an API server for these users and the users that they impersonated. */
export async function auditOf(log: string, users: readonly string[]): Promise<Audit> {
  const lines = (await readFile(log, "utf8")).split("\n").filter((line) => line !== "")
  const events = lines.map((line) => JSON.parse(line) as AuditEvent).filter(({ user }) => users.includes(user.username))
  const isForbidden = ({ annotations }: AuditEvent) => annotations?.["authorization.k8s.io/decision"] === "forbid"
  const lastAllowed = new Map(events.flatMap((event, at) => (isForbidden(event) ? [] : [[actOf(event), at]])))
  const forbidden = events.filter((event, at) => isForbidden(event) && at > (lastAllowed.get(actOf(event)) ?? -1))
  return {
    uses: events.flatMap(usesOf),
    refusals: forbidden.map(({ user, impersonatedUser, verb, requestURI }) => {
      const as = impersonatedUser === undefined ? "" : ` as ${impersonatedUser.username}`
      return `${user.username}${as}: ${verb} ${requestURI}`
    }),
  }
}

/** Returns the attributes that roles decide about. A repeated request has the same attributes. */
function actOf({ verb, user, impersonatedUser, requestURI }: AuditEvent): string {
  return JSON.stringify([user.username, impersonatedUser?.username, verb, requestURI])
}

function usesOf({ verb, user, impersonatedUser, objectRef, responseStatus, requestObject }: AuditEvent): Grant[] {
  const uses: Grant[] = []
  const actor = impersonatedUser?.username ?? user.username
  const [, , namespace = "", name = ""] = impersonatedUser?.username.split(":") ?? []
  if (impersonatedUser !== undefined)
    uses.push({ user: user.username, verb: "impersonate", group: "", resource: "serviceaccounts", namespace, name })
  if (objectRef === undefined) return uses
  const { resource, subresource, apiGroup: group = "", ...where } = objectRef
  const whole = subresource === undefined ? resource : `${resource}/${subresource}`
  uses.push({ user: actor, verb, group, resource: whole, ...where })
  // An apply that creates the object needs both verbs.
  if (verb === "patch" && responseStatus?.code === 201)
    uses.push({ user: actor, verb: "create", group, resource: whole, ...where })
  // Kubernetes checks the verb `bind` on the role, and writes no audit event about that.
  const role = requestObject?.roleRef?.name
  if (role !== undefined)
    uses.push({ user: actor, verb: "bind", group: rbac.group, resource: "clusterroles", name: role })
  return uses
}

/** Returns true if the grant allows the use. */
function isBy(grant: Grant, use: Grant): boolean {
  const same = (["user", "verb", "group", "resource"] as const).every((field) => grant[field] === use[field])
  if (!same || (grant.name !== undefined && grant.name !== use.name)) return false
  return grant.namespace === undefined || grant.namespace === use.namespace
}

/** Returns the grants that no use needed. */
export function unused(grants: readonly Grant[], uses: readonly Grant[]): Grant[] {
  return grants.filter((grant) => !uses.some((use) => isBy(grant, use)))
}

/** Returns a text such as `berth:berth-operator: patch jobs/status.berth.dev`. */
export function inWords({ user, verb, group, resource, namespace, name }: Grant): string {
  const which = name === undefined ? "" : ` ${name}`
  const where = namespace === undefined ? "" : ` in ${namespace}`
  return `${user.split(":").slice(2).join(":")}: ${verb} ${resource}${group === "" ? "" : `.${group}`}${which}${where}`
}
