import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import express from "express"
import type { Health } from "./health.ts"
import { measureProcess, type Registry } from "./metrics.ts"
import { operationsRouter } from "./operations.ts"

export interface OperationsServerOptions {
  /** Empty: all addresses. */
  host: string
  /** 0: any free one. */
  port: number
  health: Health
  metrics: Registry
}

export interface OperationsServer {
  /** Without a path. */
  url: string
  close(): Promise<void>
}

/**
 * Serves what the platform asks of a process (`/metrics`, `/livez`, `/readyz`) on a port of its own, so that nobody who
 * may reach the public one learns of it. From then on the metrics have those of the process itself. Rejects when the port
 * is taken.
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
