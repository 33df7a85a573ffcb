import { mkdir, mkdtemp, rm } from "node:fs/promises"
import { tmpdir, totalmem } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import { Pool } from "undici"
import { installBase } from "../dev/base.ts"
import { findBinaries } from "../dev/controlplane/binaries.ts"
import { type ControlPlane, startControlPlane } from "../dev/controlplane/control-plane.ts"
import { freePort } from "../dev/controlplane/ports.ts"
import { type Binaries, cacheDirectory } from "../dev/controlplane/programs.ts"
import { DEFAULT_NAME, installApiKey, installDefaults } from "../dev/install.ts"
import { findCondition } from "../src/core/apis/conditions.ts"
import { isTerminal, type StoredJob } from "../src/core/apis/job.ts"
import { KubeClient } from "../src/core/kube/client.ts"
import { KubeError } from "../src/core/kube/errors.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import type { Resource } from "../src/core/kube/resource.ts"
import { CONNECTIONS, JOBS, LAUNCHES } from "../src/core/resources.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { ApiServer } from "./api-server.ts"
import { MAIN } from "./facade-stack.ts"
import { asInImage } from "./image.ts"
import { kubeconfigOf, type Program, startProgram, usageOf } from "./program.ts"
import type { BenchContext } from "./result.ts"
import { SimulatedCloud } from "./simulated-cloud.ts"

/** Project of all jobs. */
export const PROJECT = DEFAULT_NAME

const CONNECTION_NAME = "simulated"
const CONNECTIONS_OPEN = 32
/** Total limit, mostly for slow machines. */
const READY_SECONDS = 300

export interface StackOptions {
  /** Time for which the records of ended VMs are kept. Default: the operator's own. */
  retentionSeconds?: number
}

/** CPU time by program. The server is the API server with etcd. */
export interface ProgramCpu {
  operator: number
  facade: number
  server: number
}

/** Returns the CPU time of each job, milliseconds. */
export function cpuOfJob(before: ProgramCpu, after: ProgramCpu, jobs: number): ProgramCpu {
  const ms = (program: keyof ProgramCpu): number => ((after[program] - before[program]) * 1000) / jobs
  return { operator: ms("operator"), facade: ms("facade"), server: ms("server") }
}

/** Operator and façade, while they run. */
export interface Programs {
  operator: Program
  facade: Program
}

/**
 * Berth as in a deployment, on a real API server. Operator and façade are separate processes with the rights of their
 * ServiceAccounts. A connection of type aws opens the simulated cloud. So all costs of a job are included: routing over
 * the whole price list, sealed copies of credentials, cloud-init.
 */
export class BerthStack {
  readonly client: KubeClient
  readonly api: ApiServer
  readonly controlPlane: ControlPlane
  readonly binaries: Binaries
  readonly cloud: SimulatedCloud
  /** URL of the façade. */
  readonly url: string
  readonly folder: string
  readonly #profileDir: string | undefined
  readonly #retentionSeconds: number | undefined
  readonly #facade: Pool
  readonly #metricsPorts: { operator: number; facade: number }
  #programs: Programs | undefined
  #apiKey = ""

  private constructor(parts: {
    client: KubeClient
    api: ApiServer
    controlPlane: ControlPlane
    binaries: Binaries
    cloud: SimulatedCloud
    ports: [facade: number, operatorMetrics: number, facadeMetrics: number]
    folder: string
    profileDir: string | undefined
    retentionSeconds: number | undefined
  }) {
    const [port, operator, facade] = parts.ports
    this.client = parts.client
    this.api = parts.api
    this.controlPlane = parts.controlPlane
    this.binaries = parts.binaries
    this.cloud = parts.cloud
    this.folder = parts.folder
    this.url = `http://127.0.0.1:${port}`
    this.#profileDir = parts.profileDir
    this.#retentionSeconds = parts.retentionSeconds
    this.#facade = new Pool(this.url, { connections: CONNECTIONS_OPEN })
    this.#metricsPorts = { operator, facade }
  }

