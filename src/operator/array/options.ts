import type { StoredJobArray } from "../../core/apis/jobarray.ts"
import { JOB_ARRAYS } from "../../core/kinds.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { CreatorControllerOptions, CreatorOptions } from "../created-jobs.ts"
import type { StatusReplacer, Writer } from "../writes.ts"

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
