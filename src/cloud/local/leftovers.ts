import { join } from "node:path"
import Type from "typebox"
import { readJson, type VmFolder } from "./folder.ts"
import { type ProcessIdentity, readProcessTable, signal, treeOf } from "./processes.ts"

/** File on the VM's disk in which the agent's process runtime keeps the leader of a command's process group. */
const GROUP_FILE = "process.json"
const GroupSchema = Type.Object({ group: Type.Integer(), identity: Type.String() })

/**
 * Kills every process of a VM: its agent, a command that the agent has started without a container, and their
 * descendants. Returns true if there were any. They have ended only when a later call returns false.
 */
export async function killLeftovers(folder: VmFolder): Promise<boolean> {
  const leaders = [await folder.process(), await recordedGroup(folder)].filter((each) => typeof each === "object")
  const table = await readProcessTable()
  const processes = leaders.flatMap((leader) => treeOf(leader, table))
  for (const { pid } of processes) signal(pid, "SIGKILL")
  return processes.length > 0
}

async function recordedGroup({ disk }: VmFolder): Promise<ProcessIdentity | undefined> {
  const record = await readJson(join(disk, GROUP_FILE), GroupSchema)
  return record && { pid: record.group, startedAt: record.identity }
}
