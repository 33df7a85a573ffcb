import type { InstanceViewStatus } from "@azure/arm-compute"

/** How a VM does, by its instance view. */
export interface RunStatus {
  /** A machine was found for it, which starts or runs. */
  runs: boolean
  /** It runs no more; it is billed none the less, for its machine or at least for its disk. */
  stopped: boolean
  /** Why it could not be provisioned. */
  failure?: { code: string; message: string }
}

/** Reads what Azure says in codes such as `PowerState/running` and `ProvisioningState/failed/AllocationFailed`. Pure. */
export function runStatusOf(statuses: readonly InstanceViewStatus[]): RunStatus {
  const codes = statuses.map(({ code = "" }) => code)
  const power = codes.find((code) => code.startsWith("PowerState/"))?.split("/")[1]
  const failed = statuses.find(({ code = "" }) => code.startsWith("ProvisioningState/failed"))
  const failure = failed && {
    code: failed.code?.split("/")[2] ?? "ProvisioningFailed",
    message: failed.message ?? failed.displayStatus ?? "Azure could not provision the VM",
  }
  return {
    runs: power === "running" || power === "starting",
    stopped: power === "stopped" || power === "stopping" || power === "deallocated" || power === "deallocating",
    ...(failure !== undefined && { failure }),
  }
}
