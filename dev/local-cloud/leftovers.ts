import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import Type, { type Static } from "typebox"
import Value from "typebox/value"
import { readJson, VmFolder } from "./folder.ts"
import { type ProcessIdentity, parseIdentity, readProcessTable, signal, treeOf } from "./processes.ts"

/** File on the VM's disk in which the agent's process runtime keeps the leader of a command's process group. */
const GROUP_FILE = "process.json"
const GroupSchema = Type.Object({ group: Type.Integer(), identity: Type.String() })

/**
 * Kills every process of a VM: its agent, a command that the agent has started without a container, and their
 * descendants. Returns true if there were any. They have ended only when a later call returns false.
 */
export async function killLeftovers(folder: VmFolder): Promise<boolean> {
  const leaders = [await folder.process(), await recordedGroup(folder)].filter((each) => typeof each === "object")
  const table = readProcessTable()
  const processes = leaders.flatMap((leader) => treeOf(leader, table))
  for (const { pid } of processes) signal(pid, "SIGKILL")
  return processes.length > 0
}

/**
 * Kills every process of all VMs in a folder before it returns, for a process that exits. Containers remain. A record
 * that can't be read is skipped.
 */
export function killAllNow(dataDir: string): void {
  const folders = readdirSync(dataDir).map((name) => new VmFolder(join(dataDir, name)))
  const table = readProcessTable()
  for (const leader of folders.flatMap(leadersNow)) for (const { pid } of treeOf(leader, table)) signal(pid, "SIGKILL")
}

function leadersNow({ disk, processFile }: VmFolder): ProcessIdentity[] {
  const agent = parsed(processFile, parseIdentity)
  const group = parsed(join(disk, GROUP_FILE), (text) => {
    const record: unknown = JSON.parse(text)
    return Value.Check(GroupSchema, record) ? leaderOf(record) : undefined
  })
  return [agent, group].filter((leader) => leader !== undefined)
}

function parsed<T>(path: string, parse: (text: string) => T | undefined): T | undefined {
  try {
    return parse(readFileSync(path, "utf8"))
  } catch {
    return undefined
  }
}

async function recordedGroup({ disk }: VmFolder): Promise<ProcessIdentity | undefined> {
  const record = await readJson(join(disk, GROUP_FILE), GroupSchema)
  return record && leaderOf(record)
}

function leaderOf({ group, identity }: Static<typeof GroupSchema>): ProcessIdentity {
  return { pid: group, startedAt: identity }
}
