import type { Clock } from "../../core/apis/clock.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredStatement } from "../../core/apis/statement.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Fence } from "../fence.ts"
import type { StatusReplacer, Writer } from "../writes.ts"
import type { StatementSettings } from "./settings.ts"

/** Dependencies of the statement controller. `operator/main.ts` provides them. */
export interface StatementControllerDependencies {
  client: Pick<KubeClient, "pages"> & Writer<StoredStatement>["client"] & StatusReplacer<StoredStatement>["client"]
  /** Cache of the Statements in `systemNamespace`, with the indexes `STATEMENT_CACHE`. */
  statements: Reflector<StoredStatement>
  /** Cache of all Launches, with the indexes of the launch controller. */
  launches: Reflector<StoredLaunch>
  systemNamespace: string
  fence: Fence
  clock: Clock
  logger: Logger
  settings?: Partial<StatementSettings>
}
