import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { open, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import type { ControlPlane } from "../dev/controlplane/control-plane.ts"
import { clusterOf, programCredentials } from "../dev/program-credentials.ts"
import type { KubeClient } from "../src/kube/client.ts"

export const SYSTEM_NAMESPACE = "berth-system"

/** How long a program may take until it is ready, seconds. */
const READY_SECONDS = 300

/**
 * What Node.js takes for its heap in a container of 2 GiB, the limit that the chart sets; of a large machine it would take
 * more.
 */
const HEAP_MIB = 1024

/** Linux counts a process' time in these, a second (`getconf CLK_TCK`; the same on every platform that Node.js has). */
const TICKS_A_SECOND = 100

/** A program in a process of its own, so that what it uses is its alone. */
export interface Program {
  pid: number
  /** From its start until it was ready, seconds. */
  startSeconds: number
  /** Ends it in order. */
  stop(): Promise<void>
}

export interface ProgramOptions {
  name: string
  script: string
  args: readonly string[]
  /** Of /readyz, without it. */
  url: string
  /** Where its log goes. */
  folder: string
  /** Where a CPU profile goes when it ends; absent: none is made. */
  profileDir?: string | undefined
}

/** Starts a program of this project and resolves when it is ready. It ends with this process, however that ends. */
export async function startProgram(options: ProgramOptions): Promise<Program> {
  const { name, script, args, url, folder, profileDir } = options
  const startedAt = performance.now()
  const logFile = join(folder, `${name}.log`)
  const log = await open(logFile, "a")
  const profiling = profileDir === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profileDir}`]
  const heap = `--max-old-space-size=${HEAP_MIB}`
  const started = spawn(process.execPath, [heap, ...profiling, script, ...args], { stdio: ["ignore", log.fd, log.fd] })
  await log.close()
  const end = (): void => void started.kill("SIGTERM")
  process.once("exit", end)
  started.once("exit", () => process.off("exit", end))
  await ready(url, started).catch(async (cause: unknown) => {
    throw new Error(`the ${name} does not become ready:\n${await readFile(logFile, "utf8")}`, { cause })
  })
  return {
    pid: started.pid ?? 0,
    startSeconds: (performance.now() - startedAt) / 1000,
    stop: () => stop(started),
  }
}

/** Ends a process in order and waits for its end. */
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

/** A kubeconfig with the rights that a program has in a cluster, good for an hour: longer than any benchmark. */
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

/** What a process has used so far. */
export interface Usage {
  /** In user and system mode. */
  cpuSeconds: number
  residentMiB: number
  /** The most that was ever resident. */
  peakMiB: number
}

/** Reads what a process uses from Linux' /proc. */
export async function usageOf(pid: number): Promise<Usage> {
  const [stat, status] = await Promise.all(["stat", "status"].map((file) => readFile(`/proc/${pid}/${file}`, "utf8")))
  // The second field is the program's name in parentheses, which may have spaces.
  const fields = (stat ?? "").slice((stat ?? "").lastIndexOf(")") + 2).split(" ")
  const kibibytes = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "m").exec(status ?? "")?.[1])
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND,
    residentMiB: kibibytes("VmRSS") / 1024,
    peakMiB: kibibytes("VmHWM") / 1024,
  }
}
