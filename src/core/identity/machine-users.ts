import type { Role } from "../apis/apikey.ts"
import type { ObjectMeta } from "../apis/meta.ts"
import type { Impersonation } from "../kube/client.ts"
import { declareResource } from "../kube/resource.ts"

/**
 * Namespace of the machine users, which no project uses. A caller with the right to impersonate ServiceAccounts in a
 * namespace has all rights of its ServiceAccounts. manifests/base has this name, too.
 */
export const IDENTITIES_NAMESPACE = "berth-identities"

export interface ServiceAccount {
  metadata: ObjectMeta
  automountServiceAccountToken?: boolean
}

export const SERVICE_ACCOUNTS = declareResource<ServiceAccount>({
  group: "",
  version: "v1",
  kind: "ServiceAccount",
  plural: "serviceaccounts",
  namespaced: true,
})

/**
 * Returns the name of the ServiceAccount of an ApiKey. It uses the uid, which the API server assigns. The author of an
 * ApiKey chooses its keyId, so two keys with one keyId would share a user.
 */
export function machineUserName(apiKeyUid: string): string {
  return `apikey-${apiKeyUid}`
}

/** Name of the ServiceAccount that writes Organizations and Projects for users (manifests/base/accounts-rbac.yaml). */
export const ACCOUNTS_USER = "berth-accounts"

/** Returns the name of the ServiceAccount as which users with a role act in a project. */
export function roleUserName(projectUid: string, role: Role): string {
  return `project-${projectUid}-${role}`
}

/** Returns how to impersonate a machine user. Its groups are those that Kubernetes gives every ServiceAccount. */
export function asMachineUser(name: string): Impersonation {
  return { user: `system:serviceaccount:${IDENTITIES_NAMESPACE}:${name}` }
}

/** Returns the ClusterRole of a role (manifests/base/user-roles.yaml). */
export function clusterRoleName(role: Role): string {
  return `berth-${role}`
}
