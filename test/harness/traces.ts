import { execFile } from "node:child_process"
import { readdir, readFile } from "node:fs/promises"
import { buffer } from "node:stream/consumers"
import { promisify } from "node:util"
import Docker from "dockerode"
import { pack } from "tar-stream"
import { eventually } from "./eventually.ts"

const run = promisify(execFile)

const LAUNCH_LABEL = "berth.dev/launch"

/** Process of this host. */
export interface RunningProcess {
  pid: number
  /** Its command line and environment. */
  text: string
}

/**
 * Returns every process of this host, except this one, whose command line or environment names the folder. Agents get
 * their folder as an argument, and their commands inherit it as HOME. The search does not depend on the local cloud's
 * records.
 */
export async function processesNaming(folder: string): Promise<RunningProcess[]> {
  const all = process.platform === "linux" ? await fromProc() : await fromPs()
  return all.filter(({ pid, text }) => text.includes(folder) && pid !== process.pid)
}

async function fromProc(): Promise<RunningProcess[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name))
  return await Promise.all(
    pids.map(async (pid) => {
      // Processes that end meanwhile, or belong to another user, don't count. A zombie's files are empty.
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

/** Container that an agent created. */
export interface AgentContainer {
  id: string
  launch: string
  state: string
}

/** Returns the containers of these Launches, running or not. */
export async function containersOf(socketPath: string, launches: readonly string[]): Promise<AgentContainer[]> {
  const filters = { label: [LAUNCH_LABEL] }
  const containers = await new Docker({ socketPath }).listContainers({ all: true, filters })
  return containers
    .map(({ Id, Labels, State }) => ({ id: Id, launch: Labels[LAUNCH_LABEL] ?? "", state: State }))
    .filter(({ launch }) => launches.includes(launch))
}

/** Creates an empty file in the working directory of a Launch's running container. Throws if there is no container. */
export async function touchInContainer(socketPath: string, launch: string, name: string): Promise<void> {
  const running = (await containersOf(socketPath, [launch])).find(({ state }) => state === "running")
  if (running === undefined) throw new Error(`no container of ${launch} runs`)
  const archive = pack()
  archive.entry({ name }, "")
  archive.finalize()
  await new Docker({ socketPath }).getContainer(running.id).putArchive(await buffer(archive), { path: "/" })
}

/** Resolves when no container is left. */
export async function removeContainers(socketPath: string, launches: readonly string[]): Promise<void> {
  const docker = new Docker({ socketPath })
  await eventually(async () => {
    for (const { id } of await containersOf(socketPath, launches)) {
      await docker.getContainer(id).remove({ force: true }).catch(ignoreGone)
    }
    const left = await containersOf(socketPath, launches)
    if (left.length > 0) throw new Error(`containers of ${left.map(({ launch }) => launch).join(", ")} are left`)
  })
}

/** Ignores that the agent or the cloud has removed it meanwhile (404) or is removing it (409). */
function ignoreGone(error: { statusCode?: number }): void {
  if (error.statusCode !== 404 && error.statusCode !== 409) throw error
}
