import type { CredentialSources } from "../../accounts/credentials.ts"
import type { OpenAccount } from "../../clouds/account.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { StoredConnection } from "../../core/apis/connection.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { Secret } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Quota } from "../../core/quota/project-limits.ts"
import type { Writer } from "../writes.ts"
import type { PriceStates } from "./prices.ts"
import type { ConnectionSettings } from "./settings.ts"

/** Dependencies and settings of the connection controller. `operator/main.ts` provides them. */
export interface ConnectionControllerDependencies extends CredentialSources {
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
