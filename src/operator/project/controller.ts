import { LABELS } from "../../core/apis/meta.ts"
import { PROJECT_FINALIZER, type ProjectStatus, type StoredProject } from "../../core/apis/project.ts"
import { SERVICE_ACCOUNTS, type ServiceAccount } from "../../core/identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../core/identity/role-bindings.ts"
import { NAMESPACES, type Namespace } from "../../core/kube/core.ts"
import { isAlreadyExists } from "../../core/kube/errors.ts"
import type { ApiObject, Resource } from "../../core/kube/resource.ts"
import type { Change } from "../../core/kube/store.ts"
import { PROJECTS } from "../../core/resources.ts"
import { Controller, type ReconcileContext, watchSource } from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { addFinalizer, create, dropFinalizer, remove, replace, type Writer, writeStatus } from "../writes.ts"
import { decide, type ProjectAction, type ProjectObservation } from "./decide.ts"
import type { ProjectControllerDependencies } from "./dependencies.ts"
import { gather } from "./gather.ts"
import { handled, handlesProject } from "./handled.ts"
import { buildNetworkPolicy, buildQuota, NETWORK_POLICIES, RESOURCE_QUOTAS } from "./objects.ts"

/** Owner of the fields that the project controller writes. */
export const FIELD_MANAGER = "berth-project-controller"

/** Creates the controller that gives each Project its namespace, and its members their rights there. */
export function createProjectController(options: ProjectControllerDependencies): Controller {
  const { projects, organizations, namespaces, memberBindings, users, clock, recorder, logger } = options
  const reconciler: ObjectReconciler<StoredProject, ProjectObservation, ProjectStatus, ProjectAction> = {
    store: handled(projects.store, (project) => handlesProject(project, options)),
    clock,
    recorder,
    gather: (project) => gather(project, options),
    decide,
    writeStatus: (project, status, context) => writeStatus(project, status, createWriters(options).projects, context),
    act: (project, action, context) => act(project, action, options, context),
  }
  return new Controller({
    name: "project",
    reconcile: (key, context) => reconcileObject(key, reconciler, context),
    sources: [
      watchSource(projects),
      watchSource(organizations, ({ key }) => projectsOf(key, options)),
      watchSource(namespaces, namedProject),
      watchSource(memberBindings, namedProject),
      watchSource(users, namedProject),
    ],
    clock,
    logger,
  })
}

function projectsOf(organization: string, { projects }: ProjectControllerDependencies): string[] {
  const its = projects.store.list().filter(({ spec }) => spec.organization === organization)
  return its.map(({ metadata }) => metadata.name)
}

/** Returns the keys of the projects in the labels of an object. */
function namedProject({ old, current }: Change<ApiObject>): string[] {
  const names = [old, current].map((object) => object?.metadata.labels?.[LABELS.project])
  return [...new Set(names.filter((name) => name !== undefined))]
}

async function act(
  project: StoredProject,
  action: ProjectAction,
  options: ProjectControllerDependencies,
  context: ReconcileContext,
): Promise<void> {
  const { projects, namespaces, users, bindings } = createWriters(options)
  switch (action.do) {
    case "addFinalizer":
      return addFinalizer(project, PROJECT_FINALIZER, projects, context)
    case "createNamespace":
      return create(action.namespace, namespaces, context)
    case "deleteNamespace":
      return remove(action.namespace, namespaces, context)
    case "createDefaults":
      return createDefaults(project, options)
    case "createUser":
      return create(action.user, users, context)
    case "deleteUser":
      return remove(action.user, users, context)
    case "createBinding":
      return create(action.binding, bindings, context)
    case "replaceBinding":
      return replace(action.binding, bindings, context)
    case "deleteBinding":
      return remove(action.binding, bindings, context)
    case "dropFinalizer":
      return dropFinalizer(project, PROJECT_FINALIZER, projects, context)
  }
}

async function createDefaults(project: StoredProject, { client }: ProjectControllerDependencies): Promise<void> {
  const defaults: [Resource, ApiObject][] = [
    [RESOURCE_QUOTAS, buildQuota(project)],
    [NETWORK_POLICIES, buildNetworkPolicy(project)],
  ]
  for (const [resource, object] of defaults) {
    try {
      await client.create(resource, object, { fieldManager: FIELD_MANAGER })
    } catch (error) {
      if (!isAlreadyExists(error)) throw error
    }
  }
}

function createWriters(options: ProjectControllerDependencies): {
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
