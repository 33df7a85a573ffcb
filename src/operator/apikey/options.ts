import type { StoredApiKey } from "../../core/apis/apikey.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { ANNOTATIONS, LABELS } from "../../core/apis/meta.ts"
import { IDENTITIES_NAMESPACE, SERVICE_ACCOUNTS, type ServiceAccount } from "../../core/identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../core/identity/role-bindings.ts"
import { API_KEYS } from "../../core/kinds.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector, ReflectorOptions } from "../../core/kube/reflector.ts"
import type { ApiObject } from "../../core/kube/resource.ts"
import type { Quota } from "../../core/limits/project-limits.ts"
import type { Writer } from "../writes.ts"

/** Owner of the fields that the ApiKey controller writes. */
export const FIELD_MANAGER = "berth-apikey-controller"

/** Index of machine users and bindings by the ApiKey that their annotation names, as `namespace/name`. */
export const API_KEY_INDEX = "apiKey"

/** Options that the reflectors of machine users and of bindings must have. */
export const MACHINE_USER_CACHE: Pick<ReflectorOptions<ServiceAccount>, "resource" | "namespace" | "indexes"> = {
  resource: SERVICE_ACCOUNTS,
  namespace: IDENTITIES_NAMESPACE,
  indexes: { [API_KEY_INDEX]: (user) => keysNamedBy(user) },
}
export const BINDING_CACHE: Pick<ReflectorOptions<RoleBinding>, "resource" | "labelSelector" | "indexes"> = {
  resource: ROLE_BINDINGS,
  labelSelector: LABELS.apiKeyUid,
  indexes: { [API_KEY_INDEX]: (binding) => keysNamedBy(binding) },
}

/**
 * Returns the key of the ApiKey in the annotation of a machine user or binding. A binding whose annotation has another
 * namespace is ignored. The right to write bindings in one project must not affect another.
 */
export function keysNamedBy({ metadata }: ApiObject): string[] {
  const key = metadata.annotations?.[ANNOTATIONS.apiKey]
  const isElsewhere = metadata.namespace !== IDENTITIES_NAMESPACE && !key?.startsWith(`${metadata.namespace}/`)
  return key === undefined || isElsewhere ? [] : [key]
}

export function writersOf({ client, apiKeys, users, bindings }: ApiKeyControllerOptions): {
  keys: Writer<StoredApiKey>
  users: Writer<ServiceAccount>
  bindings: Writer<RoleBinding>
} {
  const base = { client, fieldManager: FIELD_MANAGER }
  return {
    keys: { ...base, resource: API_KEYS, store: apiKeys.store },
    users: { ...base, resource: SERVICE_ACCOUNTS, store: users.store },
    bindings: { ...base, resource: ROLE_BINDINGS, store: bindings.store },
  }
}

/** Dependencies of the ApiKey controller. */
export interface ApiKeyControllerOptions {
  /** Limits of what projects may store, and their use. Absent: no limits. */
  quota?: Quota
  client: Pick<KubeClient, "get" | "create" | "replace" | "patch" | "patchStatus" | "delete">
  apiKeys: Reflector<StoredApiKey>
  /** Has the options MACHINE_USER_CACHE. */
  users: Reflector<ServiceAccount>
  /** Has the options BINDING_CACHE, and the same namespaces as the ApiKeys. */
  bindings: Reflector<RoleBinding>
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
}
