import type { AgentStatus, BootFailure, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { GATEWAY_FIELD_MANAGER } from "../../core/apis/meta.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { ifFound } from "../../core/kube/errors.ts"
import { LAUNCHES } from "../../core/resources.ts"
import { AnsweredObjects, type Cached } from "./answered.ts"

/** Reads and writes Launches for the gateway. */
export interface Launches {
  /** Returns the Launch as it was last written, read or cached here. It may be stale. */
  get(name: string): StoredLaunch | undefined
  /** Returns the current Launch. */
  read(name: string): Promise<StoredLaunch | undefined>
  /**
   * Writes `status.agent` and nothing else. Rejects with a Conflict (core/kube/errors.ts) if the Launch has changed since it
   * was read: read it again and decide again.
   */
  patchAgentStatus(launch: StoredLaunch, agent: AgentStatus): Promise<StoredLaunch>
  /** Writes `status.bootFailure` and nothing else. Rejects as `patchAgentStatus` does. */
  patchBootFailure(launch: StoredLaunch, bootFailure: BootFailure): Promise<StoredLaunch>
  /** Resolves once the cache shows a later version of the Launch, or its deletion. Rejects with the signal's reason. */
  untilChanged(launch: StoredLaunch, signal: AbortSignal): Promise<void>
}

/** Launches of this process' cache. */
export type CachedLaunches = Cached<StoredLaunch>

/** Returns the Launches of Berth's own namespace, from the API server and a cache. */
export function kubeLaunches(client: KubeClient, store: CachedLaunches, namespace: string): Launches {
  const answered = new AnsweredObjects(store)
  const patchStatus = async (
    { metadata: { name, resourceVersion } }: StoredLaunch,
    status: Pick<LaunchStatus, "agent" | "bootFailure">,
  ) => {
    const merge = { metadata: { resourceVersion }, status }
    const options = { fieldManager: GATEWAY_FIELD_MANAGER }
    return answered.keep(await client.patchStatus(LAUNCHES, { namespace, name }, { merge }, options))
  }
  return {
    get: (name) => answered.get({ namespace, name }),
    async read(name) {
      const live = await ifFound(client.get(LAUNCHES, { namespace, name }))
      return live && answered.keep(live)
    },
    patchAgentStatus: (launch, agent) => patchStatus(launch, { agent }),
    patchBootFailure: (launch, bootFailure) => patchStatus(launch, { bootFailure }),
    untilChanged: (launch, signal) => answered.untilChanged(launch, signal),
  }
}
