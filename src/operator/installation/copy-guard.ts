import { pause } from "../../core/apis/backoff.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { Installation } from "../../core/identity/installation.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../core/kube/core.ts"
import { ifFound } from "../../core/kube/errors.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import { type LeaderElector, StepDownError } from "../../core/kube/lease.ts"
import { askGateway } from "./ask.ts"
import { type GatewayRecord, gatewaysToAsk, nextRecord } from "./decide.ts"

/** ConfigMap with the installation's gateways, in the system namespace. */
export const INSTALLATION_CONFIG_MAP = "berth-installation"

const UNKNOWN: GatewayRecord = { gateways: [] }

/** Default delay between two questions to the gateways, seconds. */
const INTERVAL_SECONDS = 15

export interface CopyGuardOptions {
  client: Pick<KubeClient, "get" | "apply">
  systemNamespace: string
  installation: Installation
  /** URL at which agents reach the gateway. */
  gatewayUrl: string
  /** Returns the URLs that VMs of existing Launches report to. */
  launchedGateways: () => readonly string[]
  elector: Pick<LeaderElector, "identity" | "isHeld">
  recorder: Pick<EventRecorder, "record">
  clock: Clock
  logger: Logger
  /** Delay between two questions to the gateways, seconds. */
  intervalSeconds?: number
}

/**
 * Keeps the operator of a copied cluster from acting on the VMs of the original. Both clusters have the same Launches
 * and the same installation id, so their VMs look the same. But only one of them has the gateway that VMs report
 * to. That gateway names the operator of its cluster.
 */
export class CopyGuard {
  readonly #options: CopyGuardOptions
  #record = UNKNOWN

  constructor(options: CopyGuardOptions) {
    this.#options = options
  }

  /** Returns the reason why this operator does nothing; undefined unless this cluster is a copy. */
  fault(): string | undefined {
    const { systemNamespace: namespace, intervalSeconds = INTERVAL_SECONDS } = this.#options
    const { copyOf } = this.#record
    if (copyOf === undefined) return undefined
    return (
      `this cluster is a copy: the gateway ${copyOf} belongs to another cluster with this installation's id. ` +
      `Berth launches and ends no VM here, and checks again in ${intervalSeconds} s. If the other cluster is deleted, ` +
      `delete the ConfigMap ${namespace}/${INSTALLATION_CONFIG_MAP}; docs/reliability.md, "A copied cluster", has the other ways`
    )
  }

  /** Waits until this cluster is not a copy, or the signal is aborted. A leader awaits this before it acts. */
  async cleared(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const isChecked = await this.#check(signal)
      if (isChecked && this.fault() === undefined) return
      if (isChecked) this.#report()
      await this.#pause(signal)
    }
    this.#record = UNKNOWN
  }

  /** Checks while the operator leads. @throws StepDownError when this cluster is found to be a copy */
  async run(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        await this.#pause(signal)
        if (!signal.aborted) await this.#check(signal)
        const fault = this.fault()
        if (fault !== undefined) throw new StepDownError(fault)
      }
    } finally {
      // Only the leader knows. The next one may be another replica.
      this.#record = UNKNOWN
    }
  }

  /** Returns false if the lease was lost meanwhile: then a gateway may have named this cluster's next leader. */
  async #check(signal: AbortSignal): Promise<boolean> {
    const { installation, gatewayUrl, launchedGateways, elector } = this.#options
    const before = await this.#read()
    const urls = gatewaysToAsk(before, gatewayUrl, launchedGateways())
    const ask = async (url: string) => ({ url, operator: await askGateway(url, installation.bootstrapKey, signal) })
    const answers = await Promise.all(urls.map(ask))
    if (signal.aborted || !elector.isHeld()) return false
    const next = nextRecord(before, { answers, operator: elector.identity, gatewayUrl })
    this.#record = next
    if (next.copyOf !== before.copyOf || next.gateways !== before.gateways) await this.#write(next)
    return true
  }

  async #read(): Promise<GatewayRecord> {
    const { client, systemNamespace: namespace, logger } = this.#options
    try {
      return parseRecord(await ifFound(client.get(CONFIG_MAPS, { namespace, name: INSTALLATION_CONFIG_MAP })))
    } catch (error) {
      logger.warn({ err: error }, "the installation's ConfigMap could not be read; the last state is kept")
      return this.#record
    }
  }

  async #write({ gateways, copyOf }: GatewayRecord): Promise<void> {
    const { client, systemNamespace: namespace, logger } = this.#options
    const data = { gateways: gateways.join("\n"), ...(copyOf && { copyOf, message: this.fault() ?? "" }) }
    const metadata = { namespace, name: INSTALLATION_CONFIG_MAP }
    try {
      await client.apply(CONFIG_MAPS, { metadata, data }, { fieldManager: "berth-operator", force: true })
    } catch (error) {
      logger.warn({ err: error }, "the installation's ConfigMap could not be written; Berth tries again")
    }
  }

  #report(): void {
    const { recorder, logger, systemNamespace: namespace } = this.#options
    const message = this.fault() ?? ""
    logger.error({ gateway: this.#record.copyOf }, message)
    const about = { apiVersion: "v1", kind: "ConfigMap", metadata: { namespace, name: INSTALLATION_CONFIG_MAP } }
    recorder.record(about, { type: "Warning", reason: "CopiedCluster", message })
  }

  async #pause(signal: AbortSignal): Promise<void> {
    const { clock, intervalSeconds = INTERVAL_SECONDS } = this.#options
    await pause(clock, intervalSeconds, signal).catch(() => undefined)
  }
}

function parseRecord(configMap: ConfigMap | undefined): GatewayRecord {
  const { gateways = "", copyOf } = configMap?.data ?? {}
  return { gateways: gateways.split("\n").filter((url) => url !== ""), ...(copyOf && { copyOf }) }
}
