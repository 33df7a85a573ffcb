import type { StoredLaunch } from "../../core/apis/launch.ts"
import { keyOf } from "../../core/apis/meta.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { compareResourceVersions } from "../../core/kube/resource-version.ts"
import type { Store } from "../../core/kube/store.ts"
import { LAUNCHES } from "../../core/resources.ts"
import type { Source } from "../../core/runtime/controller.ts"

/**
 * Launches as they were when this leader's term began. A cache that is older could show a Launch as not counted that the
 * leader before has counted. Later marks are this leader's own, and it waits until its cache shows them.
 */
export class TermStart {
  #listed: ReadonlyMap<string, string> | undefined
  #version = "0"

  /** Returns a source that begins a term each time the controller is run, before its first reconcile. */
  source(client: Pick<KubeClient, "pages">, namespace: string): Source {
    return {
      subscribe: () => () => undefined,
      whenSynced: async (signal) => {
        const listed = new Map<string, string>()
        for await (const page of client.pages(LAUNCHES, { namespace, signal })) {
          for (const launch of page.items) listed.set(keyOf(launch), launch.metadata.resourceVersion)
          this.#version = page.metadata.resourceVersion
        }
        this.#listed = listed
      },
    }
  }

  /** Returns true if the cache shows no Launch in a version from before the term. */
  isShownBy(store: Store<StoredLaunch>): boolean {
    const listed = this.#listed
    if (listed === undefined || store.reached(this.#version)) return this.#shown()
    const isOlder = (one: string, other: string) => compareResourceVersions(one, other) < 0
    for (const [key, version] of listed) {
      const cached = store.getByKey(key)
      if (cached === undefined || isOlder(cached.metadata.resourceVersion, version)) return false
    }
    const isGone = (launch: StoredLaunch) =>
      !listed.has(keyOf(launch)) && !isOlder(this.#version, launch.metadata.resourceVersion)
    return store.list().some(isGone) ? false : this.#shown()
  }

  #shown(): true {
    this.#listed = undefined
    return true
  }
}
