import type { StoredLaunch } from "../core/apis/launch.ts"
import { submissionsOf } from "../core/apis/origin.ts"
import type { StoredStatement } from "../core/apis/statement.ts"
import { LAUNCHES, STATEMENTS } from "../core/kinds.ts"
import type { ReflectorOptions } from "../core/kube/reflector.ts"
import type { IndexFunction } from "../core/kube/store.ts"
import { ledgerIndexes } from "./placement/ledger.ts"

/** Indexes that the caches of Launches have. */
export const launchIndexes: Record<
  "jobUid" | "submission" | keyof typeof ledgerIndexes,
  IndexFunction<StoredLaunch>
> = {
  jobUid: (launch) => [launch.spec.job.uid],
  submission: submissionsOf,
  ...ledgerIndexes,
}

/** Options that the reflectors of Launches must have. */
export const LAUNCH_CACHE: Pick<ReflectorOptions<StoredLaunch>, "resource" | "indexes"> = {
  resource: LAUNCHES,
  indexes: launchIndexes,
}

/** Options that the reflectors of Statements must have: an index by the namespace of their project. */
export const STATEMENT_CACHE: Pick<ReflectorOptions<StoredStatement>, "resource" | "indexes"> = {
  resource: STATEMENTS,
  indexes: { project: ({ spec }) => [spec.namespace] },
}
