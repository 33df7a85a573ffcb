import type { CredentialSources } from "../../accounts/credentials.ts"
import type { OpenAccount } from "../../clouds/account.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { StoredConnection } from "../../core/apis/connection.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import { CONNECTIONS } from "../../core/kinds.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { Secret } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Quota } from "../../core/limits/project-limits.ts"
import type { Writer } from "../writes.ts"
import type { PriceStates } from "./prices.ts"

/** Owner of the fields that the connection controller writes. */
const FIELD_MANAGER = "berth-connection-controller"

/** Settings of the connection controller. All durations are in seconds. */
export interface ConnectionSettings {
  /** Timeout of one verification. */
  verifySeconds: number
  /** Interval between two verifications of credentials that work. Each connection's own differs by up to a quarter. */
  intervalSeconds: number
  /** Interval while the credentials work, but can't start VMs: their owner may be about to fix that. */
  unableIntervalSeconds: number
  /**
   * Delay after a rejection. It doubles with each further one, up to `intervalSeconds`: a provider may need a while to
   * accept a new key.
   */
  refusedRetrySeconds: number
  /** Delay after a failure to reach the provider. It doubles with each further one, up to the cap. */
  unreachableRetrySeconds: number
  unreachableRetryCapSeconds: number
  /** Time since the last success for which credentials count as verified while the provider is unreachable. */
  unreachableGraceSeconds: number
  /** Shortest time between a verification and one that a user asks for. */
  requestedPauseSeconds: number
}

export const CONNECTION_DEFAULTS: ConnectionSettings = {
  verifySeconds: 30,
  intervalSeconds: 3600,
  unableIntervalSeconds: 300,
  refusedRetrySeconds: 15,
  unreachableRetrySeconds: 10,
  unreachableRetryCapSeconds: 300,
  unreachableGraceSeconds: 6 * 3600,
  requestedPauseSeconds: 10,
}

/** Dependencies and settings of the connection controller. `operator/main.ts` provides them. */
export interface ConnectionControllerOptions extends CredentialSources {
  /** Limits of what projects may store, and their use. Absent: no limits. */
  quota?: Quota
  client: Pick<KubeClient, "request"> & Writer<StoredConnection>["client"]
  /** Has the options CONNECTION_CACHE. */
  connections: Reflector<StoredConnection>
  secrets: Reflector<Secret>
  projects: Reflector<StoredProject>
  launches: Reflector<StoredLaunch>
  /** The Secret of the sealing keys. Its change requeues all Connections: they may have to be sealed again. */
  sealingKeys: Reflector<Secret>
  openAccount: OpenAccount
  /** Absent: Berth reads no prices. */
  prices?: PriceStates | undefined
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  settings?: Partial<ConnectionSettings>
  /** Connections reconciled at the same time; each may wait for a provider. Default 8. */
  workers?: number
}

export function connectionWriter({ client, connections }: ConnectionControllerOptions): Writer<StoredConnection> {
  return { client, resource: CONNECTIONS, store: connections.store, fieldManager: FIELD_MANAGER }
}
