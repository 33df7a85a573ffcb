import type { StoredJob } from "../../apis/job.ts"
import { isOwnFieldManager, type ObjectMeta } from "../../apis/meta.ts"
import type { ReflectorOptions } from "../../kube/reflector.ts"
import type { ServerMeta } from "../../kube/resource.ts"
import { UNSETTLED } from "../settled-jobs.ts"
import { JOBS } from "./options.ts"

const OWN = Symbol("true if only Berth has written the object")

interface WithOwner {
  [OWN]?: boolean
}

/**
 * Keeps the answer of `isWrittenByBerth` before the reflector removes `managedFields`. The key is a symbol, which no
 * serialized copy of the object has.
 */
function keepOwner<T extends { metadata: ObjectMeta }>(object: T): T {
  return Object.assign(object, { [OWN]: isWrittenByBerth(object) })
}

/**
 * Returns true if no one but Berth has written fields of the object: no `kubectl`, Helm or GitOps tool owns any. False
 * for an object that did not pass through the cache of Jobs and has no `managedFields`.
 */
export function isWrittenByBerth(object: { metadata: ObjectMeta }): boolean {
  const { managedFields } = object.metadata as ServerMeta
  if (managedFields === undefined) return (object as WithOwner)[OWN] === true
  return managedFields.every(({ manager = "", operation }) => operation === "Update" && isOwnFieldManager(manager))
}

/** Cache of the Jobs that are not settled. */
export const JOB_CACHE: Required<Pick<ReflectorOptions<StoredJob>, "resource" | "fieldSelector" | "transform">> = {
  resource: JOBS,
  ...UNSETTLED,
  transform: keepOwner,
}
