import type { StoredApiKey } from "../../apis/apikey.ts"
import { ANNOTATIONS, keyOf, LABELS, type ObjectMeta } from "../../apis/meta.ts"
import {
  clusterRoleOf,
  IDENTITIES_NAMESPACE,
  machineUserName,
  type ServiceAccount,
} from "../../identity/machine-users.ts"
import { RBAC_GROUP, type RoleBinding } from "../../identity/role-bindings.ts"

/** The machine user of a key. It gets no token: nobody logs in as it, the façade impersonates it. */
export function machineUserOf(key: StoredApiKey): ServiceAccount {
  const name = machineUserName(key.metadata.uid)
  return { metadata: { name, namespace: IDENTITIES_NAMESPACE, ...mark(key) }, automountServiceAccountToken: false }
}

/**
 * What gives a key's machine user its role in the key's namespace. The role is a part of the name, because a binding's
 * role can't be changed: the new one is made before the old one goes.
 */
export function bindingOf(key: StoredApiKey): RoleBinding {
  const { metadata, spec } = key
  const user = machineUserName(metadata.uid)
  return {
    metadata: { name: `berth-${user}-${spec.role}`, namespace: metadata.namespace ?? "", ...mark(key) },
    roleRef: { apiGroup: RBAC_GROUP, kind: "ClusterRole", name: clusterRoleOf(spec.role) },
    subjects: [{ kind: "ServiceAccount", name: user, namespace: IDENTITIES_NAMESPACE }],
  }
}

/** Whether an object was made for this very key; its name alone says nothing. */
export function isMadeFor(object: { metadata: ObjectMeta }, key: StoredApiKey): boolean {
  return object.metadata.labels?.[LABELS.apiKeyUid] === key.metadata.uid
}

function mark(key: StoredApiKey): Pick<ObjectMeta, "labels" | "annotations"> {
  return { labels: { [LABELS.apiKeyUid]: key.metadata.uid }, annotations: { [ANNOTATIONS.apiKey]: keyOf(key) } }
}
