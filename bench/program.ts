import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { open, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import type { ControlPlane } from "../dev/controlplane/control-plane.ts"
import { freePort } from "../dev/controlplane/ports.ts"
import { clusterOf, programCredentials } from "../dev/program-credentials.ts"
import type { KubeClient } from "../src/core/kube/client.ts"

export const SYSTEM_NAMESPACE = "berth-system"

/** Time limit for a program to become ready, seconds. */
const READY_SECONDS = 300

/** Node.js' default heap in a container of 2 GiB, the chart's limit. On a large machine the default would be higher. */
const HEAP_MIB = 1024

/**
 * Linux counts a process' CPU time in ticks, this many a second (`getconf CLK_TCK`; the same on every platform of
 * Node.js).
 */
const TICKS_A_SECOND = 100

/** A program in a process of its own, so that its resource usage is measured separately. */
export interface Program {
  pid: number
  /** From its start until it was ready, seconds. */
  startSeconds: number
  /** Returns the memory of its live objects: the heap after a garbage collection, MiB. */
  heapMiB(): Promise<number>
  /** Stops it cleanly. */
  stop(): Promise<void>
}

export interface ProgramOptions {
  name: string
  script: string
  args: readonly string[]
  /** URL of /readyz, without that path. */
  url: string
  /** Folder of its log. */
  folder: string
  /** Further options of Node.js. */
  nodeOptions?: readonly string[]
  /** Folder for a CPU profile at its end; absent for none. */
  profileDir?: string | undefined
}

/** Starts a program of this project and resolves when it is ready. It always ends with this process. */
export async function startProgram(options: ProgramOptions): Promise<Program> {
  const { name, script, args, url, folder, nodeOptions = [], profileDir } = options
  const startedAt = performance.now()
  const logFile = join(folder, `${name}.log`)
  const log = await open(logFile, "a")
  const profiling = profileDir === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profileDir}`]
  const heap = `--max-old-space-size=${HEAP_MIB}`
  const inspector = `127.0.0.1:${await freePort()}`
  const flags = [heap, `--inspect=${inspector}`, ...nodeOptions, ...profiling]
  const started = spawn(process.execPath, [...flags, script, ...args], { stdio: ["ignore", log.fd, log.fd] })
  await log.close()
  const end = (): void => void started.kill("SIGTERM")
  process.once("exit", end)
  started.once("exit", () => process.off("exit", end))
  await ready(url, started).catch(async (cause: unknown) => {
    throw new Error(`the ${name} did not become ready:\n${await readFile(logFile, "utf8")}`, { cause })
  })
  return {
    pid: started.pid ?? 0,
    startSeconds: (performance.now() - startedAt) / 1000,
    heapMiB: () => heapAfterGcMiB(inspector),
    stop: () => stop(started),
  }
}

/** Collects the garbage of a process through its inspector, and returns what is left. */
async function heapAfterGcMiB(inspector: string): Promise<number> {
  const [target] = (await (await fetch(`http://${inspector}/json`)).json()) as { webSocketDebuggerUrl: string }[]
  const socket = new WebSocket(target?.webSocketDebuggerUrl ?? "")
  await once(socket, "open")
  const call = async (method: string, params: object = {}): Promise<unknown> => {
    const answered = once(socket, "message")
    socket.send(JSON.stringify({ id: 1, method, params }))
    const [{ data }] = (await answered) as [{ data: string }]
    return (JSON.parse(data) as { result: unknown }).result
  }
  try {
    // The second one frees what finalizers of the first one held.
    for (let n = 0; n < 2; n++) await call("HeapProfiler.collectGarbage")
    const evaluated = await call("Runtime.evaluate", { expression: "process.memoryUsage().heapUsed" })
    return (evaluated as { result: { value: number } }).result.value / 2 ** 20
  } finally {
    socket.close()
  }
}

/** Stops a process cleanly and waits for its end. */
export async function stop(child: ChildProcess): Promise<void> {
  const ended = child.exitCode === null && child.signalCode === null ? once(child, "exit") : undefined
  child.kill("SIGTERM")
  await ended
}

async function ready(url: string, program: ChildProcess): Promise<void> {
  const signal = AbortSignal.timeout(READY_SECONDS * 1000)
  while (program.exitCode === null) {
    const answer = await fetch(`${url}/readyz`, { signal }).catch((error: unknown) => {
      if (signal.aborted) throw error
    })
    if (answer?.ok) return
    await delay(50, undefined, { signal })
  }
  throw new Error(`it ended with exit code ${program.exitCode}`)
}

/** Returns a kubeconfig with a program's rights in a cluster. It is valid for an hour: longer than any benchmark. */
export async function kubeconfigOf(
  serviceAccount: "berth-facade" | "berth-operator",
  { controlPlane, client, folder }: { controlPlane: ControlPlane; client: KubeClient; folder: string },
): Promise<string> {
  const credentials = await programCredentials({
    client,
    cluster: clusterOf(controlPlane.kubeconfigPath),
    serviceAccount: { namespace: SYSTEM_NAMESPACE, name: serviceAccount },
    onError: (error) => console.error(error),
  })
  credentials.stop()
  const path = join(folder, `${serviceAccount}.kubeconfig`)
  await writeFile(path, credentials.kubeConfig.exportConfig(), { mode: 0o600 })
  return path
}

/** Resources that a process has used until now. */
export interface Usage {
  /** In user and system mode. */
  cpuSeconds: number
  residentMiB: number
  /** Maximum of the resident memory. */
  peakMiB: number
}

/** Reads a process' resource usage from Linux' /proc. */
export async function usageOf(pid: number): Promise<Usage> {
  const [stat, status] = await Promise.all(["stat", "status"].map((file) => readFile(`/proc/${pid}/${file}`, "utf8")))
  // The second field is the program's name in parentheses, which may contain spaces.
  const fields = (stat ?? "").slice((stat ?? "").lastIndexOf(")") + 2).split(" ")
  const kibibytes = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status ?? "")?.[1])
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND,
    residentMiB: kibibytes("VmRSS") / 1024,
    peakMiB: kibibytes("VmHWM") / 1024,
  }
}
