import { randomBytes } from "node:crypto"
import { access, mkdtemp, readdir, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { installBase } from "../../dev/base.ts"
import { LocalCloud } from "../../dev/local-cloud/local.ts"
import { LOCAL_REGION } from "../../dev/local-cloud/offers.ts"
import { powerOff } from "../../dev/power-off.ts"
import { whenReady } from "../../dev/rest.ts"
import { connect } from "../../src/connect.ts"
import { isBound } from "../../src/core/apis/apikey.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { defined } from "../../src/core/apis/defined.ts"
import { isTerminal, type JobPhase, type JobSpec, type StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { ensureInstallation } from "../../src/core/identity/installation.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { leases } from "../../src/core/kube/lease.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { API_KEYS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { agentProgram } from "./agent-program.ts"
import { makeKey } from "./api-keys.ts"
import { confirmedProject } from "./confirmed-project.ts"
import type { ContainerRuntime } from "./container-runtime.ts"
import { until } from "./eventually.ts"
import type { FacadeConfig } from "./processes/facade.ts"
import type { OperatorConfig } from "./processes/operator.ts"
import { Program } from "./program-process.ts"
import { silentLogger } from "./silent-logger.ts"
import { containersOf, processesNaming, type RunningProcess, removeContainers, touchInContainer } from "./traces.ts"

/** Timeout of each wait in seconds. It is far above the usual time, because machines of CI are slow. */
const PATIENCE_SECONDS = 100

const PROCESSES = join(import.meta.dirname, "processes")

export interface InstallationOptions {
  /** Prefix of its namespaces. */
  name: string
  kubeconfig: string
  runtime: ContainerRuntime
  /** Store for the façades' logs. Default: a store in its folder. */
  logs?: FacadeConfig["logs"]
  /** True: developers may open sessions into running containers. */
  sessions?: boolean
  /** Domain of the ports of jobs. Default: none. */
  sessionDomain?: string
  /** Folder of a built web console. Default: none is served. */
  consoleFolder?: string
  /** Issuers whose tokens keys may trust. Default: none. */
  workloadIssuers?: FacadeConfig["workloadIssuers"]
}

/** File that opens the gate. A signal could arrive before the shell's trap is set. */
export const GATE = "open"

/** Returns a shell script that runs `before`, waits for `openGate`, and runs `after`. */
export function gate(before: string, after: string): string {
  return `${before}; ${GATE_WAIT}; ${after}`
}

/** Shell command that waits for `openGate`. */
export const GATE_WAIT = `until [ -e ${GATE} ]; do sleep 0.1; done`

/** Further options of an operator, beside those that come from its installation. */
export type OperatorVariant = Pick<OperatorConfig, "hang" | "inject" | "memoriesGib" | "withoutOffers">

/**
 * Berth installation beside others on one API server. Its operators and its façade are processes of their own and serve
 * one project. Its VMs are agents on this host.
 */
export class Installation {
  /** Namespace of its Jobs. Also its project's name. */
  readonly namespace: string
  readonly systemNamespace: string
  readonly client: KubeClient
  readonly jobs: Reflector<StoredJob>
  readonly launches: Reflector<StoredLaunch>
  readonly folder: string
  readonly runtime: ContainerRuntime
  /** Every program that was started, including killed ones. */
  readonly programs: Program[] = []
  readonly #kubeconfig: string
  readonly #logs: FacadeConfig["logs"]
  readonly #sessions: boolean
  readonly #ofFacade: Pick<FacadeConfig, "sessionDomain" | "consoleFolder">
  readonly #workloadIssuers: FacadeConfig["workloadIssuers"]
  readonly #watching = new AbortController()
  #loops: Promise<void>[] = []
  #url = "http://127.0.0.1:0"
  #id = ""
  #apiKey = ""

  /** Creates its namespaces, project and key, and starts its façade. The test starts operators. */
  static async create(options: InstallationOptions): Promise<Installation> {
    const folder = await mkdtemp(join(tmpdir(), "berth-e2e-"))
    const installation = new Installation(options, folder)
    try {
      await installation.#install()
      await installation.startFacade()
      return installation
    } catch (error) {
      await installation.close()
      throw error
    }
  }

  private constructor(options: InstallationOptions, folder: string) {
    const { name, kubeconfig, runtime, logs, sessions = false, sessionDomain, consoleFolder, workloadIssuers } = options
    this.namespace = `${name}-${randomBytes(4).toString("hex")}`
    this.systemNamespace = `${this.namespace}-system`
    this.folder = folder
    this.runtime = runtime
    this.#kubeconfig = kubeconfig
    this.#sessions = sessions
    this.#ofFacade = defined({ sessionDomain, consoleFolder })
    this.#logs = logs ?? { logsDir: join(folder, "logs") }
    this.#workloadIssuers = workloadIssuers
    this.client = connect({ kubeconfig })
    const logger = silentLogger
    this.jobs = new Reflector({ client: this.client, resource: JOBS, namespace: this.namespace, logger })
    this.launches = new Reflector({ client: this.client, resource: LAUNCHES, namespace: this.systemNamespace, logger })
  }

  async #install(): Promise<void> {
    const { client, namespace } = this
    await installBase(client, AbortSignal.timeout(PATIENCE_SECONDS * 1000))
    for (const name of [namespace, this.systemNamespace]) await client.apply(NAMESPACES, { metadata: { name } })
    this.#id = (await ensureInstallation(client, this.systemNamespace)).id
    await confirmedProject(client, { name: namespace, organization: "e2e", namespace })
    this.#apiKey = await makeKey(client, namespace, "admin", { name: "admin" })
    this.#loops = [this.jobs, this.launches].map((reflector) => reflector.run(this.#watching.signal))
    for (const reflector of [this.jobs, this.launches]) {
      await reflector.whenSynced(AbortSignal.timeout(PATIENCE_SECONDS * 1000))
    }
  }

  /** URL of the façade, without `/1`. It stays the same over restarts. */
  get url(): string {
    return this.#url
  }

  /** Id of the installation, which is a tag of its VMs. */
  get id(): string {
    return this.#id
  }

  /** The project's admin key. */
  get apiKey(): string {
    return this.#apiKey
  }

  get vmsDir(): string {
    return join(this.folder, "vms")
  }

  /** Resolves when the façade is ready. */
  async startFacade(): Promise<Program> {
    const { program, url } = await this.startReplica(Number(new URL(this.#url).port))
    this.#url = url
    return program
  }

  /** Starts another replica of the façade, at a port of its own. Resolves when it is ready. @param more other settings */
  async startReplica(
    port = 0,
    more: Pick<Partial<FacadeConfig>, "sessions"> = {},
  ): Promise<{ program: Program; url: string }> {
    const program = this.#start<FacadeConfig>("facade", {
      kubeconfig: this.#kubeconfig,
      systemNamespace: this.systemNamespace,
      watchNamespace: this.namespace,
      port,
      project: this.namespace,
      logs: this.#logs,
      sessions: this.#sessions,
      ...this.#ofFacade,
      ...(this.#workloadIssuers && { workloadIssuers: this.#workloadIssuers }),
      ...more,
    })
    const { url } = await program.ready<{ url: string }>()
    await whenReady(url, PATIENCE_SECONDS, new AbortController().signal)
    return { program, url }
  }

  /** Resolves when the operator is up, as leader or not. */
  async startOperator(variant: OperatorVariant = {}): Promise<Program> {
    const { name, dockerSocket } = this.runtime
    const operator = this.#start<OperatorConfig>("operator", {
      kubeconfig: this.#kubeconfig,
      systemNamespace: this.systemNamespace,
      watchNamespace: this.namespace,
      gatewayUrl: this.#url,
      vmsDir: this.vmsDir,
      agentCommand: [process.execPath, ...agentProgram(), "--runtime", name, "--log-level", "trace"],
      // The receivers of tests.
      privateReceivers: { hosts: [], networks: ["127.0.0.0/8"] },
      ...(dockerSocket !== undefined && { dockerSocket }),
      sessions: this.#sessions,
      ...variant,
    })
    await operator.ready()
    await this.#keyIsBound()
    return operator
  }

  /** Waits until an operator has created the key's machine user: before that, the key has no write access. */
  async #keyIsBound(): Promise<void> {
    const ref = { namespace: this.namespace, name: "admin" }
    const isKeyBound = async (): Promise<boolean> => isBound(await this.client.get(API_KEYS, ref))
    await until("the project's key is bound", isKeyBound, PATIENCE_SECONDS)
  }

  /** Kills an operator and removes its lease. */
  async killOperator(operator: Program): Promise<void> {
    await operator.kill()
    await this.freeLease()
  }

  /** Removes the lease of a dead operator, so that the next one need not wait until it expires. */
  async freeLease(): Promise<void> {
    await this.client.delete(leases, { namespace: this.systemNamespace, name: "berth-operator" })
  }

  #start<Config>(name: "operator" | "facade", config: Config): Program {
    const program = new Program(name, [join(PROCESSES, `${name}.ts`), JSON.stringify(config)])
    this.programs.push(program)
    return program
  }

  /** Creates a Job that runs a shell script. */
  async submit(name: string, script: string, more: Partial<JobSpec> = {}): Promise<void> {
    await this.client.create(JOBS, {
      apiVersion: API_VERSION,
      kind: "Job",
      metadata: { name, namespace: this.namespace },
      spec: { image: this.runtime.image, command: ["sh", "-c"], args: [script], ...more },
    } as StoredJob)
  }

  /** Returns the Job as last seen. Throws if it doesn't exist. */
  job(name: string): StoredJob {
    const job = this.jobs.store.get({ namespace: this.namespace, name })
    if (job === undefined) throw new Error(`there is no job ${name}`)
    return job
  }

  /** Returns the Launches of a job, by number. */
  launchesOf(name: string): StoredLaunch[] {
    const all = this.launches.store.list().filter(({ spec }) => spec.job.name === name)
    return all.sort((a, b) => a.spec.number - b.spec.number)
  }

  /** Resolves when the jobs are in this phase: the named ones, or all of the project. */
  async reached(phase: JobPhase, ...names: string[]): Promise<void> {
    await this.untilJobs(`${names.join(", ")} ${phase}`, () =>
      names.every((name) => this.job(name).status?.phase === phase),
    )
  }

  /** Resolves when every job has ended and every VM is deleted. */
  async allOver(): Promise<void> {
    await this.untilJobs("all jobs over", () =>
      this.jobs.store.list().every(({ status }) => {
        const vm = status?.vm?.state ?? "nonassigned"
        return isTerminal(status?.phase) && (vm === "terminated" || vm === "nonassigned")
      }),
    )
    await this.untilLaunches("all launches over", () =>
      this.launches.store.list().every(({ status }) => ["terminated", "refused"].includes(status?.phase ?? "")),
    )
  }

  untilJobs(what: string, condition: () => boolean): Promise<void> {
    return this.#until(this.jobs, what, condition)
  }

  untilLaunches(what: string, condition: () => boolean): Promise<void> {
    return this.#until(this.launches, what, condition)
  }

  async #until(reflector: Pick<Reflector, "store">, what: string, condition: () => boolean): Promise<void> {
    try {
      // A job that was just created may not be in the cache yet.
      const holds = (): boolean => {
        try {
          return condition()
        } catch {
          return false
        }
      }
      await reflector.store.waitUntil(holds, AbortSignal.timeout(PATIENCE_SECONDS * 1000))
    } catch (cause) {
      throw new Error(`not in ${PATIENCE_SECONDS} s: ${what}\n${this.#situation()}`, { cause })
    }
  }

  /** Describes the installation for the error of a wait that timed out. */
  #situation(): string {
    const jobs = this.jobs.store.list().map(({ metadata, status }) => `${metadata.name}: ${JSON.stringify(status)}`)
    const launches = this.launches.store
      .list()
      .map(({ metadata, spec, status }) => `${metadata.name} ended=${spec.ended}: ${JSON.stringify(status)}`)
    const outputs = this.programs.map(({ name, running, output }) => {
      const lines = output.split("\n").filter((line) => !line.includes('"level":"trace"'))
      return `--- ${name} (${running ? "running" : "ended"})\n${lines.slice(-12).join("\n")}`
    })
    return [...jobs, ...launches, ...outputs].join("\n")
  }

  /** Calls the REST API with the project's admin key. */
  fetch(path: string, init: RequestInit & { headers?: Record<string, string> } = {}): Promise<Response> {
    return fetch(`${this.#url}/1${path}`, { ...init, headers: { "X-Service-Api-Key": this.apiKey, ...init.headers } })
  }

  /** Returns the whole log of a job. */
  async log(name: string): Promise<string> {
    return await (await this.fetch(`/jobs/${name}/logs`)).text()
  }

  /** Returns the names of all Launches that had a VM. */
  async vms(): Promise<string[]> {
    const names = await readdir(this.vmsDir).catch(() => [])
    return names.filter((name) => !name.startsWith(".")).sort()
  }

  /** Returns what still runs of these VMs, or of all: processes, and names of Launches with a container. */
  async runningOn(launches?: readonly string[]): Promise<string[]> {
    const vms = launches ?? (await this.vms())
    const processes = await processesNaming(`${this.vmsDir}/`)
    const { dockerSocket } = this.runtime
    const containers = dockerSocket === undefined ? [] : await containersOf(dockerSocket, vms)
    return [
      ...processes.filter(({ text }) => vms.some((vm) => text.includes(`${this.vmsDir}/${vm}/`))).map(describe),
      ...containers.map(({ launch }) => `a container of ${launch}`),
    ]
  }

  /** Returns the pid of a VM's agent. */
  async agentPid(launch: string): Promise<number> {
    const agents = await processesNaming(`--data-dir ${this.vmsDir}/${launch}/`)
    const [agent] = agents
    if (agent === undefined || agents.length > 1) throw new Error(`${agents.length} agents run for ${launch}`)
    return agent.pid
  }

  /** Lets the VM's container continue that waits in `gate`. */
  async openGate(launch: string): Promise<void> {
    const { dockerSocket } = this.runtime
    if (dockerSocket !== undefined) return await touchInContainer(dockerSocket, launch, GATE)
    await writeFile(join(this.vmsDir, launch, "disk", "work", GATE), "")
  }

  /** Ends everything that was started here, even after tests failed. */
  async close(): Promise<void> {
    await Promise.allSettled(this.programs.filter(({ running }) => running).map((program) => program.stop()))
    if (await exists(this.vmsDir)) await this.#powerOff()
    this.#watching.abort()
    await Promise.allSettled(this.#loops)
    await this.client.delete(PROJECTS, { name: this.namespace }).catch(() => undefined)
    await this.client.close()
    await rm(this.folder, { recursive: true, force: true, maxRetries: 3 })
  }

  async #powerOff(): Promise<void> {
    const { dockerSocket } = this.runtime
    const cloud = new LocalCloud({
      dataDir: this.vmsDir,
      agentCommand: [],
      region: LOCAL_REGION,
      clock: systemClock,
      ...(dockerSocket !== undefined && { dockerSocket }),
      onError: (error) => console.error(error),
    })
    const { client, systemNamespace } = this
    const scope = { installation: this.#id, region: LOCAL_REGION }
    await powerOff({ cloud, scope, client, systemNamespace, clock: systemClock, seconds: 60 })
    await cloud.close()
    // Covers also a defect of the cloud itself.
    for (const { pid } of await processesNaming(`${this.vmsDir}/`)) kill(pid)
    if (dockerSocket !== undefined) await removeContainers(dockerSocket, await this.vms())
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL")
  } catch (error) {
    // The process has ended since it was listed.
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error
  }
}

function describe({ pid, text }: RunningProcess): string {
  return `process ${pid}: ${text.slice(0, 200)}`
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
