import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import type { RequestListener, Server } from "node:http"
import { createServer as createTlsServer } from "node:https"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
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
import { createHttpServer, type ServerLimits } from "../../src/api/http/server.ts"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import type { ReadOptions } from "../../src/api/logs/store.ts"
import type { SessionHub } from "../../src/api/sessions/hub.ts"
import { SESSIONS_CACHE } from "../../src/api/sessions/lease.ts"
import { SessionService } from "../../src/api/sessions/service.ts"
import { FileUploadStore } from "../../src/api/uploads/file-store.ts"
import { UPLOADS_FOLDER } from "../../src/api/uploads/store.ts"
import { FileObjects } from "../../src/api/usage/objects.ts"
import { USAGE_FOLDER, UsageStore } from "../../src/api/usage/store.ts"
import { UsageTails } from "../../src/api/usage/tails.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { StoredMachine } from "../../src/core/apis/machine.ts"
import { IDENTITIES_NAMESPACE } from "../../src/core/identity/machine-users.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import type { Lease } from "../../src/core/kube/lease.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { bootConfig, renderUserData } from "../../src/core/protocol/messages.ts"
import { type BootConfig, GATEWAY_PATH } from "../../src/core/protocol/protocol.ts"
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
  /** Sessions that it holds. People connect to it, too. */
  hub: SessionHub
  /** Number of open connections. */
  connections: () => Promise<number>
  /** Kind and status of every message that was answered. */
  answered: { kind: string; status: number }[]
  /** Ends the gateway and its connections as a crash would; `restart` lets it listen on the same port again. */
  stop: () => Promise<void>
  restart: () => Promise<void>
  bootConfig: (launch: StoredLaunch) => BootConfig
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
  /** Limits of time of its clients. Default: the server's own. */
  limits?: Partial<ServerLimits>
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
  const leases = new Reflector<Lease>({ client, logger, ...SESSIONS_CACHE, namespace: IDENTITIES_NAMESPACE })
  const cacheOfMachines = new Reflector<StoredMachine>({ client, resource: MACHINES, logger })
  const reflectors = [reflector, cacheOfMachines]
  const loops = [...reflectors, leases].map((each) => each.run(running.signal))
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
  await fixture.client.apply(NAMESPACES, { metadata: { name: IDENTITIES_NAMESPACE } })
  const sessions = new SessionService({ client, cache: leases, gateway: () => gateway, clock, logger })
  const { hub } = sessions
  if (hub === undefined) throw new Error("there are no sessions")
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
    sessionsOf: (launch: string) => hub.idsOf(launch),
    ...options.parts,
  }
  const gateway: Gateway = new Gateway(parts)
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
  const open = async (port: number): Promise<Server> => {
    const opened = tls === undefined ? createHttpServer(listener, options.limits) : createTlsServer(tls, listener)
    sessions.listenOn(opened)
    opened.listen({ port, host })
    await once(opened, "listening")
    return opened
  }
  let server = await open(0)
  const { port } = server.address() as AddressInfo
  const configOf = ({ metadata, spec }: StoredLaunch) =>
    bootConfig({ metadata, spec: { ...spec, gatewayUrl: url } }, BOOTSTRAP_KEY)
  const url = `${tls === undefined ? "http" : "https"}://${host}:${port}`
  sessions.setAddress(url, undefined)
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
      server = await open(port)
    },
    hub,
    connections: () => promisify(server.getConnections.bind(server))(),
    bootConfig: configOf,
    userData: (launch) => renderUserData(configOf(launch)),
    logOf: async ({ spec: { job } }, options) => {
      const pieces: Uint8Array[] = []
      for await (const piece of logs.read({ namespace: job.namespace, uid: job.uid }, options)) pieces.push(piece)
      return Buffer.concat(pieces)
    },
    close: async () => {
      sessions.close()
      if (server.listening) await stop()
      running.abort()
      await Promise.all(loops)
      await client.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
