import { execFile } from "node:child_process"
import { readdir, readFile } from "node:fs/promises"
import { promisify } from "node:util"
import Docker from "dockerode"

const run = promisify(execFile)

const LAUNCH_LABEL = "berth.dev/launch"

/**
 * Every process of this host whose command line or environment names the folder, as `pid command`: agents are given
 * theirs, and the commands that they start inherit it as HOME. Independent of what the local cloud has written down.
 */
export async function processesNaming(folder: string): Promise<string[]> {
  const all = process.platform === "linux" ? await fromProc() : await fromPs()
  return all.filter((line) => line.includes(folder) && !line.startsWith(`${process.pid} `))
}

async function fromProc(): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name))
  const texts = await Promise.all(
    pids.map(async (pid) => {
      // What ends while it is looked at, or is another user's, is none of ours. A zombie's files are empty.
      const read = (file: string) => readFile(`/proc/${pid}/${file}`, "utf8").catch(() => "")
      return `${pid} ${await read("cmdline")} ${await read("environ")}`
    }),
  )
  return texts.map((text) => text.replaceAll("\0", " "))
}

async function fromPs(): Promise<string[]> {
  const { stdout } = await run("ps", ["-A", "-E", "-ww", "-o", "pid=,command="], { maxBuffer: 64 * 1024 * 1024 })
  return stdout.split("\n").map((line) => line.trim())
}

/** Names of the Launches, of those given, that have a container, running or not. */
export async function launchesWithContainer(socketPath: string, launches: readonly string[]): Promise<string[]> {
  const containers = await containersOf(socketPath)
  return containers.map(({ launch }) => launch).filter((launch) => launches.includes(launch))
}

/** Sends a signal to the first process of a Launch's running container. Throws when there is none. */
export async function signalContainer(socketPath: string, launch: string, signal: NodeJS.Signals): Promise<void> {
  const containers = await containersOf(socketPath)
  const running = containers.find((container) => container.launch === launch && container.state === "running")
  if (running === undefined) throw new Error(`no container of ${launch} runs`)
  await new Docker({ socketPath }).getContainer(running.id).kill({ signal })
}

async function containersOf(socketPath: string): Promise<{ id: string; launch: string; state: string }[]> {
  const filters = { label: [LAUNCH_LABEL] }
  const containers = await new Docker({ socketPath }).listContainers({ all: true, filters })
  return containers.map(({ Id, Labels, State }) => ({ id: Id, launch: Labels[LAUNCH_LABEL] ?? "", state: State }))
}
