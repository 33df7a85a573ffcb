import type { StoredJobArray } from "../../core/apis/jobarray.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { CreatorControllerDependencies } from "../created-jobs.ts"
import type { Prerequisites } from "../prerequisites.ts"

/** Dependencies of the array controller. */
export interface ArrayControllerDependencies extends CreatorControllerDependencies {
  jobArrays: Reflector<StoredJobArray>
  /** Prerequisites of arrays. */
  prerequisites: Prerequisites
  /** Time for which an ended array is kept, unless it says otherwise. */
  ttlSeconds: number
  /** Arrays reconciled at the same time. Default 4. */
  workers?: number
}
