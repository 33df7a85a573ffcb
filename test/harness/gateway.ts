import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer, type RequestListener, type Server } from "node:http"
import { createServer as createTlsServer } from "node:https"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { KubeConfig } from "@kubernetes/client-node"
import express, { type RequestHandler } from "express"
import { Gateway, type GatewayOptions } from "../../src/api/gateway/gateway.ts"
import type { HostsOptions } from "../../src/api/gateway/hosts.ts"
import { type CachedLaunches, kubeLaunches, type Launches } from "../../src/api/gateway/launches.ts"
import { kubeMachines, type Machines } from "../../src/api/gateway/machines.ts"
import { withReports } from "../../src/api/gateway/reports.ts"
import { gatewayRouter } from "../../src/api/gateway/router.ts"
import { kubeSecretEnv } from "../../src/api/gateway/secrets.ts"
import { problemHandler } from "../../src/api/http/problem.ts"
import { requestLog } from "../../src/api/http/request-log.ts"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import type { ReadOptions } from "../../src/api/logs/store.ts"
import { FileUploadStore } from "../../src/api/uploads/file-store.ts"
import { UPLOADS_FOLDER } from "../../src/api/uploads/store.ts"
import { FileObjects } from "../../src/api/usage/objects.ts"
import { USAGE_FOLDER, UsageStore } from "../../src/api/usage/store.ts"
import { UsageTails } from "../../src/api/usage/tails.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { StoredMachine } from "../../src/core/apis/machine.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { bootConfig, renderUserData } from "../../src/core/protocol/messages.ts"
import { GATEWAY_PATH } from "../../src/core/protocol/protocol.ts"
import { LAUNCHES, MACHINES } from "../../src/core/resources.ts"
import { kubeConfig } from "../control-plane.ts"
import type { LaunchFixture } from "./launches.ts"
import { silentLogger } from "./silent-logger.ts"

/** Key from which every gateway of these tests derives tokens. */
export const BOOTSTRAP_KEY = new Uint8Array(32).fill(5)

/** Gateway that listens, with real parts behind it. */
export interface TestGateway {
  url: string
  /** Folder of its stores. */
  folder: string
  logs: FileLogStore
  uploads: FileUploadStore
  /** Stored usage of runs. */
  usage: UsageStore
  /** Kind and status of every message that was answered. */
  answered: { kind: string; status: number }[]
  /** Ends the gateway and its connections as a crash would; `restart` lets it listen on the same port again. */
  stop: () => Promise<void>
  restart: () => Promise<void>
  /** Returns the user data of this Launch. */
  userData: (launch: StoredLaunch) => string
  logOf: (launch: StoredLaunch, options?: ReadOptions) => Promise<Buffer>
  close: () => Promise<void>
}

export interface TestGatewayOptions {
  /** Kubeconfig of its API server. Default: a direct connection. */
  kubeConfig?: KubeConfig
  parts?: Partial<GatewayOptions & Pick<HostsOptions, "whyForbidden">>
  /** Cache of Launches. Default: one that a watch keeps current. */
  cache?: CachedLaunches
  /** Wraps the Launches that the gateway sees. */
  launches?: (all: Launches) => Launches
  /** Wraps the Machines that the gateway sees. */
  machines?: (all: Machines) => Machines
  /** Middleware before the gateway. */
  before?: RequestHandler
  /** Address at which it listens. Default: 127.0.0.1. */
  host?: string
  /** Certificate and key of its server, PEM. Default: it speaks HTTP. */
  tls?: { cert: string; key: string }
}

export async function startGateway(fixture: LaunchFixture, options: TestGatewayOptions = {}): Promise<TestGateway> {
  const logger = silentLogger
  const client = new KubeClient(options.kubeConfig ?? kubeConfig())
  const reflector = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace: fixture.namespace, logger })
  const running = new AbortController()
  const cacheOfMachines = new Reflector<StoredMachine>({ client, resource: MACHINES, logger })
  const reflectors = [reflector, cacheOfMachines]
  const loops = reflectors.map((each) => each.run(running.signal))
  if (options.kubeConfig === undefined)
    await Promise.all(reflectors.map((each) => each.whenSynced(AbortSignal.timeout(60_000))))
  const folder = await mkdtemp(join(tmpdir(), "berth-gateway-"))
  const logs = new FileLogStore(folder)
  const uploads = new FileUploadStore(join(folder, UPLOADS_FOLDER))
  const answered: TestGateway["answered"] = []
  const app = express()
  app.use(requestLog(logger))
  if (options.before !== undefined) app.use(options.before)
  const launches = (options.launches ?? ((all) => all))(
    kubeLaunches(client, options.cache ?? reflector.store, fixture.namespace),
  )
  const machines = (options.machines ?? ((all) => all))(kubeMachines(client, cacheOfMachines.store))
  const usage = new UsageStore(new FileObjects(join(folder, USAGE_FOLDER)))
  const clock = options.parts?.clock ?? systemClock
  const parts = {
    launches,
    machines,
    usage: new UsageTails({ store: usage, launches, clock, logger }),
    secretEnv: kubeSecretEnv(client),
    logs,
    uploads,
    readLeader: async () => "",
    bootstrapKey: BOOTSTRAP_KEY,
    clock,
    logger,
    heartbeatSeconds: 1,
    ...options.parts,
  }
  const gateway = new Gateway(parts)
  app.use(GATEWAY_PATH, gatewayRouter(parts, gateway))
  app.use(problemHandler)
  // Middleware before the gateway must see all messages.
  const handle = options.before === undefined ? withReports(app, { gateway: () => gateway }) : app
  const listener: RequestListener = (req, res) => {
    const [path = ""] = (req.url ?? "").split("?")
    res.on("finish", () => answered.push({ kind: path.split("/").at(-1) ?? "", status: res.statusCode }))
    handle(req, res)
  }
  const host = options.host ?? "127.0.0.1"
  const { tls } = options
  let server = await listen(listener, { port: 0, host }, tls)
  const { port } = server.address() as AddressInfo
  const url = `${tls === undefined ? "http" : "https"}://${host}:${port}`
  const stop = async (): Promise<void> => {
    server.closeAllConnections()
    server.close()
    await once(server, "close")
  }
  return {
    url,
    folder,
    logs,
    uploads,
    usage,
    answered,
    stop,
    restart: async () => {
      server = await listen(listener, { port, host }, tls)
    },
    userData: ({ metadata, spec }) =>
      renderUserData(bootConfig({ metadata, spec: { ...spec, gatewayUrl: url } }, BOOTSTRAP_KEY)),
    logOf: async ({ spec: { job } }, options) => {
      const pieces: Uint8Array[] = []
      for await (const piece of logs.read({ namespace: job.namespace, uid: job.uid }, options)) pieces.push(piece)
      return Buffer.concat(pieces)
    },
    close: async () => {
      if (server.listening) await stop()
      running.abort()
      await Promise.all(loops)
      await client.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function listen(
  listener: RequestListener,
  at: { port: number; host: string },
  tls: TestGatewayOptions["tls"],
): Promise<Server> {
  const server = tls === undefined ? createServer(listener) : createTlsServer(tls, listener)
  server.listen(at)
  await once(server, "listening")
  return server
}
