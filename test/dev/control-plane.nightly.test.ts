import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node"
import { beforeEach, describe, expect, inject, it, onTestFinished } from "vitest"
import { type ControlPlane, startControlPlane } from "../../dev/controlplane/control-plane.ts"
import { eventually } from "../harness/eventually.ts"

const binaries = inject("controlPlaneBinaries")
let dataDir: string

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "berth-private-"))
  return () => rm(dataDir, { recursive: true })
})

function api(controlPlane: Pick<ControlPlane, "kubeconfigPath">) {
  const config = new KubeConfig()
  config.loadFromFile(controlPlane.kubeconfigPath)
  return config.makeApiClient(CoreV1Api)
}

async function start() {
  const controlPlane = await startControlPlane({ binaries, dataDir, durable: false })
  onTestFinished(() => controlPlane.stop())
  return controlPlane
}

interface Held {
  readonly pids: readonly number[]
  readonly url: string
  readonly kubeconfigPath: string
  readonly parent: ChildProcess
}

/** Starts a control plane whose parent is a process of its own, which can be killed. */
async function startInChild(): Promise<Held> {
  const module = new URL("../../dev/controlplane/control-plane.ts", import.meta.url).href
  const script = `
    const { startControlPlane } = await import(${JSON.stringify(module)})
    const { pids, url, kubeconfigPath } = await startControlPlane(${JSON.stringify({ binaries, dataDir, durable: true })})
    console.log(JSON.stringify({ pids: Object.values(pids), url, kubeconfigPath }))`
  const parent = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  })
  onTestFinished(() => void parent.kill("SIGKILL"))
  const [line] = (await once(createInterface({ input: parent.stdout }), "line")) as [string]
  return { ...(JSON.parse(line) as Omit<Held, "parent">), parent }
}

/** Returns the pids of living processes whose command line names the data directory: servers and supervisors. */
async function processesOn(directory: string): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name))
  const commands = pids.map(async (pid) => {
    const command = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")
    return { pid, ours: command.includes(directory) && Number(pid) !== process.pid }
  })
  return (await Promise.all(commands)).filter(({ ours }) => ours).map(({ pid }) => pid)
}

/** Waits until no such process is left: a killed process takes a moment to end. */
function noProcessesOn(directory: string): Promise<void> {
  return eventually(async () => expect(await processesOn(directory)).toEqual([]))
}

async function isListening(url: string): Promise<boolean> {
  const socket = connect(Number(new URL(url).port), "127.0.0.1")
  try {
    await once(socket, "connect")
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

describe("a control plane", () => {
  it("locks its data directory, keeps data and address between starts and leaves no process behind", async () => {
    const first = await start()
    expect((await stat(first.kubeconfigPath)).mode & 0o777).toBe(0o600)
    const kubeconfig = await readFile(first.kubeconfigPath, "utf8")
    await expect(startControlPlane({ binaries, dataDir })).rejects.toThrow(
      `${dataDir} is in use by process ${process.pid}: stop that first`,
    )
    await api(first).createNamespace({ body: { metadata: { name: "kept" } } })
    await first.stop()
    expect(await isListening(first.url)).toBe(false)

    const second = await start()
    expect(await readFile(second.kubeconfigPath, "utf8")).toBe(kubeconfig)
    expect((await api(second).readNamespace({ name: "kept" })).metadata?.name).toBe("kept")
    await second.stop()
    expect(await readdir(join(dataDir, "run"))).toEqual([])
  })

  it("restarts its API server at the same address, even after a kill, and reports its end", async () => {
    const failures: Error[] = []
    const controlPlane = await startControlPlane({
      binaries,
      dataDir,
      durable: false,
      onFailure: (error) => void failures.push(error),
    })
    onTestFinished(() => controlPlane.stop())
    const { apiServerPid } = controlPlane
    await controlPlane.restartApiServer()
    expect(controlPlane.apiServerPid).not.toBe(apiServerPid)
    await api(controlPlane).readNamespace({ name: "default" })
    expect(failures).toEqual([])

    process.kill(controlPlane.apiServerPid, "SIGKILL")
    await eventually(() => expect(failures.map(String)).toEqual([expect.stringContaining("kube-apiserver ended")]))
    await controlPlane.restartApiServer()
    await api(controlPlane).readNamespace({ name: "default" })
    // Stops before the data is removed, which happens before the test's cleanup.
    await controlPlane.stop()
  })

  it("prints the last log lines of a server that does not start", async () => {
    const broken = join(dataDir, "broken")
    await writeFile(broken, "#!/bin/sh\necho no good weather >&2\nexit 3\n")
    await chmod(broken, 0o755)
    const started = () => startControlPlane({ binaries: { ...binaries, "kube-apiserver": broken }, dataDir })
    await expect(started()).rejects.toThrow(/kube-apiserver ended \(exit code 3\).*\nno good weather/)
    await noProcessesOn(dataDir)
    await expect(started()).rejects.toThrow(/no good weather/)
  })
})

describe.runIf(process.platform === "linux")("a control plane whose parent is killed", () => {
  it("ends with its parent, and a waiting start gets its ports and all its data", async () => {
    const { parent, pids, url, kubeconfigPath } = await startInChild()
    await api({ kubeconfigPath }).createNamespace({ body: { metadata: { name: "survivor" } } })
    const before = await processesOn(dataDir)
    expect(before.length).toBeGreaterThanOrEqual(2 * pids.length)

    parent.kill("SIGKILL")
    await once(parent, "exit")
    const next = await start()
    await eventually(async () => {
      const after = await processesOn(dataDir)
      expect(before.filter((pid) => after.includes(pid))).toEqual([])
    })
    expect(next.url).toBe(url)
    expect((await api(next).readNamespace({ name: "survivor" })).metadata?.name).toBe("survivor")

    await next.stop()
    await noProcessesOn(dataDir)
    expect(await isListening(url)).toBe(false)
  })
})
