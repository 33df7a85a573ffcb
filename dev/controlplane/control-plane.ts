import { mkdir, readFile } from "node:fs/promises"
import { join, resolve } from "node:path"
import { unlessAborted } from "../unless-aborted.ts"
import { type AuditFiles, apiServerFlags, controllerManagerFlags, etcdFlags, type Layout } from "./flags.ts"
import { writeKubeconfig } from "./kubeconfig.ts"
import { type Lock, LockHeldError, takeLock } from "./lock.ts"
import { loadPki, type Pki } from "./pki.ts"
import { freePort } from "./ports.ts"
import { type Binaries, type Report, SERVERS, type ServerName } from "./programs.ts"
import { type Probe, probe } from "./readiness.ts"
import { awaitLeftover, type SupervisedServer, startServer } from "./supervised.ts"

const START_TIMEOUT_MS = 120_000
/** Another process may take a port between its choice and its use. */
const PORT_ATTEMPTS = 3

export interface ControlPlaneOptions {
  readonly binaries: Binaries
  /**
   * Folder of everything: data, certificates, kubeconfig, logs. Created if missing. One control plane at a time uses
   * it.
   */
  readonly dataDir: string
  /** True (the default) if an acknowledged write must survive a crash of the machine. False for throwaway data. */
  readonly durable?: boolean
  /** Kubernetes controllers in addition to the default ones, such as `deployment-controller`. */
  readonly controllers?: readonly string[]
  /** Makes the API server log its requests. */
  readonly audit?: AuditFiles
  /** Receives lines about the progress. */
  readonly report?: Report
  /** Called once when a server ends unexpectedly after the start. */
  readonly onFailure?: (error: Error) => void
  /** Aborts the start: the servers that run already are stopped, and the start rejects with its reason. */
  readonly signal?: AbortSignal
}

/** A running Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager, without nodes. */
export interface ControlPlane {
  /** Kubeconfig of its administrator (group system:masters), with embedded certificates, mode 0600. */
  readonly kubeconfigPath: string
  /** URL of the API server. It stays the same for a data directory if its port is free at the start. */
  readonly url: string
  readonly dataDir: string
  /** Current process of the API server; changes with restartApiServer. */
  readonly apiServerPid: number
  /** Current processes of the servers, by name. */
  readonly pids: Readonly<Record<ServerName, number>>
  /**
   * Stops the API server (if it has not ended already) and starts it again at the same address. Resolves when it is
   * ready.
   */
  restartApiServer(): Promise<void>
  /** Stops all servers, clients first, and releases the data directory. May be called again. */
  stop(): Promise<void>
}

/**
 * Starts a control plane and resolves when it serves. Then the API server is ready, the namespace `default` has its
 * ServiceAccount, and the aggregated roles have their rules. Keeps data of an earlier run in `dataDir`. The servers
 * always end with this process, even if it is killed.
 *
 * Throws an Error that says what to do if `dataDir` is in use. Throws one with the last lines of the log if a server
 * fails to start.
 */
export async function startControlPlane(options: ControlPlaneOptions): Promise<ControlPlane> {
  const dataDir = resolve(options.dataDir)
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  const lock = await lockDataDir(dataDir)
  try {
    const runDirectory = runDirectoryOf(dataDir)
    await Promise.all(SERVERS.map((name) => awaitLeftover(name, runDirectory, options.signal)))
    const pki = await loadPki(join(dataDir, "pki"))
    for (let attempt = 1; ; attempt++) {
      const servers = new Servers(options, dataDir, await layOut(options, dataDir, pki))
      try {
        await servers.start()
        return controlPlane(servers, lock)
      } catch (error) {
        await servers.stop()
        if (!(error instanceof StartError && error.portTaken) || attempt === PORT_ATTEMPTS) throw error
        options.report?.("a port is in use, trying others")
      }
    }
  } catch (error) {
    lock.release()
    throw error
  }
}

/** A server that ended before it was ready. */
class StartError extends Error {
  readonly portTaken: boolean

  constructor(name: string, end: string, log: string) {
    super(`${name} ended (${end}); the last lines of its log:\n${log}`)
    this.name = "StartError"
    this.portTaken = log.includes("address already in use")
  }
}

/** The three servers of one control plane. Starts and stops them in the right order. */
class Servers {
  readonly url: string
  readonly kubeconfigPath: string
  readonly dataDir: string
  readonly #options: ControlPlaneOptions
  readonly #layout: Layout
  readonly #running = new Map<ServerName, SupervisedServer>()
  #started = false

  constructor(options: ControlPlaneOptions, dataDir: string, layout: Layout) {
    this.#options = options
    this.#layout = layout
    this.dataDir = dataDir
    this.url = urlOf(layout)
    this.kubeconfigPath = kubeconfigPathOf(dataDir)
  }

