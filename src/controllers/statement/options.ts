import type { Clock } from "../../apis/clock.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import { STATEMENT, type StoredStatement } from "../../apis/statement.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { Reflector } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { IndexFunction } from "../../kube/store.ts"
import type { Fence } from "../fence.ts"
import type { StatusReplacer, Writer } from "../writes.ts"

/** API resource of Statements. */
export const STATEMENTS = resourceOf<StoredStatement>(STATEMENT)

/** Index of Statements by the namespace of their project. */
export const STATEMENT_INDEXES: Record<"project", IndexFunction<StoredStatement>> = {
  project: ({ spec }) => [spec.namespace],
}

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

/** Dependencies of the statement controller. `operator.ts` provides them. */
export interface StatementControllerOptions {
  client: Pick<KubeClient, "pages"> & Writer<StoredStatement>["client"] & StatusReplacer<StoredStatement>["client"]
  /** Cache of the Statements in `systemNamespace`, with the indexes `STATEMENT_INDEXES`. */
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
