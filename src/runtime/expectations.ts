import { type Clock, systemClock } from "../apis/clock.ts"
import { keyOf } from "../apis/meta.ts"
import type { ApiObject } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"

interface Expectation {
  /** Wakes at each change of the store that will show it. */
  wait(condition: () => boolean, signal: AbortSignal): Promise<void>
  met(): boolean
  expiresAt: number
}

/**
 * client-go's controllers give up expecting after 5 minutes, too: a store whose selector excludes the
 * written object, or a server restored from a backup, would never show it.
 */
const LIFETIME_SECONDS = 300

/** What each key's reconcile has written and its caches may not show yet. */
export class Expectations {
  readonly #clock: Clock
  readonly #byKey = new Map<string, Expectation[]>()

  constructor(clock: Clock = systemClock) {
    this.#clock = clock
  }

  /** The store will show this version (or a later one) of what was just created or changed. */
  wrote<T extends ApiObject>(key: string, store: Store<T>, written: ApiObject): void {
    const version = written.metadata.resourceVersion
    if (version === undefined) throw new TypeError(`${keyOf(written)} has no resourceVersion: give the server's answer`)
    this.#add(key, store, () => store.reached(version))
  }

  /** The store will show that this very object, deleted just now, is gone or is being deleted. */
  deleted<T extends ApiObject>(key: string, store: Store<T>, object: ApiObject): void {
    const { uid } = object.metadata
    if (uid === undefined) throw new TypeError(`${keyOf(object)} has no uid: give the object as it was read`)
    this.#add(key, store, () => {
      const shown = store.getByUid(uid)
      return shown === undefined || shown.metadata.deletionTimestamp !== undefined
    })
  }

  /** Waits until the caches show all that was written for this key; false when they don't in time. */
  async settled(key: string, signal: AbortSignal): Promise<boolean> {
    const expectations = this.#byKey.get(key) ?? []
    try {
      for (const { wait, met, expiresAt } of expectations) {
        if (this.#clock.monotonic() < expiresAt) await wait(met, signal)
      }
    } catch {
      // Only the signal ends a wait.
      return false
    }
    this.#byKey.delete(key)
    return true
  }

  #add<T extends ApiObject>(key: string, store: Store<T>, met: () => boolean): void {
    if (met()) return
    const expiresAt = this.#clock.monotonic() + LIFETIME_SECONDS
    const expectation: Expectation = { wait: (condition, signal) => store.waitUntil(condition, signal), met, expiresAt }
    const known = this.#byKey.get(key)
    if (known === undefined) this.#byKey.set(key, [expectation])
    else known.push(expectation)
  }
}
