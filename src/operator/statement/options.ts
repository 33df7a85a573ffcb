import type { Clock } from "../../core/apis/clock.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredStatement } from "../../core/apis/statement.ts"
import { STATEMENTS } from "../../core/kinds.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Fence } from "../fence.ts"
import type { StatusReplacer, Writer } from "../writes.ts"

/** Owner of the fields that the statement controller writes. */
export const FIELD_MANAGER = "berth-statement-controller"

/** Settings of the statement controller. */
export interface StatementSettings {
  /** Shortest time between two writes of a project's Statements, seconds. Costs that arrive meanwhile share a write. */
  collectSeconds: number
  /** Number of months that a Statement is kept after its own. */
  monthsKept: number
}

export const STATEMENT_DEFAULTS: StatementSettings = { collectSeconds: 5, monthsKept: 13 }

/** Dependencies of the statement controller. `operator/main.ts` provides them. */
export interface StatementControllerOptions {
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

export function statementWriter({ client, statements }: StatementControllerOptions) {
  return { client, resource: STATEMENTS, store: statements.store, fieldManager: FIELD_MANAGER }
}
