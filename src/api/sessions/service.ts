import type { RequestListener, Server } from "node:http"
import { hostname } from "node:os"
import type { Clock } from "../../core/apis/clock.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { EventRecorder } from "../../core/kube/events.ts"
import type { Lease } from "../../core/kube/lease.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Logger } from "../../core/telemetry/logger.ts"
import type { Gateway } from "../gateway/gateway.ts"
import { Forwarder } from "./forward.ts"
import { SessionHub } from "./hub.ts"
import { SessionLeases } from "./lease.ts"
import { PortSites } from "./ports/sites.ts"
import { Upgrades } from "./upgrades.ts"

export interface SessionServiceOptions {
  client: KubeClient
  /** Leases of sessions. Undefined: the installation allows no sessions. */
  cache: Reflector<Lease> | undefined
  /** Domain whose subdomains are ports of jobs. Absent: browsers reach none. */
  domain?: string | undefined
  /** Returns the gateway; undefined while it can't take messages. */
  gateway: () => Gateway | undefined
  clock: Clock
  logger: Logger
}

/** All of a replica's part in sessions, if the installation allows them. */
export class SessionService {
  readonly #leases: SessionLeases | undefined
  readonly #upgrades: Upgrades | undefined
  readonly #recorder: EventRecorder | undefined
  readonly #forwarder = new Forwarder()
  /** Undefined: the installation allows no sessions. */
  readonly hub: SessionHub | undefined
  /** Undefined: browsers reach no ports. */
  readonly ports: PortSites | undefined

  constructor({ client, cache, domain, gateway, clock, logger }: SessionServiceOptions) {
    if (cache === undefined) return
    this.#leases = new SessionLeases({ client, cache, clock })
    this.#recorder = new EventRecorder({ client, component: "berth-facade", instance: hostname(), clock, logger })
    this.hub = new SessionHub({ leases: this.#leases, recorder: this.#recorder, clock, logger })
    const shared = { leases: this.#leases, forwarder: this.#forwarder }
    this.ports = domain === undefined ? undefined : new PortSites({ domain, ...shared })
    this.#upgrades = new Upgrades({ hub: this.hub, ports: this.ports, gateway, clock, logger, ...shared })
  }

  /** Returns a listener that keeps the hosts of ports apart: what they are asked for never reaches the other listener. */
  apart(listener: RequestListener): RequestListener {
    const { ports } = this
    if (ports === undefined) return listener
    return (req, res) => (ports.has(req) ? ports.handle(req, res) : listener(req, res))
  }

  /** Takes the WebSockets of a server. Call it before the server listens. */
  listenOn(server: Server): void {
    this.#upgrades?.listenOn(server)
  }

  /** Sets where other replicas reach this one. @param own URL that it listens on @param host address in place of its host */
  setAddress(own: string, host: string | undefined): void {
    const { port } = new URL(own)
    const url = host === undefined ? own : `http://${host.includes(":") ? `[${host}]` : host}:${port}`
    this.#leases?.setReplicaUrl(url)
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.hub?.run(signal)
    await this.#recorder?.flush()
  }

  /** Ends all sessions: this replica stops. */
  close(): void {
    this.hub?.close()
    this.#upgrades?.close()
    this.#forwarder.close()
  }
}
