import type { Health } from "./health.ts"
import type { Registry } from "./metrics.ts"
import { type OperationsServer, startOperationsServer } from "./server.ts"

/** Handle of a started program. It runs until its stop signal; `ended` then resolves, or rejects with an earlier failure. */
export interface Running {
  ended: Promise<void>
  /** Base URL of /metrics, /livez and /readyz; absent without a metrics port. */
  metricsUrl: string | undefined
}

/** Port and address of metrics and health, as in `KubeOptions`. */
export interface OperationsOptions {
  metricsPort?: number
  metricsHost?: string
}

/** Serves metrics and health; undefined where the options name no port. @throws Error when the port is taken */
export async function serveOperations(
  { metricsPort, metricsHost = "127.0.0.1" }: OperationsOptions,
  health: Health,
  metrics: Registry,
): Promise<OperationsServer | undefined> {
  if (metricsPort === undefined) return undefined
  return startOperationsServer({ host: metricsHost, port: metricsPort, health, metrics })
}
