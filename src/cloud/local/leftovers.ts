import type { VmFolder } from "./folder.ts"
import { readProcessTable, signal, treeOf } from "./processes.ts"

/**
 * Kills every process of a VM: its agent, if it lives, and whatever stems from it. True when there was any: they are
 * gone only when a later call returns false.
 */
export async function killLeftovers(folder: VmFolder): Promise<boolean> {
  const agent = await folder.process()
  if (typeof agent !== "object") return false
  const processes = treeOf(agent, await readProcessTable())
  for (const { pid } of processes) signal(pid, "SIGKILL")
  return processes.length > 0
}
