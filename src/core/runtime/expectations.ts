import { type Clock, systemClock } from "../apis/clock.ts"
import { keyOf } from "../apis/meta.ts"
import type { ApiObject } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"

interface Expectation {
  /** Resolves at a change of the store after which the condition is true. */
  wait(condition: () => boolean, signal: AbortSignal): Promise<void>
  met(): boolean
  expiresAt: number
}

/**
 * Longest time to expect a change. client-go's controllers also stop after 5 minutes. A store whose selector excludes
 * the written object would never show it, nor would a server restored from a backup.
 */
const LIFETIME_SECONDS = 300

/** Writes of each key's reconcile that the caches may not show yet. */
export class Expectations {
  readonly #clock: Clock
  readonly #byKey = new Map<string, Expectation[]>()

  constructor(clock: Clock = systemClock) {
    this.#clock = clock
  }

  /** Expects the store to show this version or a later one. */
  wrote<T extends ApiObject>(key: string, store: Store<T>, written: ApiObject): void {
    const version = written.metadata.resourceVersion
    if (version === undefined)
      throw new TypeError(`${keyOf(written)} has no resourceVersion: pass the object from the server's response`)
    this.#add(key, store, () => store.reached(version))
  }

  /**
   * Expects the store to show that this object is deleted or has a deletion timestamp. A later object of the same name
   * is another one.
   */
  deleted<T extends ApiObject>(key: string, store: Store<T>, object: ApiObject): void {
    const { uid } = object.metadata
    if (uid === undefined) throw new TypeError(`${keyOf(object)} has no uid: pass the object as it was read`)
    this.#add(key, store, () => {
      const shown = store.getByUid(uid)
      return shown === undefined || shown.metadata.deletionTimestamp !== undefined
    })
  }

  /** Waits until the caches show all writes of this key. Returns false on the signal. */
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
