import { isDeepStrictEqual } from "node:util"
import {
  type ConditionCause,
  changedCondition,
  condition,
  conditionOnceTrue,
  setConditions,
} from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import {
  PROJECT_FINALIZER,
  ProjectCondition,
  type ProjectStatus,
  projectNamespace,
  type StoredProject,
} from "../../core/apis/project.ts"
import type { ServiceAccount } from "../../core/identity/machine-users.ts"
import { givesTheSame, type RoleBinding } from "../../core/identity/role-bindings.ts"
import type { Namespace } from "../../core/kube/core.ts"
import type { EventNote } from "../../core/kube/events.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"
import { buildBindings, buildNamespace, buildRoleUsers, isMadeFor, mayAdopt } from "./objects.ts"

export interface ProjectObservation {
  organization: StoredOrganization | undefined
  /** The namespace with the name that the project needs. Another client may have created it. */
  namespace: Namespace | undefined
  /** ServiceAccounts and bindings with the names that the project needs. Another client may have created them. */
  users: readonly ServiceAccount[]
  bindings: readonly RoleBinding[]
  /** Unfinished jobs in its namespace; 0 unless the project is being deleted. */
  unfinishedJobs: number
  /** Namespaces that no project may use. */
  reservedNamespaces: readonly string[]
}

export type ProjectAction =
  | { do: "addFinalizer" }
  | { do: "createNamespace"; namespace: Namespace }
  | { do: "deleteNamespace"; namespace: Namespace }
  /** Create the objects that every new namespace gets. */
  | { do: "createDefaults" }
  | { do: "createUser"; user: ServiceAccount }
  | { do: "deleteUser"; user: ServiceAccount }
  | { do: "createBinding"; binding: RoleBinding }
  | { do: "replaceBinding"; binding: RoleBinding }
  | { do: "deleteBinding"; binding: RoleBinding }
  | { do: "dropFinalizer" }

export interface ProjectDecision extends Decision<ProjectStatus, ProjectAction> {
  actions: ProjectAction[]
}

/** Delay before checking again whether a namespace or a name is free, seconds. */
const NAME_TAKEN_SECONDS = 30
/** Delay before checking again whether all jobs have ended or the namespace is deleted, seconds. */
const WAIT_SECONDS = 5

export function decide(project: StoredProject, observed: ProjectObservation, now: Date): ProjectDecision {
  if (project.metadata.deletionTimestamp !== undefined) return removal(project, observed, now)
  const blocker = blockerOf(project, observed)
  if (blocker !== undefined) {
    return { ...changedStatus(project, blocker, now), actions: [], requeueAfter: NAME_TAKEN_SECONDS }
  }
  const actions = [...finalizer(project), ...populate(project, observed)]
  return { ...changedStatus(project, { is: actions.length > 0 ? "making" : "ready" }, now), actions }
}

/** Returns why a project can't have its namespace; undefined if it can. */
function blockerOf(project: StoredProject, observed: ProjectObservation): Situation | undefined {
  const { organization, namespace: found, reservedNamespaces } = observed
  const name = projectNamespace(project)
  if (reservedNamespaces.includes(name) || name.startsWith("kube-")) return { is: "namespaceReserved" }
  // A project that has its namespace keeps it, with its own members.
  if (organization === undefined && project.status?.namespace === undefined) return { is: "organizationMissing" }
  if (found === undefined) return undefined
  if (!isMadeFor(found, project) && !mayAdopt(found, project)) return { is: "namespaceTaken" }
  if (found.metadata.deletionTimestamp !== undefined) return { is: "namespaceEnding" }
  const foreign = [...observed.users, ...observed.bindings].find((object) => !isMadeFor(object, project))
  return foreign === undefined ? undefined : { is: "nameTaken", name: foreign.metadata.name }
}

function finalizer({ metadata }: StoredProject): ProjectAction[] {
  return metadata.finalizers?.includes(PROJECT_FINALIZER) ? [] : [{ do: "addFinalizer" }]
}

/**
 * Creates the namespace, then its default objects, then rights in it. The defaults are created until all rights exist. So
 * they exist when the project becomes ready, and later changes by its members stay.
 */
function populate(project: StoredProject, observed: ProjectObservation): ProjectAction[] {
  const { namespace } = observed
  if (namespace === undefined) return [{ do: "createNamespace", namespace: buildNamespace(project) }]
  const rights = [...users(project, observed), ...bindings(project, observed)]
  const isNew = project.status?.namespace === undefined && isMadeFor(namespace, project)
  return isNew && rights.length > 0 ? [{ do: "createDefaults" }, ...rights] : rights
}

function users(project: StoredProject, observed: ProjectObservation): ProjectAction[] {
  const present = new Set(observed.users.map(({ metadata }) => metadata.name))
  return buildRoleUsers(project)
    .filter(({ metadata }) => !present.has(metadata.name))
    .map((user) => ({ do: "createUser", user }))
}

function bindings(project: StoredProject, { organization, bindings: present }: ProjectObservation): ProjectAction[] {
  return buildBindings(project, organization).flatMap((wanted): ProjectAction[] => {
    const found = present.find(({ metadata }) => metadata.name === wanted.metadata.name)
    if (found === undefined) return [{ do: "createBinding", binding: wanted }]
    if (givesTheSame(found, wanted)) return []
    // The role of a binding can't be changed, only its subjects.
    if (!isDeepStrictEqual(found.roleRef, wanted.roleRef)) return [{ do: "deleteBinding", binding: found }]
    const { resourceVersion = "" } = found.metadata
    return [{ do: "replaceBinding", binding: { ...wanted, metadata: { ...wanted.metadata, resourceVersion } } }]
  })
}

