import type { InstanceViewStatus } from "@azure/arm-compute"
import { defined } from "../../core/apis/defined.ts"

/** Status of a VM, from its instance view. */
export interface RunStatus {
  /** True if Azure has allocated a machine, which starts or runs. */
  runs: boolean
  /** True if the VM has stopped. It is still billed, for its machine or at least for its disk. */
  stopped: boolean
  /** Reason why the VM could not be provisioned. */
  failure?: { code: string; message: string }
}

/** Reads codes such as `PowerState/running` and `ProvisioningState/failed/AllocationFailed`. Pure. */
export function readRunStatus(statuses: readonly InstanceViewStatus[]): RunStatus {
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
    ...defined({ failure }),
  }
}
