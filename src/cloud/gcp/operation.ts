import type { protos } from "@google-cloud/compute"

/** What Compute Engine does about a request, and what became of it. */
export type Operation = protos.google.cloud.compute.v1.IOperation

/** The API tells a status by name, or by its number in the SDK's enum (`Operation.Status.DONE`). */
const DONE_NUMBER = 2_104_194

/** Whether it has ended, well or not. */
export function isDone({ status }: Operation): boolean {
  return status === "DONE" || status === DONE_NUMBER
}