  /** Starts both programs and waits until the connection is verified. */
  static async start(
    { assetsDir, cacheHome, report, profileDir }: BenchContext,
    { retentionSeconds }: StackOptions = {},
  ): Promise<BerthStack> {
    const folder = await mkdtemp(join(tmpdir(), "berth-bench-"))
    const binaries = await findBinaries({ assetsDir, cacheDir: cacheDirectory(cacheHome), report })
    const dataDir = join(folder, "control-plane")
    // With the usual limit of 4 GiB, an API server with 100,000 jobs does little except collect garbage.
    process.env["GOMEMLIMIT"] ??= `${Math.floor(totalmem() / 2 / 2 ** 20)}MiB`
    const controlPlane = await startControlPlane({ binaries, dataDir, durable: false })
    const kubeConfig = new KubeConfig()
    kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
    const client = new KubeClient(kubeConfig, { maxConcurrent: CONNECTIONS_OPEN })
    const api = await ApiServer.open(controlPlane, CONNECTIONS_OPEN)
    const cloud = await SimulatedCloud.start()
    const ports: [number, number, number] = [await freePort(), await freePort(), await freePort()]
    const stack = new BerthStack({
      client,
      api,
      controlPlane,
      binaries,
      cloud,
      ports,
      folder,
      profileDir,
      retentionSeconds,
    })
    await stack.#install()
    return stack
  }

