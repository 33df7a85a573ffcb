import { isDeepStrictEqual } from "node:util"
import type { RefusalClass } from "../../clouds/rejection.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { frozenSettings } from "../../core/apis/vm-settings.ts"
import type { LaunchAccount, Scope } from "../router/cooldown.ts"

/** Project for which cooldowns are calculated: names of connections are its own. */
export interface Viewer {
  namespace: string
  launchAccounts: readonly LaunchAccount[]
}

/**
 * Returns the holder of credentials, policies and settings: the connection. Undefined for another project's connection,
 * and for credentials or settings of VMs that were replaced since.
 */
export function connectionHolder(
  launch: StoredLaunch,
  kind: RefusalClass,
  { namespace, launchAccounts }: Viewer,
): Scope | undefined {
  const { offer, connection, account, job } = launch.spec
  if (connection === undefined) return { cloud: offer.cloud, ...defined({ account }) }
  if (job.namespace !== namespace) return undefined
  const used = launch.metadata.annotations?.[ANNOTATIONS.credentials]
  const current = launchAccounts.find((each) => each.cloud === offer.cloud && each.connection === connection)
  const isReplaced = used !== undefined && current?.credentials !== undefined && current.credentials !== used
  if (isReplaced || (OF_SETTINGS.includes(kind) && current !== undefined && haveSettingsChanged(launch, current)))
    return undefined
  return { cloud: offer.cloud, connection }
}

/** Classes of rejections that the connection's network or disk may have caused. */
const OF_SETTINGS: readonly RefusalClass[] = ["Account", "Region", "InvalidRequest"]

/** Returns true if a VM in the region would get other settings of its connection now. */
function haveSettingsChanged({ spec: { offer, network, disk } }: StoredLaunch, { settings }: LaunchAccount): boolean {
  const { requiredGib: _, ...own } = disk ?? {}
  const now = frozenSettings(settings ?? {}, offer)
  return now === undefined || !isDeepStrictEqual([network, own], [now.network, now.disk ?? {}])
}

/** Returns the holder of quotas and VMs: the account, or the connection if its account is not known. */
export function accountHolder({ spec }: StoredLaunch, { namespace }: Viewer): Scope | undefined {
  const { offer, connection, account, job } = spec
  if (account !== undefined) return { cloud: offer.cloud, account }
  if (connection === undefined) return { cloud: offer.cloud }
  return job.namespace === namespace ? { cloud: offer.cloud, connection } : undefined
}
