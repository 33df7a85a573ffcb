import { inject } from "vitest"
import { installBase } from "../../dev/base.ts"
import { type ControlPlane, startControlPlane } from "../../dev/controlplane/control-plane.ts"
import type { FacadeParts } from "../../src/api/main.ts"
import { connect } from "../../src/connect.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import type { OperatorParts } from "../../src/operator/main.ts"
import { AgentReports } from "./agent-reports.ts"
import { programClient } from "./program-client.ts"
import { type Facade, type Market, type ProgramName, Programs, type Stoppable } from "./programs.ts"
import type { ShiftedClock } from "./shifted-clock.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

export const LEASE_TIMES = { leaseSeconds: 60, renewDeadlineSeconds: 40, retrySeconds: 1 }

/** Parts outside of a cluster, which outlive it. */
export interface Surroundings {
  clock: ShiftedClock
  market: Market
  /** Further parts of its operator. */
  operator?: Partial<OperatorParts>
  /** Parts of its façade. */
  facade: Partial<FacadeParts> & Pick<FacadeParts, "clouds">
  /** Folder of the logs. */
  logsDir: string
  binaries?: { etcd: string; "kube-apiserver": string; "kube-controller-manager": string }
}

/** Starts the servers of a cluster with what is in its folder. */
export function startServers(
  dataDir: string,
  binaries: Surroundings["binaries"] = inject("controlPlaneBinaries"),
): Promise<ControlPlane> {
  return startControlPlane({ binaries, dataDir, durable: false })
}

/** A cluster with an operator and a façade in this process, which have the rights of their ServiceAccounts. */
export class Cluster {
  readonly controlPlane: ControlPlane
  readonly client: KubeClient
  readonly clock: ShiftedClock
  readonly reports: AgentReports
  readonly #around: Surroundings
  readonly #programs: Programs
  #operator: Stoppable | undefined
  #facade: Facade | undefined
  #port = 0

  constructor(controlPlane: ControlPlane, around: Surroundings) {
    this.controlPlane = controlPlane
    this.#around = around
    this.clock = around.clock
    this.client = connect({ kubeconfig: controlPlane.kubeconfigPath })
    this.reports = new AgentReports({ client: this.client, namespace: SYSTEM_NAMESPACE, clock: around.clock })
    const clientOf = (name: ProgramName) => this.clientOf(name)
    this.#programs = new Programs({ systemNamespace: SYSTEM_NAMESPACE, clientOf, market: around.market })
  }

  /** Installs the kinds, namespaces and roles, as the chart does. */
  install(): Promise<void> {
    return installBase(this.client, AbortSignal.timeout(120_000))
  }

  /** Lines of the programs' logs. */
  get lines(): readonly string[] {
    return this.#programs.lines
  }

  /** URL of the façade. @throws Error if none runs */
  get url(): string {
    if (this.#facade === undefined) throw new Error("no façade runs")
    return this.#facade.url
  }

  /** The operator. @throws Error if none runs */
  get operator(): Stoppable {
    if (this.#operator === undefined) throw new Error("no operator runs")
    return this.#operator
  }

  /** Starts a façade, by default at the same port as before. Resolves with its URL. */
  async startFacade(port = this.#port): Promise<string> {
    const { logsDir, facade } = this.#around
    this.#facade = await this.#programs.startFacade({ port, logsDir }, facade)
    this.#port = Number(new URL(this.url).port)
    return this.url
  }

  async startOperator(gatewayUrl = this.#facade?.url ?? "http://127.0.0.1:1"): Promise<void> {
    const parts = { clock: this.clock, leaseTimes: LEASE_TIMES, ...this.#around.operator }
    this.#operator = await this.#programs.startOperator({ gatewayUrl }, parts)
  }

  async stopFacade(): Promise<void> {
    await this.#facade?.stop()
    this.#facade = undefined
  }

  async stopOperator(): Promise<void> {
    await this.#operator?.stop()
    this.#operator = undefined
  }

  async stop(): Promise<void> {
    await this.stopOperator()
    await this.stopFacade()
    await this.client.close()
    await this.controlPlane.stop()
  }

  job(namespace: string, name: string): Promise<StoredJob> {
    return this.client.get(JOBS, { namespace, name })
  }

  async launchesOf(job: string): Promise<StoredLaunch[]> {
    const { items } = await this.client.list(LAUNCHES, { namespace: SYSTEM_NAMESPACE })
    return items.filter(({ spec }) => spec.job.name === job)
  }

  clientOf(name: ProgramName): Promise<KubeClient> {
    const { client: admin, controlPlane } = this
    return programClient(name, { admin, kubeconfigPath: controlPlane.kubeconfigPath })
  }
}
