import type { StoredJobArray } from "../../core/apis/jobarray.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { ReuseDefault } from "../../core/reuse/reuse.ts"
import type { CreatorControllerDependencies } from "../created-jobs.ts"
import type { Prerequisites } from "../prerequisites.ts"

/** Dependencies of the array controller. */
export interface ArrayControllerDependencies extends CreatorControllerDependencies {
  jobArrays: Reflector<StoredJobArray>
  /** Launches with the options `LAUNCH_CACHE`, among which are those whose VMs wait for an array's jobs. */
  launches: Reflector<StoredLaunch>
  /** Prerequisites of arrays. */
  prerequisites: Prerequisites
  /** Time for which an ended array is kept, unless it says otherwise. */
  ttlSeconds: number
  /** Reuse of the VMs of jobs that say nothing about it. Default: none. */
  reuseDefault?: ReuseDefault
  /** Arrays reconciled at the same time. Default 4. */
  workers?: number
}
