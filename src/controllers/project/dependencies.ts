import type { Clock } from "../../apis/clock.ts"
import type { StoredJob } from "../../apis/job.ts"
import type { Logger } from "../../apis/logger.ts"
import { LABELS } from "../../apis/meta.ts"
import type { StoredOrganization } from "../../apis/organization.ts"
import type { StoredProject } from "../../apis/project.ts"
import { SERVICE_ACCOUNTS, type ServiceAccount } from "../../identity/machine-users.ts"
import { ORGANIZATIONS, PROJECTS } from "../../identity/projects.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../identity/role-bindings.ts"
import type { KubeClient } from "../../kube/client.ts"
import { NAMESPACES, type Namespace } from "../../kube/core.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Reflector, ReflectorOptions } from "../../kube/reflector.ts"
import { type ApiObject, resourceOf } from "../../kube/resource.ts"
import type { Writer } from "../writes.ts"

/** Owner of the fields that the project controller writes. */
export const FIELD_MANAGER = "berth-project-controller"

/** Objects that a new namespace begins with, and that are its owners' from then on. */
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

/** What the reflectors of the namespaces and bindings that this controller made must be made with. */
export const NAMESPACE_CACHE: Pick<ReflectorOptions<Namespace>, "resource" | "labelSelector"> = {
  resource: NAMESPACES,
  labelSelector: LABELS.projectUid,
}
export const MEMBER_BINDING_CACHE: Pick<ReflectorOptions<RoleBinding>, "resource" | "labelSelector"> = {
  resource: ROLE_BINDINGS,
  labelSelector: LABELS.projectUid,
}

/** What the project and organization controllers work with; `operator.ts` constructs it. */
export interface ProjectControllerOptions {
  client: Pick<KubeClient, "get" | "list" | "create" | "replace" | "patch" | "patchStatus" | "delete">
  projects: Reflector<StoredProject>
  organizations: Reflector<StoredOrganization>
  /** Made with NAMESPACE_CACHE. */
  namespaces: Reflector<Namespace>
  /** Made with MEMBER_BINDING_CACHE. */
  memberBindings: Reflector<RoleBinding>
  /** All of IDENTITIES_NAMESPACE. */
  users: Reflector<ServiceAccount>
  jobs: Reflector<StoredJob>
  /** Namespaces that no Project may use, annotated or not. */
  reservedNamespaces: readonly string[]
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
}

/** How the project controller writes each kind of object. */
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

/** How the organization controller writes. */
export function organizationWriter({ client, organizations }: ProjectControllerOptions): Writer<StoredOrganization> {
  return { client, fieldManager: FIELD_MANAGER, resource: ORGANIZATIONS, store: organizations.store }
}
