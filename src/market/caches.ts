import type { StoredLaunch } from "../core/apis/launch.ts"
import { submissionsOf } from "../core/apis/origin.ts"
import type { StoredStatement } from "../core/apis/statement.ts"
import { IDENTITIES_NAMESPACE } from "../core/identity/machine-users.ts"
import { HEARTBEATS_CACHE } from "../core/kube/heartbeats.ts"
import { Reflector, type ReflectorOptions } from "../core/kube/reflector.ts"
import type { IndexFunction } from "../core/kube/store.ts"
import { LAUNCHES, STATEMENTS } from "../core/resources.ts"
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

/** Constructs the caches of the objects that Berth keeps in its own namespaces. */
export function systemCaches(
  base: Pick<ReflectorOptions<StoredLaunch>, "client" | "logger">,
  { systemNamespace: namespace }: { systemNamespace: string },
) {
  return {
    launches: new Reflector({ ...base, ...LAUNCH_CACHE, namespace }),
    statements: new Reflector({ ...base, ...STATEMENT_CACHE, namespace }),
    heartbeats: new Reflector({ ...base, ...HEARTBEATS_CACHE, namespace: IDENTITIES_NAMESPACE }),
  }
}
