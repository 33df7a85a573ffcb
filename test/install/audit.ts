import { readFile } from "node:fs/promises"
import type { KubeClient } from "../../src/kube/client.ts"
import { type ApiObject, resourceOf } from "../../src/kube/resource.ts"

/** What the API server wrote down of a request (audit.k8s.io/v1 Event), as far as it is looked at. */
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

/** A verb on a resource that a role gives a ServiceAccount. */
export interface Grant {
  /** As `system:serviceaccount:<namespace>:<name>`. */
  user: string
  verb: string
  group: string
  /** With its subresource. */
  resource: string
  /** Absent: in all. */
  namespace?: string
  /** Absent: all objects. */
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
const ROLES = resourceOf<Role>({ ...rbac, kind: "Role", plural: "roles", namespaced: true })
const CLUSTER_ROLES = resourceOf<Role>({ ...rbac, kind: "ClusterRole", plural: "clusterroles", namespaced: false })
const ROLE_BINDINGS = resourceOf<Binding>({ ...rbac, kind: "RoleBinding", plural: "rolebindings", namespaced: true })
const CLUSTER_ROLE_BINDINGS = resourceOf<Binding>({
  ...rbac,
  kind: "ClusterRoleBinding",
  plural: "clusterrolebindings",
  namespaced: false,
})

/** All that these ServiceAccounts have been given, one entry for each verb on each resource. */
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

/** What was done, in the words of grants; and what was refused, in words. */
export interface Audit {
  uses: Grant[]
  /** Without those that the same user was allowed later: the API server learns of a new binding a moment after its writer. */
  refusals: string[]
}

/** Reads the log of an API server, as far as these users are concerned and those whom they acted as. */
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

/** What roles decide about: a request that is sent again is the same act. */
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
  // An apply that makes the object needs both.
  if (verb === "patch" && responseStatus?.code === 201)
    uses.push({ user: actor, verb: "create", group, resource: whole, ...where })
  // Kubernetes asks whether the role may be handed out, and writes down nothing of that.
  const role = requestObject?.roleRef?.name
  if (role !== undefined)
    uses.push({ user: actor, verb: "bind", group: rbac.group, resource: "clusterroles", name: role })
  return uses
}

/** Whether the use needs the grant, or could do with it. */
function isBy(grant: Grant, use: Grant): boolean {
  const same = (["user", "verb", "group", "resource"] as const).every((field) => grant[field] === use[field])
  if (!same || (grant.name !== undefined && grant.name !== use.name)) return false
  return grant.namespace === undefined || grant.namespace === use.namespace
}

/** Grants that nothing used. */
export function unused(grants: readonly Grant[], uses: readonly Grant[]): Grant[] {
  return grants.filter((grant) => !uses.some((use) => isBy(grant, use)))
}

/** Such as `berth:berth-operator: patch jobs/status.berth.dev`. */
export function inWords({ user, verb, group, resource, namespace, name }: Grant): string {
  const which = name === undefined ? "" : ` ${name}`
  const where = namespace === undefined ? "" : ` in ${namespace}`
  return `${user.split(":").slice(2).join(":")}: ${verb} ${resource}${group === "" ? "" : `.${group}`}${which}${where}`
}
