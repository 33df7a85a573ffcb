import { readFile } from "node:fs/promises"
import { networkInterfaces } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { noDisk, smallDisk } from "../../../test/small-disk.ts"
import type { FlowKind } from "../kube/flow.ts"
import type { Exchange, Wait } from "../kube/transport.ts"
import { Health } from "./health.ts"
import { measureClient } from "./kube.ts"
import { createLogger, logDestination } from "./logger.ts"
import { createMetrics } from "./metrics.ts"
import { startOperationsServer } from "./server.ts"

describe("createLogger", () => {
  it("writes JSON lines and removes secrets from the usual fields", () => {
    const lines: string[] = []
    const logger = createLogger({
      level: "info",
      name: "test",
      destination: { write: (line) => void lines.push(line) },
    })
    const secret = "hunter2"
    logger.info({ headers: { "x-service-api-key": secret, authorization: secret, cookie: secret } }, "a request")
    logger.info({ req: { headers: { "x-service-api-key": secret, authorization: secret } } }, "another")
    logger.info({ key: { value: secret }, apiKey: secret }, "a new key")
    logger.info({ spec: { tokenHash: secret, env: { A: secret } }, job: { spec: { env: { A: secret } } } }, "objects")
    logger.debug("too quiet")
    expect(lines).toHaveLength(4)
    expect(lines.join("")).not.toContain(secret)
    expect(JSON.parse(lines[0] ?? "")).toMatchObject({ level: "info", name: "test", msg: "a request" })
  })
})

describe("logDestination", () => {
  it("does not fail if the disk accepts no line", () => {
    const logger = createLogger({ level: "info", name: "test", destination: logDestination("/dev/full") })
    for (let line = 0; line < 20_000; line++) logger.info({ line, text: "x".repeat(100) }, "a line")
    expect(logger.level).toBe("info")
  })

  it.skipIf(noDisk !== "")(`writes waiting lines as soon as the disk accepts them${noDisk}`, async () => {
    const disk = await smallDisk(1)
    try {
      const path = join(disk.path, "log")
      const logger = createLogger({ level: "info", name: "test", destination: logDestination(path) })
      logger.info("first")
      await disk.fill()
      for (let line = 0; line < 200; line++) logger.info({ text: "x".repeat(100) }, "waits")
      await disk.empty()
      logger.info("last")
      const lines = (await readFile(path, "utf8")).trimEnd().split("\n")
      const messages = lines.map((line) => (JSON.parse(line) as { msg: string }).msg)
      expect(messages).toEqual(["first", ...Array.from({ length: 200 }, () => "waits"), "last"])
    } finally {
      await disk.remove()
    }
  })
})

describe("Health", () => {
  it("is ready if every check passes, until it drains, and stays live when not ready", () => {
    const health = new Health()
    let fault: string | undefined = "not read yet"
    health.addReadyCheck("caches", () => fault)
    expect(health.ready()).toMatchObject({ healthy: false })
    expect(health.ready().checks).toContainEqual({ name: "caches", fault: "not read yet" })
    fault = undefined
    expect(health.ready().healthy).toBe(true)
    health.drain()
    expect(health.ready().healthy).toBe(false)
    expect(health.live().healthy).toBe(true)
    health.addLiveCheck("loop", () => "stuck")
    expect(health.live()).toEqual({ healthy: false, checks: [{ name: "loop", fault: "stuck" }] })
  })
})

describe("startOperationsServer", () => {
  it("listens on all addresses of IPv4 and IPv6 if none is set", async () => {
    const server = await startOperationsServer({
      host: "",
      port: 0,
      health: new Health(),
      metrics: createMetrics("test"),
    })
    const { port } = new URL(server.url)
    const own = Object.values(networkInterfaces()).flatMap((addresses = []) => addresses.filter((one) => one.internal))
    expect(own).not.toEqual([])
    for (const { family, address } of own) {
      const host = family === "IPv6" ? `[${address}]` : address
      expect((await fetch(`http://${host}:${port}/livez`)).status, address).toBe(200)
    }
    await server.close()
  })
})

describe("measureClient", () => {
  it("counts the requests of a client until it is ended, and leaves the client open", async () => {
    const listeners = new Set<(exchange: Exchange) => void>()
    const waitListeners = new Set<(wait: Wait) => void>()
    const client = {
      onExchange: (listener: (exchange: Exchange) => void) => {
        listeners.add(listener)
        return () => listeners.delete(listener)
      },
      onWait: (listener: (wait: Wait) => void) => {
        waitListeners.add(listener)
        return () => waitListeners.delete(listener)
      },
      waiting: (kind: FlowKind) => (kind === "agents" ? 2 : 0),
    }
    const metrics = createMetrics("test")
    const end = new AbortController()
    measureClient(metrics, client, end.signal)
    for (const listener of listeners) listener({ method: "GET", code: 200, seconds: 0.1 })
    const counted = await metrics.getSingleMetricAsString("rest_client_requests_total")
    expect(counted).toContain('rest_client_requests_total{method="GET",code="200",program="test"} 1')
    for (const listener of waitListeners) listener({ kind: "requests", seconds: 0.3 })
    const text = await metrics.metrics()
    expect(text).toContain('rest_client_rate_limiter_duration_seconds_count{program="test",kind="requests"} 1')
    expect(text).toContain('berth_api_server_calls_waiting{kind="agents",program="test"} 2')
    end.abort()
    expect([...listeners, ...waitListeners]).toEqual([])
  })
})