/**
 * Waits until users have ended the jobs. Then deletes the namespace, if it was made for the project, and then the
 * rights.
 */
function removal(project: StoredProject, observed: ProjectObservation, now: Date): ProjectDecision {
  const { namespace: found, unfinishedJobs } = observed
  if (!project.metadata.finalizers?.includes(PROJECT_FINALIZER)) return { actions: [] }
  if (unfinishedJobs > 0) {
    const blocked = changedStatus(project, { is: "blocked", jobs: unfinishedJobs }, now)
    return { ...blocked, actions: [], requeueAfter: WAIT_SECONDS }
  }
  if (found !== undefined && isMadeFor(found, project)) {
    const isEnding = found.metadata.deletionTimestamp !== undefined
    const actions: ProjectAction[] = isEnding ? [] : [{ do: "deleteNamespace", namespace: found }]
    return { ...changedStatus(project, { is: "ending" }, now), actions, requeueAfter: WAIT_SECONDS }
  }
  const actions: ProjectAction[] = [
    ...observed.bindings.filter((binding) => isMadeFor(binding, project)).map(toDeleteBinding),
    ...observed.users.filter((user) => isMadeFor(user, project)).map(toDeleteUser),
    { do: "dropFinalizer" },
  ]
  return { actions }
}

function toDeleteBinding(binding: RoleBinding): ProjectAction {
  return { do: "deleteBinding", binding }
}

function toDeleteUser(user: ServiceAccount): ProjectAction {
  return { do: "deleteUser", user }
}

/** State of a project, from which its status follows. */
export type Situation =
  | { is: "making" }
  | { is: "ready" }
  | { is: "organizationMissing" }
  | { is: "namespaceReserved" }
  | { is: "namespaceTaken" }
  | { is: "namespaceEnding" }
  | { is: "nameTaken"; name: string }
  | { is: "blocked"; jobs: number }
  | { is: "ending" }

/** Situations that a user must resolve. */
const STALLED: readonly Situation["is"][] = ["namespaceReserved", "namespaceTaken", "nameTaken", "blocked"]

/** Returns the status to write and its events; nothing if the status is the same. */
function changedStatus(
  project: StoredProject,
  situation: Situation,
  now: Date,
): { status?: ProjectStatus; events?: EventNote[] } {
  const status = nextStatus(project, situation, now)
  if (isDeepStrictEqual(status, project.status)) return {}
  const ready = changedCondition(project.status?.conditions, status.conditions, ProjectCondition.Ready)
  if (ready === undefined) return { status }
  const type = STALLED.includes(situation.is) ? "Warning" : "Normal"
  return { status, events: [{ type, reason: ready.reason, message: ready.message }] }
}

/**
 * Returns the status of a project. For kstatus (Helm, Flux, Argo CD) it is Reconciling until its namespace and its
 * members' rights exist, then Ready. It is Stalled when a user must change something. A project keeps its first
 * namespace.
 */
export function nextStatus(project: StoredProject, situation: Situation, now: Date): ProjectStatus {
  const before = project.status?.conditions
  const { generation } = project.metadata
  const cause = causeOf(project, situation)
  const isStalled = STALLED.includes(situation.is)
  const isReady = situation.is === "ready"
  const updates = [
    condition(ProjectCondition.Ready, isReady, cause),
    condition(ProjectCondition.Reconciling, !isReady && !isStalled, cause),
    conditionOnceTrue(ProjectCondition.Stalled, isStalled, cause),
  ]
  const conditions = setConditions(before, updates, generation, now)
  const namespace = isReady ? projectNamespace(project) : project.status?.namespace
  const own = { ...defined({ namespace }), conditions, observedGeneration: generation }
  return { ...own, ...(project.status?.spending && { spending: project.status.spending }) }
}

function causeOf(project: StoredProject, situation: Situation): ConditionCause {
  const namespace = projectNamespace(project)
  const { name } = project.metadata
  switch (situation.is) {
    case "making":
      return { reason: "Making", message: `creating namespace ${namespace} and the rights of its members` }
    case "ready":
      return { reason: "Ready", message: `its objects are in namespace ${namespace}` }
    case "organizationMissing":
      return {
        reason: "OrganizationNotFound",
        message: `Organization ${project.spec.organization} does not exist: create it`,
      }
    case "namespaceReserved":
      return {
        reason: "NamespaceReserved",
        message: `no project may use namespace ${namespace}: create the project under another name`,
      }
    case "namespaceTaken": {
      const how = `to let this project use it, annotate it with ${ANNOTATIONS.adopt}=${name}`
      return { reason: "NamespaceTaken", message: `namespace ${namespace} was not created for this project: ${how}` }
    }
    case "namespaceEnding":
      return {
        reason: "NamespaceTerminating",
        message: `namespace ${namespace} is being deleted: it is created again after that`,
      }
    case "nameTaken":
      return {
        reason: "NameTaken",
        message: `${situation.name} was not created for this project, so Berth does not use it: delete it`,
      }
    case "blocked": {
      const jobs = situation.jobs === 1 ? "1 job is" : `${situation.jobs} jobs are`
      return {
        reason: "JobsNotOver",
        message: `${jobs} unfinished: the project is deleted after they have ended or were cancelled`,
      }
    }
    case "ending":
      return { reason: "Terminating", message: `namespace ${namespace} is being deleted` }
  }
}
