import { ROLES, type Role } from "../../core/apis/apikey.ts"
import { ANNOTATIONS, LABELS, type ObjectMeta } from "../../core/apis/meta.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import { projectNamespace, type StoredProject } from "../../core/apis/project.ts"
import {
  clusterRoleName,
  IDENTITIES_NAMESPACE,
  roleUserName,
  type ServiceAccount,
} from "../../core/identity/machine-users.ts"
import { projectRoles } from "../../core/identity/members.ts"
import { RBAC_GROUP, type RoleBinding } from "../../core/identity/role-bindings.ts"
import type { Namespace } from "../../core/kube/core.ts"
import { type ApiObject, declareResource } from "../../core/kube/resource.ts"

/** Resources of the default objects of a new namespace. After their creation, the project's members own them. */
export const RESOURCE_QUOTAS = declareResource<ApiObject>({
  group: "",
  version: "v1",
  kind: "ResourceQuota",
  plural: "resourcequotas",
  namespaced: true,
})
export const NETWORK_POLICIES = declareResource<ApiObject>({
  group: "networking.k8s.io",
  version: "v1",
  kind: "NetworkPolicy",
  plural: "networkpolicies",
  namespaced: true,
})

/** Returns the namespace to create for a project if none of that name exists. */
export function buildNamespace(project: StoredProject): Namespace {
  return { metadata: { name: projectNamespace(project), ...mark(project) } }
}

/** Returns true if an object was made for this project. A matching name alone proves nothing. */
export function isMadeFor(object: { metadata: ObjectMeta }, project: StoredProject): boolean {
  return object.metadata.labels?.[LABELS.projectUid] === project.metadata.uid
}

/** Returns true if an annotation on an existing namespace allows this project to use it. */
export function mayAdopt({ metadata }: Namespace, project: StoredProject): boolean {
  return metadata.annotations?.[ANNOTATIONS.adopt] === project.metadata.name
}

/** Returns the ServiceAccounts that the façade impersonates for users of the project, one for each role. They get no tokens. */
export function buildRoleUsers(project: StoredProject): ServiceAccount[] {
  return ROLES.map((role) => ({
    metadata: { name: roleUserName(project.metadata.uid, role), namespace: IDENTITIES_NAMESPACE, ...mark(project) },
    automountServiceAccountToken: false,
  }))
}

/**
 * Returns the binding of each role to its ServiceAccount, and to the users and groups that have it. Kubernetes gives the
 * users and groups of the OIDC issuer the same names, so kubectl with the same identity has the same rights.
 */
export function buildBindings(project: StoredProject, organization: StoredOrganization | undefined): RoleBinding[] {
  const { users, groups } = projectRoles(project, organization)
  return ROLES.map((role) => {
    const user = roleUserName(project.metadata.uid, role)
    return {
      metadata: { name: bindingName(role), namespace: projectNamespace(project), ...mark(project) },
      roleRef: { apiGroup: RBAC_GROUP, kind: "ClusterRole", name: clusterRoleName(role) },
      subjects: [
        { kind: "ServiceAccount", name: user, namespace: IDENTITIES_NAMESPACE },
        ...whoHas(role, users).map((name) => ({ kind: "User", apiGroup: RBAC_GROUP, name })),
        ...whoHas(role, groups).map((name) => ({ kind: "Group", apiGroup: RBAC_GROUP, name })),
      ],
    }
  })
}

function whoHas(role: Role, roles: ReadonlyMap<string, Role>): string[] {
  return [...roles].flatMap(([name, has]) => (has === role ? [name] : [])).sort()
}

function bindingName(role: Role): string {
  return `berth-project-${role}`
}

/**
 * Limits of a project's namespace besides Berth's kinds: no pods, as jobs run on VMs, and enough Secrets for connections and
 * jobs. Berth's kinds have no limit. Kubernetes rejects all objects of a limited kind until its quota controller has
 * discovered the kind, minutes after an installation. It also writes the quota with every object that counts.
 */
const QUOTA = { pods: "0", persistentvolumeclaims: "0", "count/secrets": "200", "count/configmaps": "200" }

export function buildQuota(project: StoredProject): ApiObject & { spec: unknown } {
  return { metadata: inNamespace(project), spec: { hard: QUOTA } }
}

/** Returns the network policy of a new namespace. Jobs run on VMs, so a pod in it reaches nothing. */
export function buildNetworkPolicy(project: StoredProject): ApiObject & { spec: unknown } {
  return { metadata: inNamespace(project), spec: { podSelector: {}, policyTypes: ["Ingress", "Egress"] } }
}

function inNamespace(project: StoredProject): ObjectMeta {
  return { name: "berth-default", namespace: projectNamespace(project), ...mark(project) }
}

function mark({ metadata }: StoredProject): Required<Pick<ObjectMeta, "labels">> {
  return { labels: { [LABELS.project]: metadata.name, [LABELS.projectUid]: metadata.uid } }
}
