import { JOB_ARRAY, type StoredJobArray } from "../../apis/jobarray.ts"
import type { Reflector } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { CreatorControllerOptions, CreatorOptions } from "../created-jobs.ts"
import type { StatusReplacer, Writer } from "../writes.ts"

export const JOB_ARRAYS = resourceOf<StoredJobArray>(JOB_ARRAY)

/** Owner of the fields that the array controller writes. */
export const FIELD_MANAGER = "berth-array-controller"

/** Dependencies of the array controller. */
export interface ArrayControllerOptions extends CreatorControllerOptions {
  jobArrays: Reflector<StoredJobArray>
  /** Time for which an ended array is kept, unless it says otherwise. */
  ttlSeconds: number
  /** Arrays reconciled at the same time. Default 4. */
  workers?: number
}

/** Returns the options of the actions on Jobs. */
export function creatorOf(options: ArrayControllerOptions): CreatorOptions {
  return { ...options, fieldManager: FIELD_MANAGER }
}

export function arrayWriter({
  client,
  jobArrays,
}: ArrayControllerOptions): Writer<StoredJobArray> & StatusReplacer<StoredJobArray> {
  return { client, fieldManager: FIELD_MANAGER, resource: JOB_ARRAYS, store: jobArrays.store }
}
