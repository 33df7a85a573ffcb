import { keyOf } from "../../core/apis/meta.ts"
import type { ApiObject } from "../../core/kube/resource.ts"
import type { Store } from "../../core/kube/store.ts"

/** Cache of one kind. */
export type Cached<T extends ApiObject> = Pick<Store<T>, "get" | "reached" | "waitUntil">

type Stored = ApiObject & { metadata: { resourceVersion: string } }

/**
 * Objects as they were last written, read or cached here. An agent reports the start right after its registration. The
 * cache has the registration a moment later, so each such report would cost a read. So answers of the API server are kept
 * until the cache has their versions.
 */
export class AnsweredObjects<T extends Stored> {
  readonly #store: Cached<T>
  /** The oldest answer first. */
  readonly #answers = new Map<string, T>()

  constructor(store: Cached<T>) {
    this.#store = store
  }

  /** Returns the object as it is known here. It may be stale. */
  get(ref: { namespace: string; name: string }): T | undefined {
    const answer = this.#answers.get(`${ref.namespace}/${ref.name}`)
    return answer === undefined || this.#isCached(answer) ? this.#store.get(ref) : answer
  }

  /** Keeps an answer of the API server, and returns it. */
  keep(object: T): T {
    for (const [key, oldest] of this.#answers) {
      if (!this.#isCached(oldest)) break
      this.#answers.delete(key)
    }
    const key = keyOf(object)
    this.#answers.delete(key)
    this.#answers.set(key, object)
    return object
  }

  /** Resolves once the cache shows a later version of the object, or its deletion. Rejects with the signal's reason. */
  async untilChanged({ metadata }: T, signal: AbortSignal): Promise<void> {
    const { resourceVersion } = metadata
    const isChanged = (): boolean =>
      this.#store.reached(resourceVersion) && this.#store.get(metadata)?.metadata.resourceVersion !== resourceVersion
    await this.#store.waitUntil(isChanged, signal, { key: keyOf({ metadata }) })
  }

  #isCached({ metadata }: T): boolean {
    return this.#store.reached(metadata.resourceVersion)
  }
}
