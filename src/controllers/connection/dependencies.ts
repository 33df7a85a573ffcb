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
import type { Sealer } from "../../sealing/envelope.ts"
import type { ConnectionSettings } from "./settings.ts"

/** How Connections are reached. */
export const CONNECTIONS = resourceOf<StoredConnection>(CONNECTION)

/** Owner of the fields that the connection controller writes. */
export const FIELD_MANAGER = "berth-connection-controller"

/** The only Secrets that a Connection may name: none gets at another one that happens to be in its namespace. */
export const CREDENTIALS_SECRET_TYPE = "berth.dev/connection"

/** Index of Connections by the Secret that they name, as `namespace/name`. */
export const SECRET_INDEX = "secret"

/** What the reflector of Connections must be made with. */
export const CONNECTION_CACHE: Pick<ReflectorOptions<StoredConnection>, "resource" | "indexes"> = {
  resource: CONNECTIONS,
  indexes: {
    [NAMESPACE_INDEX]: byNamespace,
    [SECRET_INDEX]: ({ metadata, spec }) =>
      spec.credentialsSecretRef === undefined ? [] : [`${metadata.namespace}/${spec.credentialsSecretRef.name}`],
  },
}

/** What the reflector of credentials' Secrets must be made with: no other Secret ever comes into this process's memory. */
export const CREDENTIALS_SECRET_CACHE: Pick<ReflectorOptions<Secret>, "resource" | "fieldSelector"> = {
  resource: SECRETS,
  fieldSelector: `type=${CREDENTIALS_SECRET_TYPE}`,
}

export type { OpenAccount } from "../../cloud/account.ts"

/** Where credentials are read from. */
export interface CredentialSources {
  /** Made with CREDENTIALS_SECRET_CACHE. */
  secrets: { store: Store<Secret> }
  projects: { store: Store<StoredProject> }
  sealer: Sealer
}

/** What the connection controller works with; `operator.ts` constructs it. */
export interface ConnectionControllerOptions extends CredentialSources {
  client: Pick<KubeClient, "patch" | "patchStatus" | "request">
  /** Made with CONNECTION_CACHE. */
  connections: Reflector<StoredConnection>
  secrets: Reflector<Secret>
  projects: Reflector<StoredProject>
  launches: Reflector<StoredLaunch>
  /** The Secret of the sealing keys, whose change wakes all Connections: they may have to be sealed anew. */
  sealingKeys: Reflector<Secret>
  openAccount: OpenAccount
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  settings?: Partial<ConnectionSettings>
  /** Connections looked after at the same time; each may wait for a provider. Default 8. */
  workers?: number
}
