import { type AgentStatus, type BootFailure, LAUNCH, type LaunchStatus, type StoredLaunch } from "../apis/launch.ts"
import { GATEWAY_FIELD_MANAGER } from "../apis/meta.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound } from "../kube/errors.ts"
import { type Resource, resourceOf } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"

/** Reads and writes Launches for the gateway. */
export interface Launches {
  /** Returns the cached Launch, which may be stale. */
  get(name: string): StoredLaunch | undefined
  /** Returns the current Launch. */
  read(name: string): Promise<StoredLaunch | undefined>
  /**
   * Writes `status.agent` and nothing else. Rejects with a Conflict (kube/errors.ts) if the Launch has changed since it
   * was read: read it again and decide again.
   */
  patchAgentStatus(launch: StoredLaunch, agent: AgentStatus): Promise<StoredLaunch>
  /** Writes `status.bootFailure` and nothing else. Rejects as `patchAgentStatus` does. */
  patchBootFailure(launch: StoredLaunch, bootFailure: BootFailure): Promise<StoredLaunch>
}

const LAUNCHES: Resource<StoredLaunch> = resourceOf<StoredLaunch>(LAUNCH)

/** Returns the Launches of Berth's own namespace, from the API server and a cache. */
export function kubeLaunches(client: KubeClient, store: Pick<Store<StoredLaunch>, "get">, namespace: string): Launches {
  const patchStatus = (
    { metadata: { name, resourceVersion } }: StoredLaunch,
    status: Pick<LaunchStatus, "agent" | "bootFailure">,
  ) => {
    const merge = { metadata: { resourceVersion }, status }
    return client.patchStatus(LAUNCHES, { namespace, name }, { merge }, { fieldManager: GATEWAY_FIELD_MANAGER })
  }
  return {
    get: (name) => store.get({ namespace, name }),
    async read(name) {
      return ifFound(client.get(LAUNCHES, { namespace, name }))
    },
    patchAgentStatus: (launch, agent) => patchStatus(launch, { agent }),
    patchBootFailure: (launch, bootFailure) => patchStatus(launch, { bootFailure }),
  }
}