  async start(): Promise<void> {
    const { pki } = this.#layout
    await writeKubeconfig(this.kubeconfigPath, this.url, pki, "admin")
    await writeKubeconfig(this.#layout.controllerManagerKubeconfig, this.url, pki, "kube-controller-manager")
    await this.#withProbe(async (api, deadline) => {
      // The API server waits for etcd by itself; the controller manager would fail without an API server.
      await this.#run("etcd", etcdFlags(this.#layout))
      await this.#run("kube-apiserver", apiServerFlags(this.#layout))
      await this.#orEarlyEnd(api.ready(deadline))
      await this.#run("kube-controller-manager", controllerManagerFlags(this.#layout))
      await this.#orEarlyEnd(api.furnished(deadline))
    })
    this.#started = true
  }

  async restartApiServer(): Promise<void> {
    await this.#stopOne("kube-apiserver")
    await this.#withProbe(async (api, deadline) => {
      await this.#run("kube-apiserver", apiServerFlags(this.#layout))
      await this.#orEarlyEnd(api.ready(deadline))
    })
  }

  async stop(): Promise<void> {
    // The other two write to etcd through the API server only. The controller manager writes nothing at its end.
    await Promise.all([this.#stopOne("kube-controller-manager"), this.#stopOne("kube-apiserver")])
    await this.#stopOne("etcd")
  }

  pid(name: ServerName): number {
    const server = this.#running.get(name)
    if (!server) throw new Error(`${name} does not run: its control plane was stopped`)
    return server.pid
  }

  async #run(name: ServerName, args: readonly string[]): Promise<void> {
    this.#options.signal?.throwIfAborted()
    const server = await startServer({
      name,
      command: this.#options.binaries[name],
      args,
      logDirectory: join(this.dataDir, "logs"),
      runDirectory: runDirectoryOf(this.dataDir),
      needs: name === "kube-apiserver" ? this.#running.get("etcd") : undefined,
    })
    this.#running.set(name, server)
    void server.ended.then((end) => this.#noticeEnd(name, server, end))
  }

  async #noticeEnd(name: ServerName, server: SupervisedServer, end: string): Promise<void> {
    // A server that was stopped or replaced is no longer in the map.
    if (!this.#started || this.#running.get(name) !== server) return
    this.#options.onFailure?.(
      new Error(`${name} ended (${end}); the last lines of its log:\n${await server.logTail()}`),
    )
  }

  async #stopOne(name: ServerName): Promise<void> {
    const server = this.#running.get(name)
    this.#running.delete(name)
    await server?.stop()
  }

  async #withProbe(use: (api: Probe, deadline: number) => Promise<void>): Promise<void> {
    const api = await probe(this.url, this.#layout.pki)
    try {
      await use(api, performance.now() + START_TIMEOUT_MS)
    } finally {
      await api.close()
    }
  }

  /** Waits for `condition`, but only while all servers live and the start is not aborted. */
  async #orEarlyEnd(condition: Promise<void>): Promise<void> {
    const ends = [...this.#running.values()].map(async (server) => {
      const end = await server.ended
      throw new StartError(server.name, end, await server.logTail())
    })
    await unlessAborted(Promise.race([condition, ...ends]), this.#options.signal)
  }
}

function controlPlane(servers: Servers, lock: Lock): ControlPlane {
  return {
    kubeconfigPath: servers.kubeconfigPath,
    url: servers.url,
    dataDir: servers.dataDir,
    get apiServerPid() {
      return servers.pid("kube-apiserver")
    },
    get pids() {
      return {
        etcd: servers.pid("etcd"),
        "kube-apiserver": servers.pid("kube-apiserver"),
        "kube-controller-manager": servers.pid("kube-controller-manager"),
      }
    },
    restartApiServer: () => servers.restartApiServer(),
    stop: async () => {
      await servers.stop()
      lock.release()
    },
  }
}

async function lockDataDir(dataDir: string): Promise<Lock> {
  try {
    return await takeLock(join(dataDir, "lock"))
  } catch (error) {
    if (!(error instanceof LockHeldError)) throw error
    throw new Error(
      `${dataDir} is in use by process ${error.holder}: stop that first, or choose another data directory`,
      { cause: error },
    )
  }
}

async function layOut(options: ControlPlaneOptions, dataDir: string, pki: Pki): Promise<Layout> {
  return {
    pki,
    ports: {
      apiServer: await freePort(await earlierPort(dataDir)),
      etcdClient: await freePort(),
      etcdPeer: await freePort(),
    },
    etcdDirectory: join(dataDir, "etcd"),
    controllerManagerKubeconfig: join(dataDir, "pki", "kube-controller-manager.kubeconfig"),
    durable: options.durable ?? true,
    controllers: options.controllers ?? [],
    audit: options.audit,
  }
}

/** Returns the port in the kubeconfig of an earlier run. */
async function earlierPort(dataDir: string): Promise<number | undefined> {
  try {
    const kubeconfig = await readFile(kubeconfigPathOf(dataDir), "utf8")
    const [, port] = /server: https:\/\/127\.0\.0\.1:(\d+)/.exec(kubeconfig) ?? []
    return port === undefined ? undefined : Number(port)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}

function urlOf({ ports }: Layout): string {
  return `https://127.0.0.1:${ports.apiServer}`
}

function kubeconfigPathOf(dataDir: string): string {
  return join(dataDir, "kubeconfig")
}

function runDirectoryOf(dataDir: string): string {
  return join(dataDir, "run")
}
