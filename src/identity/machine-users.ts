import type { Role } from "../apis/apikey.ts"
import type { ObjectMeta } from "../apis/meta.ts"
import type { Impersonation } from "../kube/client.ts"
import { resourceOf } from "../kube/resource.ts"

/**
 * Where machine users live, apart from every project: whoever may impersonate ServiceAccounts in a namespace that others
 * use has their rights as well. manifests/base names it, too.
 */
export const IDENTITIES_NAMESPACE = "berth-identities"

export interface ServiceAccount {
  metadata: ObjectMeta
  automountServiceAccountToken?: boolean
}

export const SERVICE_ACCOUNTS = resourceOf<ServiceAccount>({
  group: "",
  version: "v1",
  kind: "ServiceAccount",
  plural: "serviceaccounts",
  namespaced: true,
})

/**
 * Name of the ServiceAccount that stands for an ApiKey. By its uid, which the API server makes: a keyId is chosen by
 * whoever writes the ApiKey, and two with the same would be one user.
 */
export function machineUserName(apiKeyUid: string): string {
  return `apikey-${apiKeyUid}`
}

/** The ServiceAccount as which Organizations and Projects are written for people (manifests/base/accounts-rbac.yaml). */
export const ACCOUNTS_USER = "berth-accounts"

/** Name of the ServiceAccount as which people of a role act in a project. */
export function roleUserName(projectUid: string, role: Role): string {
  return `project-${projectUid}-${role}`
}

/** How the API server is called as a machine user; its groups are those that Kubernetes gives every ServiceAccount. */
export function asMachineUser(name: string): Impersonation {
  return { user: `system:serviceaccount:${IDENTITIES_NAMESPACE}:${name}` }
}

/** The ClusterRole of a role (manifests/base/user-roles.yaml). */
export function clusterRoleOf(role: Role): string {
  return `berth-${role}`
}
