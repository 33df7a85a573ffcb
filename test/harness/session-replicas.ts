import { once } from "node:events"
import type { Server } from "node:http"
import type { AddressInfo } from "node:net"
import express from "express"
import { Gateway } from "../../src/api/gateway/gateway.ts"
import { kubeLaunches } from "../../src/api/gateway/launches.ts"
import { kubeMachines } from "../../src/api/gateway/machines.ts"
import { gatewayRouter } from "../../src/api/gateway/router.ts"
import { kubeSecretEnv } from "../../src/api/gateway/secrets.ts"
import { problemHandler } from "../../src/api/http/problem.ts"
import { createHttpServer, type ServerLimits } from "../../src/api/http/server.ts"
import type { SessionHub } from "../../src/api/sessions/hub.ts"
import { SESSIONS_CACHE } from "../../src/api/sessions/lease.ts"
import { SessionService } from "../../src/api/sessions/service.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { StoredMachine } from "../../src/core/apis/machine.ts"
import { IDENTITIES_NAMESPACE } from "../../src/core/identity/machine-users.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import type { Lease } from "../../src/core/kube/lease.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { bootConfig } from "../../src/core/protocol/messages.ts"
import type { BootConfig } from "../../src/core/protocol/protocol.ts"
import { GATEWAY_PATH } from "../../src/core/protocol/protocol.ts"
import { LAUNCHES, MACHINES } from "../../src/core/resources.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { PATIENCE_MS } from "./eventually.ts"
import { BOOTSTRAP_KEY } from "./gateway.ts"
import type { LaunchFixture } from "./launches.ts"

/** Replica's part in sessions: its gateway, and the WebSockets of people and agents. Replicas share only the API server. */
export interface SessionReplica {
  url: string
  hub: SessionHub
  server: Server
  /** All log lines of the replica. */
  logged: () => string
  bootConfig: (launch: StoredLaunch) => BootConfig
  close: () => Promise<void>
}

export interface SessionReplicaOptions {
  limits?: Partial<ServerLimits>
  clock?: Clock
}

/** Starts a replica of the Launches of this fixture. */
export async function startSessionReplica(
  { client, namespace }: LaunchFixture,
  { limits, clock = systemClock }: SessionReplicaOptions = {},
): Promise<SessionReplica> {
  const lines: string[] = []
  const destination = { write: (line: string) => void lines.push(line) }
  const logger = createLogger({ level: "debug", name: "replica", destination })
  const running = new AbortController()
  const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace, logger })
  const machines = new Reflector<StoredMachine>({ client, resource: MACHINES, logger })
  await client.apply(NAMESPACES, { metadata: { name: IDENTITIES_NAMESPACE } })
  const leases = new Reflector<Lease>({ client, logger, ...SESSIONS_CACHE, namespace: IDENTITIES_NAMESPACE })
  let gateway: Gateway | undefined
  const sessions = new SessionService({ client, cache: leases, gateway: () => gateway, clock, logger })
  const { hub } = sessions
  if (hub === undefined) throw new Error("the replica allows no sessions")
  const parts = {
    launches: kubeLaunches(client, launches.store, namespace),
    machines: kubeMachines(client, machines.store),
    secretEnv: kubeSecretEnv(client),
    logs: { append: async () => ({ size: 0 }) } as never,
    uploads: {} as never,
    readLeader: async () => "",
    bootstrapKey: BOOTSTRAP_KEY,
    sessionsOf: (launch: string) => hub.idsOf(launch),
    ...{ clock, logger },
  }
  gateway = new Gateway(parts)
  const app = express()
  app.use(GATEWAY_PATH, gatewayRouter(parts, gateway))
  app.use(problemHandler)
  const server = createHttpServer(app, limits)
  sessions.listenOn(server)
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  sessions.setAddress(url, undefined)
  const loops = [launches, machines, leases].map((each) => each.run(running.signal))
  for (const each of [launches, machines, leases]) await each.whenSynced(AbortSignal.timeout(PATIENCE_MS))
  return {
    ...{ url, hub, server },
    logged: () => lines.join(""),
    bootConfig: ({ metadata, spec }) => bootConfig({ metadata, spec: { ...spec, gatewayUrl: url } }, BOOTSTRAP_KEY),
    close: async () => {
      sessions.close()
      running.abort()
      server.closeAllConnections()
      server.close()
      await Promise.all(loops)
    },
  }
}
