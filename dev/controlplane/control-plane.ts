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
/** Between the choice of a port and its use another process may take it. */
const PORT_ATTEMPTS = 3

/** How to start a control plane. */
export interface ControlPlaneOptions {
  readonly binaries: Binaries
  /** Holds everything: data, certificates, kubeconfig, logs. Made if missing; one control plane at a time uses it. */
  readonly dataDir: string
  /** Whether an acknowledged write survives a crash of the machine; true unless given. False for throwaway data. */
  readonly durable?: boolean
  /** Kubernetes' controllers to run beside those that are always there, such as `deployment-controller`. */
  readonly controllers?: readonly string[]
  /** Has the API server write down the requests that it is sent. */
  readonly audit?: AuditFiles
  /** Takes the lines that tell what happens. */
  readonly report?: Report
  /** Called once when a server ends without being asked to, after the start. */
  readonly onFailure?: (error: Error) => void
  /** Ends the start: the servers that run by then are stopped, and the start rejects with its reason. */
  readonly signal?: AbortSignal
}

/** A running Kubernetes control plane: etcd, kube-apiserver and kube-controller-manager, without nodes. */
export interface ControlPlane {
  /** For its administrator (group system:masters); complete in itself, mode 0600. */
  readonly kubeconfigPath: string
  /** Of the API server; the same for a data directory as long as its port is free at the start. */
  readonly url: string
  readonly dataDir: string
  /** The API server's process now; another after restartApiServer. */
  readonly apiServerPid: number
  /** The servers' processes now, by name. */
  readonly pids: Readonly<Record<ServerName, number>>
  /** Ends the API server (if it has not ended already) and starts it again at the same address; resolves when ready. */
  restartApiServer(): Promise<void>
  /** Ends all servers, clients first, and gives the data directory free. May be called again. */
  stop(): Promise<void>
}

/**
 * Starts a control plane and resolves when it serves: the API server is ready, the namespace `default` has its
 * ServiceAccount and the aggregated roles have their rules. Data of an earlier run in `dataDir` is kept. However this
 * process ends, the servers end with it.
 *
 * Throws an Error that says what to do when `dataDir` is in use, and one with the last lines of the log when a server
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
        options.report?.("a port was taken meanwhile, trying others")
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

/** The three servers of one control plane, and the order in which they start and stop. */
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
      // The API server waits for etcd by itself; the controller manager would give up on an absent API server.
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
    // The other two write to etcd by the API server only; the controller manager has nothing to write at its end.
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
    // One that was asked to end, or replaced, is no longer in the map.
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
      await use(api, Date.now() + START_TIMEOUT_MS)
    } finally {
      await api.close()
    }
  }

  /** Waits for `condition`, but no longer than all servers live, and than the start is wanted. */
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

/** The port that the kubeconfig of an earlier run names. */
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
