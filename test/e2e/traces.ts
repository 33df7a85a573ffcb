import { execFile } from "node:child_process"
import { readdir, readFile } from "node:fs/promises"
import { promisify } from "node:util"
import Docker from "dockerode"

const run = promisify(execFile)

const LAUNCH_LABEL = "berth.dev/launch"

/** A process of this host. */
export interface RunningProcess {
  pid: number
  /** Its command line and environment. */
  text: string
}

/**
 * Every process of this host, but this one, whose command line or environment names the folder: agents are given
 * theirs, and the commands that they start inherit it as HOME. Independent of what the local cloud has written down.
 */
export async function processesNaming(folder: string): Promise<RunningProcess[]> {
  const all = process.platform === "linux" ? await fromProc() : await fromPs()
  return all.filter(({ pid, text }) => text.includes(folder) && pid !== process.pid)
}

async function fromProc(): Promise<RunningProcess[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name))
  return await Promise.all(
    pids.map(async (pid) => {
      // What ends while it is looked at, or is another user's, is none of ours. A zombie's files are empty.
      const read = (file: string) => readFile(`/proc/${pid}/${file}`, "utf8").catch(() => "")
      const text = `${await read("cmdline")} ${await read("environ")}`
      return { pid: Number(pid), text: text.replaceAll("\0", " ") }
    }),
  )
}

async function fromPs(): Promise<RunningProcess[]> {
  const { stdout } = await run("ps", ["-A", "-E", "-ww", "-o", "pid=,command="], { maxBuffer: 64 * 1024 * 1024 })
  const lines = stdout.split("\n").map((line) => /^\s*(\d+)\s(.*)$/.exec(line))
  return lines.filter((match) => match !== null).map(([, pid, text = ""]) => ({ pid: Number(pid), text }))
}

/** A container that an agent made. */
export interface AgentContainer {
  id: string
  launch: string
  state: string
}

/** The containers of these Launches, running or not. */
export async function containersOf(socketPath: string, launches: readonly string[]): Promise<AgentContainer[]> {
  const filters = { label: [LAUNCH_LABEL] }
  const containers = await new Docker({ socketPath }).listContainers({ all: true, filters })
  return containers
    .map(({ Id, Labels, State }) => ({ id: Id, launch: Labels[LAUNCH_LABEL] ?? "", state: State }))
    .filter(({ launch }) => launches.includes(launch))
}

/** Sends a signal to the first process of a Launch's running container. Throws when there is none. */
export async function signalContainer(socketPath: string, launch: string, signal: NodeJS.Signals): Promise<void> {
  const running = (await containersOf(socketPath, [launch])).find(({ state }) => state === "running")
  if (running === undefined) throw new Error(`no container of ${launch} runs`)
  await new Docker({ socketPath }).getContainer(running.id).kill({ signal })
}

export async function removeContainers(socketPath: string, launches: readonly string[]): Promise<void> {
  const docker = new Docker({ socketPath })
  const containers = await containersOf(socketPath, launches)
  await Promise.all(containers.map(({ id }) => docker.getContainer(id).remove({ force: true })))
}
