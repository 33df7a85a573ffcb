import type { StoredOrganization } from "../../core/apis/organization.ts"
import { projectNamespace, type StoredProject } from "../../core/apis/project.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { ApiObject } from "../../core/kube/resource.ts"
import type { Store } from "../../core/kube/store.ts"
import type { ProjectControllerDependencies } from "./dependencies.ts"

/**
 * Returns true if this operator handles a project: it serves the project's namespace. It also handles every deleted
 * project, whose namespace may have changed: each operator decides the same from live reads.
 */
export function handlesProject(
  project: StoredProject,
  { watchNamespace }: Pick<ProjectControllerDependencies, "watchNamespace">,
): boolean {
  const isDeleted = project.metadata.deletionTimestamp !== undefined
  return watchNamespace === undefined || isDeleted || projectNamespace(project) === watchNamespace
}

/** Returns true if this operator handles an organization: that of a project in its namespace, or a deleted one. */
export function handlesOrganization(
  { metadata }: StoredOrganization,
  options: Pick<ProjectControllerDependencies, "watchNamespace"> & {
    projects: Pick<Reflector<StoredProject>, "store">
  },
): boolean {
  const { watchNamespace, projects } = options
  if (watchNamespace === undefined || metadata.deletionTimestamp !== undefined) return true
  const its = projects.store.list().filter(({ spec }) => spec.organization === metadata.name)
  return its.some((project) => projectNamespace(project) === watchNamespace)
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
