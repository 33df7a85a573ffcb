import { findCondition } from "../../apis/conditions.ts"
import { LABELS } from "../../apis/meta.ts"
import { PROJECT_FINALIZER, ProjectCondition, type StoredProject } from "../../apis/project.ts"
import { isAlreadyExists } from "../../kube/errors.ts"
import type { ApiObject, Resource } from "../../kube/resource.ts"
import type { Change } from "../../kube/store.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watches } from "../../runtime/controller.ts"
import { addFinalizer, create, dropFinalizer, remove, replace, writeStatus } from "../writes.ts"
import { decide, type ProjectAction } from "./decide.ts"
import {
  FIELD_MANAGER,
  NETWORK_POLICIES,
  type ProjectControllerOptions,
  RESOURCE_QUOTAS,
  writersOf,
} from "./dependencies.ts"
import { gather } from "./gather.ts"
import { networkPolicyOf, quotaOf } from "./objects.ts"

/** Makes the controller that gives each Project its namespace and its members their rights there. */
export function createProjectController(options: ProjectControllerOptions): Controller {
  const { projects, organizations, namespaces, memberBindings, users, clock, logger } = options
  return new Controller({
    name: "project",
    reconcile: (key, context) => reconcile(key, options, context),
    sources: [
      watches(projects),
      watches(organizations, ({ key }) => projectsOf(key, options)),
      watches(namespaces, namedProject),
      watches(memberBindings, namedProject),
      watches(users, namedProject),
    ],
    clock,
    logger,
  })
}

/** Names of the projects of an organization. */
function projectsOf(organization: string, { projects }: ProjectControllerOptions): string[] {
  const its = projects.store.list().filter(({ spec }) => spec.organization === organization)
  return its.map(({ metadata }) => metadata.name)
}

/** The project that an object says it was made for. */
function namedProject({ old, current }: Change<ApiObject>): string[] {
  const names = [old, current].map((object) => object?.metadata.labels?.[LABELS.project])
  return [...new Set(names.filter((name) => name !== undefined))]
}

async function reconcile(
  name: string,
  options: ProjectControllerOptions,
  context: ReconcileContext,
): Promise<ReconcileResult> {
  const project = options.projects.store.getByKey(name)
  if (project === undefined) return {}
  const decision = decide(project, await gather(project, options), options.clock.now())
  let current = project
  if (decision.status !== undefined) {
    current = await writeStatus(project, decision.status, writersOf(options).projects, context)
    tellOfChange(project, current, options)
  }
  for (const action of decision.actions) {
    context.signal.throwIfAborted()
    await act(current, action, options, context)
  }
  return decision.requeueAfter === undefined ? {} : { requeueAfter: decision.requeueAfter }
}

async function act(
  project: StoredProject,
  action: ProjectAction,
  options: ProjectControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { projects, namespaces, users, bindings } = writersOf(options)
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

async function createDefaults(project: StoredProject, { client }: ProjectControllerOptions): Promise<void> {
  const defaults: [Resource, ApiObject][] = [
    [RESOURCE_QUOTAS, quotaOf(project)],
    [NETWORK_POLICIES, networkPolicyOf(project)],
  ]
  for (const [resource, object] of defaults) {
    try {
      await client.create(resource, object, { fieldManager: FIELD_MANAGER })
    } catch (error) {
      if (!isAlreadyExists(error)) throw error
    }
  }
}

function tellOfChange(before: StoredProject, after: StoredProject, { recorder }: ProjectControllerOptions): void {
  const was = findCondition(before.status?.conditions, ProjectCondition.Ready)
  const is = findCondition(after.status?.conditions, ProjectCondition.Ready)
  if (is === undefined || is.reason === was?.reason) return
  const isStalled = findCondition(after.status?.conditions, ProjectCondition.Stalled)?.status === "True"
  recorder.record(after, { type: isStalled ? "Warning" : "Normal", reason: is.reason, message: is.message })
}
