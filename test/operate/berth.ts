import { readFile } from "node:fs/promises"
import { inject } from "vitest"
import { installBase } from "../../dev/base.ts"
import { type ControlPlane, startControlPlane } from "../../dev/controlplane/control-plane.ts"
import { startFacade } from "../../src/api/main.ts"
import { cloudsOf } from "../../src/clouds/provider.ts"
import { connect } from "../../src/connect.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { JOBS, LAUNCHES } from "../../src/core/kinds.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import type { Running } from "../../src/core/telemetry/program.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { startOperator } from "../../src/operator/main.ts"
import { AgentReports } from "../controllers/agent-reports.ts"
import { offerOf } from "../controllers/builders.ts"
import type { ShiftedClock } from "../controllers/shifted-clock.ts"
import type { SimProvider } from "../controllers/sim-provider.ts"
import { programClient } from "../program-client.ts"

export const SYSTEM = "berth-system"

/** Parts outside of a cluster, which outlive it. */
export interface Surroundings {
  clock: ShiftedClock
  provider: SimProvider
  /** Folder of the logs. */
  logsDir: string
  binaries?: { etcd: string; "kube-apiserver": string; "kube-controller-manager": string }
}

export const LEASE_TIMES = { leaseSeconds: 60, renewDeadlineSeconds: 40, retrySeconds: 1 }

/** Organization and project of a team, as manifests. */
export const TEAM = `apiVersion: berth.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec: {displayName: Acme}
---
apiVersion: berth.dev/v1alpha1
kind: Project
metadata: {name: team}
spec: {displayName: Team, organization: acme}
`

/** Returns the manifests of a connection of the team to AWS, and of the Secret that it reads. */
export function connectionManifests(name: string, secret: string): string {
  return `apiVersion: v1
kind: Secret
metadata: {name: aws, namespace: team}
type: berth.dev/connection
stringData: {access_key_id: AKIAIOSFODNN7EXAMPLE, secret_access_key: ${secret}}
---
apiVersion: berth.dev/v1alpha1
kind: Connection
metadata: {name: ${name}, namespace: team}
spec: {type: aws, credentialsSecretRef: {name: aws}}
`
}

/** A cluster with an operator and a façade of Berth, which have the rights of their ServiceAccounts. */
export class Berth {
  readonly controlPlane: ControlPlane
  readonly client: KubeClient
  readonly reports: AgentReports
  /** Lines of the programs' logs. */
  readonly lines: string[] = []
  readonly #around: Surroundings
  readonly #programs = new Map<"operator" | "facade", { end(): Promise<void> }>()
  #url: string | undefined
  #port = 0

  private constructor(controlPlane: ControlPlane, around: Surroundings) {
    this.controlPlane = controlPlane
    this.#around = around
    this.client = connect({ kubeconfig: controlPlane.kubeconfigPath })
    this.reports = new AgentReports({ client: this.client, namespace: SYSTEM, clock: around.clock })
  }

  /** Starts a cluster with what is in its folder. */
  static async start(dataDir: string, around: Surroundings): Promise<Berth> {
    const binaries = around.binaries ?? inject("controlPlaneBinaries")
    return new Berth(await startControlPlane({ binaries, dataDir, durable: false }), around)
  }

  /** Installs the kinds, namespaces and roles, as the chart does. */
  install(): Promise<void> {
    return installBase(this.client, AbortSignal.timeout(120_000))
  }

  get url(): string {
    if (this.#url === undefined) throw new Error("no façade runs")
    return this.#url
  }

  /** Starts a façade, at the same port as before. */
  async startFacade(): Promise<void> {
    const stop = new AbortController()
    const where = { host: "127.0.0.1", port: this.#port, baseDomain: "localhost", logsDir: this.#around.logsDir }
    const market = { ...this.#market(), clouds: ["aws"] }
    const parts = { ...market, client: await this.clientOf("berth-facade"), logger: this.#logger("facade") }
    const running = await startFacade({ ...where, systemNamespace: SYSTEM }, parts, stop.signal)
    this.#url = running.url
    this.#port = Number(new URL(running.url).port)
    this.#started("facade", { running, stop })
  }

  async startOperator(gatewayUrl = this.#url ?? "http://127.0.0.1:1"): Promise<void> {
    const stop = new AbortController()
    const running = await startOperator(
      { systemNamespace: SYSTEM, gatewayUrl, agentImage: "registry.test/berth:1.0" },
      {
        ...{ ...this.#market(), client: await this.clientOf("berth-operator"), clouds: cloudsOf({}) },
        ...{ clock: this.#around.clock, observeSeconds: 0.1, leaseTimes: LEASE_TIMES },
        ...{ retirement: { graceSeconds: 1, lookSeconds: 0.2 }, logger: this.#logger("operator") },
      },
      stop.signal,
    )
    this.#started("operator", { running, stop })
  }

  async stopProgram(name: "operator" | "facade"): Promise<void> {
    const program = this.#programs.get(name)
    this.#programs.delete(name)
    if (name === "facade") this.#url = undefined
    await program?.end()
  }

  async stop(): Promise<void> {
    await this.stopProgram("operator")
    await this.stopProgram("facade")
    await this.client.close()
    await this.controlPlane.stop()
  }

  job(namespace: string, name: string): Promise<StoredJob> {
    return this.client.get(JOBS, { namespace, name })
  }

  async launchesOf(job: string): Promise<StoredLaunch[]> {
    const { items } = await this.client.list(LAUNCHES, { namespace: SYSTEM })
    return items.filter(({ spec }) => spec.job.name === job)
  }

  /** Sends a request to the project's API. */
  rest(project: string, key: string, path: string, init: { method?: string; body?: object } = {}): Promise<Response> {
    return fetch(`${this.url}/projects/${project}/1${path}`, {
      method: init.method ?? "GET",
      headers: { "x-service-api-key": key, "content-type": "application/json" },
      ...(init.body && { body: JSON.stringify(init.body) }),
    })
  }

  clientOf(name: "berth-operator" | "berth-facade"): Promise<KubeClient> {
    const { client: admin, controlPlane } = this
    return programClient(name, { admin, kubeconfigPath: controlPlane.kubeconfigPath })
  }

  #market() {
    const offers = fixedOffers([offerOf({ cloud: "aws", region: "eu-north-1" })])
    return { providers: { aws: this.#around.provider.provider }, offers, ownAccounts: [], architectures: [] }
  }

  #started(name: "operator" | "facade", { running, stop }: { running: Running; stop: AbortController }): void {
    const end = async () => {
      stop.abort()
      await running.ended
    }
    this.#programs.set(name, { end })
  }

  #logger(name: string) {
    return createLogger({ level: "info", name, destination: { write: (line) => void this.lines.push(line) } })
  }
}

/** Returns where etcd and its certificates are, for etcd's tools, from the command lines of the servers. */
export async function etcdEnvironment({ controlPlane: { pids } }: Berth): Promise<Record<string, string>> {
  const flag = async (pid: number, name: string) => {
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8")
    return new RegExp(`(?:^|\\0)--${name}=([^\\0]*)`).exec(line)?.[1] ?? ""
  }
  const api = pids["kube-apiserver"]
  return {
    ETCDCTL_ENDPOINTS: await flag(api, "etcd-servers"),
    ETCDCTL_CACERT: await flag(api, "etcd-cafile"),
    ETCDCTL_CERT: await flag(api, "etcd-certfile"),
    ETCDCTL_KEY: await flag(api, "etcd-keyfile"),
    ETCD_DATA: await flag(pids.etcd, "data-dir"),
  }
}
