import { isTerminal, type StoredJob } from "../../core/apis/job.ts"
import { projectNamespace, type StoredProject } from "../../core/apis/project.ts"
import { SERVICE_ACCOUNTS } from "../../core/identity/machine-users.ts"
import { ROLE_BINDINGS } from "../../core/identity/role-bindings.ts"
import { NAMESPACES } from "../../core/kube/core.ts"
import { ifFound } from "../../core/kube/errors.ts"
import type { ApiObject, ObjectRef, Resource } from "../../core/kube/resource.ts"
import type { Store } from "../../core/kube/store.ts"
import { JOBS } from "../../core/resources.ts"
import { UNSETTLED } from "../settled-jobs.ts"
import type { ProjectObservation } from "./decide.ts"
import type { ProjectControllerDependencies } from "./dependencies.ts"
import { buildBindings, buildRoleUsers } from "./objects.ts"

/**
 * Reads the facts about a project. Objects that the caches lack are read live, as another client may have created them.
 */
export async function gather(
  project: StoredProject,
  options: ProjectControllerDependencies,
): Promise<ProjectObservation> {
  const organization = options.organizations.store.get({ name: project.spec.organization })
  const find = <T extends ApiObject>(resource: Resource<T>, store: Store<T>, refs: readonly ObjectRef[]) =>
    findAll({ client: options.client, resource, store }, refs)
  const name = projectNamespace(project)
  const [namespace] = await find(NAMESPACES, options.namespaces.store, [{ name }])
  const users = buildRoleUsers(project).map(({ metadata }) => metadata)
  const bindings = buildBindings(project, organization).map(({ metadata }) => metadata)
  const isDeleted = project.metadata.deletionTimestamp !== undefined
  return {
    organization,
    namespace,
    users: await find(SERVICE_ACCOUNTS, options.users.store, users),
    bindings: namespace === undefined ? [] : await find(ROLE_BINDINGS, options.memberBindings.store, bindings),
    unfinishedJobs: isDeleted ? await unfinishedJobs(name, options) : 0,
    reservedNamespaces: options.reservedNamespaces,
  }
}

/** Counts unfinished jobs. Zero needs a live read: the cache may be stale, or of another namespace. */
async function unfinishedJobs(namespace: string, { client, jobs }: ProjectControllerDependencies): Promise<number> {
  const unfinished = (all: readonly StoredJob[]) => all.filter(({ status }) => !isTerminal(status?.phase)).length
  const cached = unfinished(jobs.store.list().filter(({ metadata }) => metadata.namespace === namespace))
  return cached > 0 ? cached : unfinished((await client.list(JOBS, { namespace, ...UNSETTLED })).items)
}

interface Source<T extends ApiObject> {
  client: ProjectControllerDependencies["client"]
  resource: Resource<T>
  store: Store<T>
}

async function findAll<T extends ApiObject>(source: Source<T>, refs: readonly ObjectRef[]): Promise<T[]> {
  const found = await Promise.all(refs.map((ref) => source.store.get(ref) ?? read(source, ref)))
  return found.filter((object) => object !== undefined)
}

async function read<T extends ApiObject>(
  { client, resource }: Source<T>,
  { namespace, name }: ObjectRef,
): Promise<T | undefined> {
  return ifFound(client.get(resource, { namespace, name }))
}
