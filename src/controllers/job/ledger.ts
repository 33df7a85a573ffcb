import type { Clock } from "../../apis/clock.ts"
import type { Launch, StoredLaunch } from "../../apis/launch.ts"
import { keyOf } from "../../apis/meta.ts"
import type { Store } from "../../kube/store.ts"

/** How long a Launch is counted that was written and never shows in the cache (its write may have failed), seconds. */
const PATIENCE_SECONDS = 60

/**
 * All Launches, with those that this process is just making and the cache doesn't show yet: caps and the breaker must
 * count them, or several jobs placed in the same moment would each find the last free place.
 */
export class LaunchLedger {
  readonly #store: Store<StoredLaunch>
  readonly #clock: Clock
  readonly #pending = new Map<string, { launch: StoredLaunch; since: number }>()

  constructor(store: Store<StoredLaunch>, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  /** Counts a Launch from now on; call it before anything is awaited after the decision to make it. */
  reserve(launch: Launch): void {
    // Nobody but this ledger's readers sees the fields that the API server will give it.
    const metadata = {
      ...launch.metadata,
      uid: "",
      resourceVersion: "",
      generation: 1,
      creationTimestamp: this.#clock.now().toISOString(),
    }
    this.#pending.set(keyOf(launch), { launch: { ...launch, metadata }, since: this.#clock.monotonic() })
  }

  /** The Launch was not made. */
  release(launch: Launch): void {
    this.#pending.delete(keyOf(launch))
  }

  all(): StoredLaunch[] {
    return [...this.#store.list(), ...this.#unseen()]
  }

  ofNamespace(namespace: string): StoredLaunch[] {
    const unseen = this.#unseen().filter((launch) => launch.spec.job.namespace === namespace)
    return [...this.#store.byIndex("namespace", namespace), ...unseen]
  }

  #unseen(): StoredLaunch[] {
    const patience = this.#clock.monotonic() - PATIENCE_SECONDS
    for (const [key, { since }] of this.#pending) {
      if (since < patience || this.#store.getByKey(key) !== undefined) this.#pending.delete(key)
    }
    return [...this.#pending.values()].map(({ launch }) => launch)
  }
}
