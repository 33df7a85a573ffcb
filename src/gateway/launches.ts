import { type AgentStatus, type BootFailure, LAUNCH, type LaunchStatus, type StoredLaunch } from "../apis/launch.ts"
import { GATEWAY_FIELD_MANAGER } from "../apis/meta.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound } from "../kube/errors.ts"
import { type Resource, resourceOf } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"

/** All that the gateway does with Launches. */
export interface Launches {
  /** The Launch as the cache shows it, which may be a moment old. */
  get(name: string): StoredLaunch | undefined
  /** The Launch as it is now. */
  read(name: string): Promise<StoredLaunch | undefined>
  /**
   * Writes `status.agent` and nothing else. Rejects with a Conflict (kube/errors.ts) when the Launch is no longer
   * the one given: read it again and decide again.
   */
  patchAgentStatus(launch: StoredLaunch, agent: AgentStatus): Promise<StoredLaunch>
  /** Writes `status.bootFailure` and nothing else. Rejects as `patchAgentStatus` does. */
  patchBootFailure(launch: StoredLaunch, bootFailure: BootFailure): Promise<StoredLaunch>
}

const LAUNCHES: Resource<StoredLaunch> = resourceOf<StoredLaunch>(LAUNCH)

/** The Launches of Berth's own namespace, through the API server and a cache of it. */
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
