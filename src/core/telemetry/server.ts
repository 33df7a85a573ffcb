import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import express from "express"
import type { Health } from "./health.ts"
import { measureProcess, type Registry } from "./metrics.ts"
import { operationsRouter } from "./operations.ts"

export interface OperationsServerOptions {
  /** Address to listen on. Empty: all addresses. */
  host: string
  /** Port to listen on. 0: any free one. */
  port: number
  health: Health
  metrics: Registry
}

export interface OperationsServer {
  /** URL without a path. */
  url: string
  close(): Promise<void>
}

/**
 * Serves the platform's endpoints (`/metrics`, `/livez`, `/readyz`) on a port of its own. Clients of the public port
 * can't read them. From then on the metrics include those of the process. Rejects if the port is in use.
 */
export async function startOperationsServer(options: OperationsServerOptions): Promise<OperationsServer> {
  const { host, port, health, metrics } = options
  const app = express().disable("x-powered-by").use(operationsRouter(health, metrics))
  const server = createServer(app)
  server.listen(port, host)
  await once(server, "listening")
  measureProcess(metrics)
  const { address, port: taken } = server.address() as AddressInfo
  return {
    url: `http://${address.includes(":") ? `[${address}]` : address}:${taken}`,
    close: async () => {
      server.close()
      // A scraper keeps its connection open.
      server.closeAllConnections()
      await once(server, "close")
    },
  }
}
