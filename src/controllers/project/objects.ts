import { ROLES, type Role } from "../../apis/apikey.ts"
import { ANNOTATIONS, LABELS, type ObjectMeta } from "../../apis/meta.ts"
import type { StoredOrganization } from "../../apis/organization.ts"
import { namespaceOf, type StoredProject } from "../../apis/project.ts"
import { clusterRoleOf, IDENTITIES_NAMESPACE, roleUserName, type ServiceAccount } from "../../identity/machine-users.ts"
import { projectRoles } from "../../identity/members.ts"
import { RBAC_GROUP, type RoleBinding } from "../../identity/role-bindings.ts"
import type { Namespace } from "../../kube/core.ts"
import type { ApiObject } from "../../kube/resource.ts"

/** The namespace that a project gets when there is none of that name. */
export function newNamespaceOf(project: StoredProject): Namespace {
  return { metadata: { name: namespaceOf(project), ...mark(project) } }
}

/** Whether an object was made for this very project; its name alone says nothing. */
export function isMadeFor(object: { metadata: ObjectMeta }, project: StoredProject): boolean {
  return object.metadata.labels?.[LABELS.projectUid] === project.metadata.uid
}

/** Whether the owner of a namespace that was there before lets this project have it. */
export function mayAdopt({ metadata }: Namespace, project: StoredProject): boolean {
  return metadata.annotations?.[ANNOTATIONS.adopt] === project.metadata.name
}

/** The ServiceAccounts as which people act in the project, one for each role. They get no tokens. */
export function roleUsersOf(project: StoredProject): ServiceAccount[] {
  return ROLES.map((role) => ({
    metadata: { name: roleUserName(project.metadata.uid, role), namespace: IDENTITIES_NAMESPACE, ...mark(project) },
    automountServiceAccountToken: false,
  }))
}

/**
 * What gives each role to its ServiceAccount, and to the people and groups that have it, as Kubernetes names those of an
 * OIDC issuer: kubectl with the same identity may do the same.
 */
export function bindingsOf(project: StoredProject, organization: StoredOrganization | undefined): RoleBinding[] {
  const { users, groups } = projectRoles(project, organization)
  return ROLES.map((role) => {
    const user = roleUserName(project.metadata.uid, role)
    return {
      metadata: { name: bindingName(role), namespace: namespaceOf(project), ...mark(project) },
      roleRef: { apiGroup: RBAC_GROUP, kind: "ClusterRole", name: clusterRoleOf(role) },
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
 * What a namespace that was made for a project may hold beside Berth's kinds: they run on VMs, so no pods, and what
 * connections and jobs may need of Secrets. Berth's own kinds are not counted: Kubernetes refuses all of a kind until its
 * quota controller has heard of it, minutes after an installation, and writes the quota anew with every object that counts.
 */
const QUOTA = { pods: "0", persistentvolumeclaims: "0", "count/secrets": "200", "count/configmaps": "200" }

export function quotaOf(project: StoredProject): ApiObject & { spec: unknown } {
  return { metadata: inNamespace(project), spec: { hard: QUOTA } }
}

/** Jobs run on VMs: no pod is meant to run in a project's namespace, and one that does reaches nothing. */
export function networkPolicyOf(project: StoredProject): ApiObject & { spec: unknown } {
  return { metadata: inNamespace(project), spec: { podSelector: {}, policyTypes: ["Ingress", "Egress"] } }
}

function inNamespace(project: StoredProject): ObjectMeta {
  return { name: "berth-default", namespace: namespaceOf(project), ...mark(project) }
}

function mark({ metadata }: StoredProject): Required<Pick<ObjectMeta, "labels">> {
  return { labels: { [LABELS.project]: metadata.name, [LABELS.projectUid]: metadata.uid } }
}