  async #install(): Promise<void> {
    const signal = AbortSignal.timeout(READY_SECONDS * 1000)
    await installBase(this.client, signal)
    await installDefaults(this.client)
    await this.startPrograms()
    this.#apiKey = await installApiKey(this.client, undefined, signal)
    const credentials = { access_key_id: "simulated", secret_access_key: "simulated" }
    await this.#post("/1/connections", { name: CONNECTION_NAME, type: "aws", ...credentials })
    const ref = { namespace: PROJECT, name: CONNECTION_NAME }
    const isReady = async (): Promise<boolean> =>
      findCondition((await this.client.get(CONNECTIONS, ref)).status?.conditions, "Ready")?.status === "True"
    while (!(await isReady())) await delay(50, undefined, { signal })
  }

  get programs(): Programs {
    if (this.#programs === undefined) throw new Error("operator and façade are stopped: start them first")
    return this.#programs
  }

  /** Returns one of a program's own metrics: a gauge or a counter, summed over its labels. */
  async metric(program: keyof Programs, name: string): Promise<number> {
    const answer = await fetch(`http://127.0.0.1:${this.#metricsPorts[program]}/metrics`)
    const samples = (await answer.text()).split("\n").filter((line) => /^\w+/.exec(line)?.[0] === name)
    return samples.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0)
  }

  async startPrograms(): Promise<Programs> {
    const { controlPlane, client, folder, cloud, url } = this
    const base = { folder, profileDir: this.#profileDir }
    // A profile names the files of the source.
    const programOf = (script: string) => (this.#profileDir === undefined ? asInImage(script) : { script })
    const where = { controlPlane, client, folder }
    const metricsUrl = (program: keyof Programs): string => `http://127.0.0.1:${this.#metricsPorts[program]}`
    await mkdir(join(folder, "logs"), { recursive: true })
    const [asFacade, asOperator] = [
      await kubeconfigOf("berth-facade", where),
      await kubeconfigOf("berth-operator", where),
    ]
    const operator = await startProgram({
      ...base,
      name: "operator",
      ...(await programOf(join(import.meta.dirname, "simulated-operator.ts"))),
      args: ["--kubeconfig", asOperator, "--gateway-url", url, "--cloud-url", cloud.url].concat(
        "--metrics-port",
        String(this.#metricsPorts.operator),
        ...(this.#retentionSeconds === undefined ? [] : ["--retention", String(this.#retentionSeconds)]),
      ),
      url: metricsUrl("operator"),
    })
    const facade = await startProgram({
      ...base,
      name: "facade",
      ...(await programOf(MAIN)),
      args: ["facade", "--kubeconfig", asFacade, "--port", new URL(url).port, "--default-project", PROJECT]
        .concat("--logs-dir", join(folder, "logs"), "--requests-per-minute", "0", "--log-level", "warn")
        .concat("--metrics-port", String(this.#metricsPorts.facade)),
      url,
    })
    this.#programs = { operator, facade }
    return this.#programs
  }

  async stopPrograms(): Promise<void> {
    const { operator, facade } = this.programs
    this.#programs = undefined
    await Promise.all([operator.stop(), facade.stop()])
  }

  /**
   * Restarts the API server after direct changes in etcd. Otherwise it would learn of each object by one event, and
   * delay all readers meanwhile. After a restart it reads all objects at once. The programs must be stopped.
   */
  async restartApiServer(): Promise<void> {
    await this.controlPlane.restartApiServer()
    const signal = AbortSignal.timeout(READY_SECONDS * 1000)
    for (const resource of [JOBS, LAUNCHES]) {
      while (!(await this.#serves(resource, signal))) await delay(500, undefined, { signal })
    }
  }

  async #serves(resource: Resource, signal: AbortSignal): Promise<boolean> {
    try {
      await this.client.list(resource, { limit: 1, signal })
      return true
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof KubeError) return false
      throw error
    }
  }

  /** Submits over REST, on all connections in parallel. */
  async submitAll(jobs: readonly object[]): Promise<void> {
    let next = 0
    const worker = async (): Promise<void> => {
      for (let job = jobs[next++]; job !== undefined; job = jobs[next++]) await this.#post("/1/jobs", job)
    }
    await Promise.all(Array.from({ length: CONNECTIONS_OPEN }, worker))
  }

  /** Submits one job over REST. */
  submit(job: object): Promise<void> {
    return this.#post("/1/jobs", job)
  }

  /** Returns the CPU time of each program until now, seconds. */
  async cpuSeconds(): Promise<ProgramCpu> {
    const { etcd, "kube-apiserver": apiServer } = this.controlPlane.pids
    const pids = [this.programs.operator.pid, this.programs.facade.pid, etcd, apiServer]
    const used = await Promise.all(pids.map(async (pid) => (await usageOf(pid)).cpuSeconds))
    const [operator = 0, facade = 0, ...server] = used
    return { operator, facade, server: server.reduce((sum, seconds) => sum + seconds, 0) }
  }

  async #post(path: string, content: object): Promise<void> {
    const headers = { "content-type": "application/json", "x-service-api-key": this.#apiKey }
    const body = JSON.stringify(content)
    const answer = await this.#facade.request({ method: "POST", path, headers, body })
    const said = await answer.body.text()
    if (answer.statusCode !== 201) throw new Error(`POST ${path}: ${answer.statusCode} ${said}`)
  }

  async stop(): Promise<void> {
    if (this.#programs !== undefined) await this.stopPrograms()
    await this.cloud.stop()
    await this.#facade.close()
    await this.api.close()
    await this.client.close()
    await this.controlPlane.stop()
    await rm(this.folder, { recursive: true, force: true })
  }
}

/** Follows jobs by a watch of its own, like any client that waits for them. */
export class JobWatch {
  readonly #reflector: Reflector<StoredJob>
  readonly #stop = new AbortController()
  readonly #running: Promise<void>
  #ended = 0
  #check = (): void => undefined

  constructor({ client }: BerthStack) {
    const logger = createLogger({ level: "warn", name: "bench" })
    this.#reflector = new Reflector({ client, resource: JOBS, namespace: PROJECT, logger })
    this.#reflector.onChange(({ old, current }) => {
      if (!isTerminal(current?.status?.phase) || isTerminal(old?.status?.phase)) return
      this.#ended++
      this.#check()
    })
    this.#running = this.#reflector.run(this.#stop.signal)
  }

  /**
   * Resolves when this many jobs have ended since the start. @throws Error if one did not succeed, or at the timeout
   */
  async untilEnded(count: number, seconds: number): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const late = (): void => reject(new Error(`${this.#ended} of ${count} jobs have ended after ${seconds} s`))
    const timer = setTimeout(late, seconds * 1000)
    this.#check = () => {
      if (this.#ended >= count) resolve()
    }
    this.#check()
    await promise.finally(() => clearTimeout(timer))
    const jobs = this.#reflector.store.list()
    const failed = jobs.find(({ status }) => isTerminal(status?.phase) && status?.phase !== "succeeded")
    if (failed !== undefined) throw new Error(`${failed.metadata.name} did not succeed: ${failed.status?.message}`)
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#running
  }
}
