import type { StoredJob } from "../core/apis/job.ts"
import type { StoredJobArray } from "../core/apis/jobarray.ts"
import type { PrerequisiteName } from "../core/apis/prerequisites.ts"
import type { Store } from "../core/kube/store.ts"
import type { Obstacle } from "../core/order/prerequisites.ts"
import { dependentGroups, isDependent, type Ordered, obstacleTo } from "../core/order/waiting.ts"
import type { PlannedOrder } from "../market/placement/place.ts"
import { waitingIn } from "./caches.ts"

/** Order of a project's jobs and arrays, from the façade's caches. */

/** Job or array, with its name as a prerequisite. */
export type OrderedObject = Ordered<StoredJob | StoredJobArray>

export function orderedJob(job: StoredJob): OrderedObject {
  return { name: { job: job.metadata.name }, object: job }
}

export function orderedArray(array: StoredJobArray): OrderedObject {
  return { name: { array: array.metadata.name }, object: array }
}

/** Caches of all that has an order. */
export interface OrderStores {
  jobs: Pick<Store<StoredJob>, "get" | "byIndex">
  jobArrays: Pick<Store<StoredJobArray>, "get" | "byIndex">
}

/** Returns the jobs and arrays that wait for one themselves, arrays first. */
function directDependents({ jobs, jobArrays }: OrderStores, one: OrderedObject): OrderedObject[] {
  const { namespace = "" } = one.object.metadata
  const waiting = [
    ...waitingIn(jobArrays, namespace, one.name).map(orderedArray),
    ...waitingIn(jobs, namespace, one.name).map(orderedJob),
  ]
  return waiting.filter((other) => isDependent(other, one))
}

/** Returns the jobs and arrays that wait for one, also through others, in the groups of `dependentGroups`. */
export function dependentsOf(stores: OrderStores, one: OrderedObject): OrderedObject[][] {
  return dependentGroups(one, (other) => directDependents(stores, other))
}

/** Returns why a planned job or array would not start yet, or never, for lack of its prerequisites. */
export function plannedObstacle(
  { jobs, jobArrays }: OrderStores,
  namespace: string,
  { name, after = [] }: PlannedOrder,
): Obstacle | undefined {
  if (after.length === 0) return undefined
  const find = ({ job, array = "" }: PrerequisiteName) =>
    job === undefined ? jobArrays.get({ namespace, name: array }) : jobs.get({ namespace, name: job })
  const metadata = { name: name.job ?? name.array ?? "", namespace }
  return obstacleTo(name, { metadata, spec: { after } }, find)
}
