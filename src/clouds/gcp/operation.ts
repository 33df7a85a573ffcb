import type { protos } from "@google-cloud/compute"

/** Compute Engine's progress and result of a request. */
export type Operation = protos.google.cloud.compute.v1.IOperation

/** Number of `Operation.Status.DONE` in the SDK's enum. The API returns a status by name or by number. */
const DONE_NUMBER = 2_104_194

/** Returns true if the operation has ended, with or without an error. */
export function isDone({ status }: Operation): boolean {
  return status === "DONE" || status === DONE_NUMBER
}
