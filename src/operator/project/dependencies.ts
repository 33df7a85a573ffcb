import type { Clock } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import type { ServiceAccount } from "../../core/identity/machine-users.ts"
import type { RoleBinding } from "../../core/identity/role-bindings.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { Namespace } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"

/** Dependencies of the project controller and the organization controller. */
export interface ProjectControllerDependencies {
  client: Pick<KubeClient, "get" | "list" | "create" | "replace" | "patch" | "patchStatus" | "delete">
  projects: Reflector<StoredProject>
  organizations: Reflector<StoredOrganization>
  /** Has the options NAMESPACE_CACHE. */
  namespaces: Reflector<Namespace>
  /** Has the options MEMBER_BINDING_CACHE. */
  memberBindings: Reflector<RoleBinding>
  /** All ServiceAccounts of IDENTITIES_NAMESPACE. */
  users: Reflector<ServiceAccount>
  jobs: Reflector<StoredJob>
  /** Only namespace whose jobs the operator serves; absent: all. */
  watchNamespace?: string | undefined
  /** Namespaces that no Project may use, annotated or not. */
  reservedNamespaces: readonly string[]
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
}
