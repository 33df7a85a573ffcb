import type { StoredApiKey } from "../../core/apis/apikey.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { ServiceAccount } from "../../core/identity/machine-users.ts"
import type { RoleBinding } from "../../core/identity/role-bindings.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Quota } from "../../core/quota/project-limits.ts"

/** Dependencies of the ApiKey controller. */
export interface ApiKeyControllerDependencies {
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
