import { isDeepStrictEqual } from "node:util"
import type { StoredOrganization } from "../../apis/organization.ts"
import { namespaceOf, PROJECT_FINALIZER, type ProjectStatus, type StoredProject } from "../../apis/project.ts"
import type { ServiceAccount } from "../../identity/machine-users.ts"
import { givesTheSame, type RoleBinding } from "../../identity/role-bindings.ts"
import type { Namespace } from "../../kube/core.ts"
import { bindingsOf, isMadeFor, mayAdopt, newNamespaceOf, roleUsersOf } from "./objects.ts"
import { type Situation, statusOf } from "./status.ts"

/** What there is of a project. */
export interface ProjectObservation {
  organization: StoredOrganization | undefined
  /** The namespace of the project's name, whoever made it. */
  namespace: Namespace | undefined
  /** ServiceAccounts and bindings of the names that are needed, whoever made them. */
  users: readonly ServiceAccount[]
  bindings: readonly RoleBinding[]
  /** Jobs in its namespace that are not over; reckoned when the project is being deleted. */
  unfinishedJobs: number
  /** Namespaces that no project may have. */
  reservedNamespaces: readonly string[]
}

export type ProjectAction =
  | { do: "addFinalizer" }
  | { do: "createNamespace"; namespace: Namespace }
  | { do: "deleteNamespace"; namespace: Namespace }
  /** What a new namespace begins with. */
  | { do: "createDefaults" }
  | { do: "createUser"; user: ServiceAccount }
  | { do: "deleteUser"; user: ServiceAccount }
  | { do: "createBinding"; binding: RoleBinding }
  | { do: "replaceBinding"; binding: RoleBinding }
  | { do: "deleteBinding"; binding: RoleBinding }
  | { do: "dropFinalizer" }

export interface ProjectDecision {
  /** To be written before the actions; undefined: as it is. */
  status?: ProjectStatus
  /** In order; each one needs those before it. */
  actions: ProjectAction[]
  /** Seconds after which what no watch tells may have changed. */
  requeueAfter?: number
}

/** How often it is looked whether somebody has freed or lent a namespace, or a name; seconds. */
const TAKEN_AGAIN_SECONDS = 30
/** How often it is looked whether jobs are over or a namespace is gone, seconds. */
const WAIT_SECONDS = 5

/** What is to be done about a project. Pure. */
export function decide(project: StoredProject, observed: ProjectObservation, now: Date): ProjectDecision {
  if (project.metadata.deletionTimestamp !== undefined) return removal(project, observed, now)
  const obstacle = obstacleOf(project, observed)
  if (obstacle !== undefined) {
    return { ...changed(project, obstacle, now), actions: [], requeueAfter: TAKEN_AGAIN_SECONDS }
  }
  const actions = [...finalizer(project), ...inhabit(project, observed)]
  return { ...changed(project, { is: actions.length > 0 ? "making" : "ready" }, now), actions }
}

/** Why a project can't have its namespace. */
function obstacleOf(project: StoredProject, observed: ProjectObservation): Situation | undefined {
  const { organization, namespace: found, reservedNamespaces } = observed
  const name = namespaceOf(project)
  if (reservedNamespaces.includes(name) || name.startsWith("kube-")) return { is: "namespaceReserved" }
  // One that has its namespace keeps it, with its own members.
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
 * The namespace, then what it begins with, then rights in it. Its beginnings are made as long as rights are missing: so they
 * are there when the project is ready, and what their owners do with them afterwards stays.
 */
function inhabit(project: StoredProject, observed: ProjectObservation): ProjectAction[] {
  const { namespace } = observed
  if (namespace === undefined) return [{ do: "createNamespace", namespace: newNamespaceOf(project) }]
  const rights = [...users(project, observed), ...bindings(project, observed)]
  const isNew = project.status?.namespace === undefined && isMadeFor(namespace, project)
  return isNew && rights.length > 0 ? [{ do: "createDefaults" }, ...rights] : rights
}

function users(project: StoredProject, observed: ProjectObservation): ProjectAction[] {
  const present = new Set(observed.users.map(({ metadata }) => metadata.name))
  return roleUsersOf(project)
    .filter(({ metadata }) => !present.has(metadata.name))
    .map((user) => ({ do: "createUser", user }))
}

function bindings(project: StoredProject, { organization, bindings: present }: ProjectObservation): ProjectAction[] {
  return bindingsOf(project, organization).flatMap((wanted): ProjectAction[] => {
    const found = present.find(({ metadata }) => metadata.name === wanted.metadata.name)
    if (found === undefined) return [{ do: "createBinding", binding: wanted }]
    if (givesTheSame(found, wanted)) return []
    // A binding's role can't be changed, only whom it is given to.
    if (!isDeepStrictEqual(found.roleRef, wanted.roleRef)) return [{ do: "deleteBinding", binding: found }]
    const { resourceVersion = "" } = found.metadata
    return [{ do: "replaceBinding", binding: { ...wanted, metadata: { ...wanted.metadata, resourceVersion } } }]
  })
}

/** First the jobs, which nobody but their owners ends; then the namespace, if it was made for the project; then the rights. */
function removal(project: StoredProject, observed: ProjectObservation, now: Date): ProjectDecision {
  const { namespace: found, unfinishedJobs } = observed
  if (!project.metadata.finalizers?.includes(PROJECT_FINALIZER)) return { actions: [] }
  if (unfinishedJobs > 0) {
    const blocked = changed(project, { is: "blocked", jobs: unfinishedJobs }, now)
    return { ...blocked, actions: [], requeueAfter: WAIT_SECONDS }
  }
  if (found !== undefined && isMadeFor(found, project)) {
    const isEnding = found.metadata.deletionTimestamp !== undefined
    const actions: ProjectAction[] = isEnding ? [] : [{ do: "deleteNamespace", namespace: found }]
    return { ...changed(project, { is: "ending" }, now), actions, requeueAfter: WAIT_SECONDS }
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

function changed(project: StoredProject, situation: Situation, now: Date): { status?: ProjectStatus } {
  const status = statusOf(project, situation, now)
  return isDeepStrictEqual(status, project.status) ? {} : { status }
}
