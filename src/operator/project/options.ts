import type { Clock } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { LABELS } from "../../core/apis/meta.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import { namespaceOf, type StoredProject } from "../../core/apis/project.ts"
import { SERVICE_ACCOUNTS, type ServiceAccount } from "../../core/identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../core/identity/role-bindings.ts"
import { ORGANIZATIONS, PROJECTS } from "../../core/kinds.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { NAMESPACES, type Namespace } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector, ReflectorOptions } from "../../core/kube/reflector.ts"
import { type ApiObject, resourceOf } from "../../core/kube/resource.ts"
import type { Store } from "../../core/kube/store.ts"
import type { Writer } from "../writes.ts"

/** Owner of the fields that the project controller writes. */
export const FIELD_MANAGER = "berth-project-controller"

/** Resources of the default objects of a new namespace. After their creation, the project's members own them. */
export const RESOURCE_QUOTAS = resourceOf<ApiObject>({
  group: "",
  version: "v1",
  kind: "ResourceQuota",
  plural: "resourcequotas",
  namespaced: true,
})
export const NETWORK_POLICIES = resourceOf<ApiObject>({
  group: "networking.k8s.io",
  version: "v1",
  kind: "NetworkPolicy",
  plural: "networkpolicies",
  namespaced: true,
})

/** Options that the reflectors of namespaces and bindings of this controller must have. */
export const NAMESPACE_CACHE: Pick<ReflectorOptions<Namespace>, "resource" | "labelSelector"> = {
  resource: NAMESPACES,
  labelSelector: LABELS.projectUid,
}
export const MEMBER_BINDING_CACHE: Pick<ReflectorOptions<RoleBinding>, "resource" | "labelSelector"> = {
  resource: ROLE_BINDINGS,
  labelSelector: LABELS.projectUid,
}

/** Dependencies of the project controller and the organization controller. */
export interface ProjectControllerOptions {
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

/**
 * Returns true if this operator handles a project: it serves the project's namespace. It also handles every deleted
 * project, whose namespace may have changed: each operator decides the same from live reads.
 */
export function handlesProject(
  project: StoredProject,
  { watchNamespace }: Pick<ProjectControllerOptions, "watchNamespace">,
): boolean {
  const isDeleted = project.metadata.deletionTimestamp !== undefined
  return watchNamespace === undefined || isDeleted || namespaceOf(project) === watchNamespace
}

/** Returns true if this operator handles an organization: that of a project in its namespace, or a deleted one. */
export function handlesOrganization(
  { metadata }: StoredOrganization,
  options: Pick<ProjectControllerOptions, "watchNamespace"> & { projects: Pick<Reflector<StoredProject>, "store"> },
): boolean {
  const { watchNamespace, projects } = options
  if (watchNamespace === undefined || metadata.deletionTimestamp !== undefined) return true
  const its = projects.store.list().filter(({ spec }) => spec.organization === metadata.name)
  return its.some((project) => namespaceOf(project) === watchNamespace)
}

/** Returns a cache that shows only the objects that this operator handles. */
export function handled<T extends ApiObject>(
  store: Pick<Store<T>, "getByKey">,
  handles: (object: T) => boolean,
): Pick<Store<T>, "getByKey"> {
  return {
    getByKey: (key) => {
      const object = store.getByKey(key)
      return object !== undefined && handles(object) ? object : undefined
    },
  }
}

export function writersOf(options: ProjectControllerOptions): {
  projects: Writer<StoredProject>
  namespaces: Writer<Namespace>
  users: Writer<ServiceAccount>
  bindings: Writer<RoleBinding>
} {
  const base = { client: options.client, fieldManager: FIELD_MANAGER }
  return {
    projects: { ...base, resource: PROJECTS, store: options.projects.store },
    namespaces: { ...base, resource: NAMESPACES, store: options.namespaces.store },
    users: { ...base, resource: SERVICE_ACCOUNTS, store: options.users.store },
    bindings: { ...base, resource: ROLE_BINDINGS, store: options.memberBindings.store },
  }
}

export function organizationWriter({ client, organizations }: ProjectControllerOptions): Writer<StoredOrganization> {
  return { client, fieldManager: FIELD_MANAGER, resource: ORGANIZATIONS, store: organizations.store }
}
