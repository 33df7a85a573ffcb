import type { Server } from "node:http"
import { hostname } from "node:os"
import type { Clock } from "../../core/apis/clock.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { EventRecorder } from "../../core/kube/events.ts"
import type { Lease } from "../../core/kube/lease.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Logger } from "../../core/telemetry/logger.ts"
import type { Gateway } from "../gateway/gateway.ts"
import { SessionHub } from "./hub.ts"
import { SessionLeases } from "./lease.ts"
import { Upgrades } from "./upgrades.ts"

export interface SessionServiceOptions {
  client: KubeClient
  /** Leases of sessions. Undefined: the installation allows no sessions. */
  cache: Reflector<Lease> | undefined
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
  /** Undefined: the installation allows no sessions. */
  readonly hub: SessionHub | undefined

  constructor({ client, cache, gateway, clock, logger }: SessionServiceOptions) {
    if (cache === undefined) return
    this.#leases = new SessionLeases({ client, cache, clock })
    this.#recorder = new EventRecorder({ client, component: "berth-facade", instance: hostname(), clock, logger })
    this.hub = new SessionHub({ leases: this.#leases, recorder: this.#recorder, clock, logger })
    this.#upgrades = new Upgrades({ hub: this.hub, leases: this.#leases, gateway, clock, logger })
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
  }
}
