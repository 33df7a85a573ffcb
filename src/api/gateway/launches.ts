import type { AgentStatus, BootFailure, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { GATEWAY_FIELD_MANAGER } from "../../core/apis/meta.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { ifFound } from "../../core/kube/errors.ts"
import type { Store } from "../../core/kube/store.ts"
import { LAUNCHES } from "../../core/resources.ts"

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
export type CachedLaunches = Pick<Store<StoredLaunch>, "get" | "reached" | "waitUntil">

/** Returns the Launches of Berth's own namespace, from the API server and a cache. */
export function kubeLaunches(client: KubeClient, store: CachedLaunches, namespace: string): Launches {
  const answered = new AnsweredLaunches(store)
  const patchStatus = async (
    { metadata: { name, resourceVersion } }: StoredLaunch,
    status: Pick<LaunchStatus, "agent" | "bootFailure">,
  ) => {
    const merge = { metadata: { resourceVersion }, status }
    const options = { fieldManager: GATEWAY_FIELD_MANAGER }
    return answered.keep(await client.patchStatus(LAUNCHES, { namespace, name }, { merge }, options))
  }
  return {
    get: (name) => answered.get(name) ?? store.get({ namespace, name }),
    async read(name) {
      const live = await ifFound(client.get(LAUNCHES, { namespace, name }))
      return live && answered.keep(live)
    },
    patchAgentStatus: (launch, agent) => patchStatus(launch, { agent }),
    patchBootFailure: (launch, bootFailure) => patchStatus(launch, { bootFailure }),
    untilChanged: async ({ metadata: { name, resourceVersion } }, signal) => {
      const isChanged = (): boolean =>
        store.reached(resourceVersion) && store.get({ namespace, name })?.metadata.resourceVersion !== resourceVersion
      await store.waitUntil(isChanged, signal, { key: `${namespace}/${name}` })
    },
  }
}

/**
 * Launches from the API server's answers, until the cache has these versions. An agent reports the start right after its
 * registration. The cache has the registration a moment later, so each such report would cost a read.
 */
class AnsweredLaunches {
  readonly #store: CachedLaunches
  /** The oldest answer first. */
  readonly #launches = new Map<string, StoredLaunch>()

  constructor(store: CachedLaunches) {
    this.#store = store
  }

  get(name: string): StoredLaunch | undefined {
    const launch = this.#launches.get(name)
    return launch === undefined || this.#isCached(launch) ? undefined : launch
  }

  keep(launch: StoredLaunch): StoredLaunch {
    for (const [name, oldest] of this.#launches) {
      if (!this.#isCached(oldest)) break
      this.#launches.delete(name)
    }
    const { name } = launch.metadata
    this.#launches.delete(name)
    this.#launches.set(name, launch)
    return launch
  }

  #isCached({ metadata }: StoredLaunch): boolean {
    return this.#store.reached(metadata.resourceVersion)
  }
}
