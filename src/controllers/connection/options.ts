import type { Clock } from "../../apis/clock.ts"
import { CONNECTION, type StoredConnection } from "../../apis/connection.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import type { StoredProject } from "../../apis/project.ts"
import type { OpenAccount } from "../../cloud/account.ts"
import { byNamespace, NAMESPACE_INDEX } from "../../identity/catch-up.ts"
import type { KubeClient } from "../../kube/client.ts"
import { SECRETS, type Secret } from "../../kube/core.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Reflector, ReflectorOptions } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { Store } from "../../kube/store.ts"
import type { Quota } from "../../limits/project-limits.ts"
import type { Sealer } from "../../sealing/envelope.ts"
import type { Writer } from "../writes.ts"
import type { PriceStates } from "./prices.ts"

/** API resource of Connections. */
export const CONNECTIONS = resourceOf<StoredConnection>(CONNECTION)

/** Owner of the fields that the connection controller writes. */
const FIELD_MANAGER = "berth-connection-controller"

/** The only type of Secret that a Connection may name. It keeps other Secrets of the namespace out of reach. */
export const CREDENTIALS_SECRET_TYPE = "berth.dev/connection"

/** Index of Connections by the Secret that they name, as `namespace/name`. */
export const SECRET_INDEX = "secret"

/** Options that the reflector of Connections must have. */
export const CONNECTION_CACHE: Pick<ReflectorOptions<StoredConnection>, "resource" | "indexes"> = {
  resource: CONNECTIONS,
  indexes: {
    [NAMESPACE_INDEX]: byNamespace,
    [SECRET_INDEX]: ({ metadata, spec }) =>
      spec.credentialsSecretRef === undefined ? [] : [`${metadata.namespace}/${spec.credentialsSecretRef.name}`],
  },
}

/** Options that the reflector of Secrets must have. They keep every other Secret out of this process's memory. */
export const CREDENTIALS_SECRET_CACHE: Pick<ReflectorOptions<Secret>, "resource" | "fieldSelector"> = {
  resource: SECRETS,
  fieldSelector: `type=${CREDENTIALS_SECRET_TYPE}`,
}

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

/** Sources of the credentials of a connection. */
export interface CredentialSources {
  /** Has the options CREDENTIALS_SECRET_CACHE. */
  secrets: { store: Store<Secret> }
  projects: { store: Store<StoredProject> }
  sealer: Sealer
  /** Issuer of identity tokens, which credentials without a secret need. Absent: this installation issues none. */
  identityIssuer?: string | undefined
}

/** Dependencies and settings of the connection controller. `operator.ts` provides them. */
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
