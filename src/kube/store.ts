import { keyOf } from "../apis/meta.ts"
import { PageIndex, type PageIndexDefinition, type PageOf, type PageQuery } from "./page-index.ts"
import type { ApiObject, ObjectRef } from "./resource.ts"
import { compareResourceVersions } from "./resource-version.ts"

/** Change of an object. `old` is absent for an added object, `current` for a deleted one. */
export interface Change<T extends ApiObject> {
  /** `namespace/name`, or `name` if cluster-scoped. */
  key: string
  old?: T
  current?: T
}

/** Called after the store has the change. It must not block. Errors that it throws are logged and ignored. */
export type ChangeHandler<T extends ApiObject> = (change: Change<T>) => void

/** Returns the values under which an index finds an object. */
export type IndexFunction<T extends ApiObject> = (object: T) => readonly string[]

const NONE: ReadonlySet<string> = new Set()

/** Cache of one resource. Its objects are shared: never modify them, copy with structuredClone. */
export interface Store<T extends ApiObject> {
  readonly size: number
  /** Version that the cache shows; undefined before the first list. */
  readonly resourceVersion: string | undefined
  get(ref: ObjectRef): T | undefined
  getByKey(key: string): T | undefined
  getByUid(uid: string): T | undefined
  list(): T[]
  /** Returns the objects of an index given at construction. @throws RangeError for an unknown index */
  byIndex(index: string, value: string): T[]
  /** Returns the number of objects that `byIndex` would return. */
  countByIndex(index: string, value: string): number
  /**
   * Returns a page in the order given at construction, and the exact number of objects. @throws RangeError without an
   * order
   */
  page(query: PageQuery): PageOf<T>
  /** Returns true if the cache shows this version of its resource, or a later one. */
  reached(resourceVersion: string): boolean
  /** Resolves when `reached` returns true. Rejects with the signal's reason. */
  waitFor(resourceVersion: string, signal: AbortSignal): Promise<void>
  /** Resolves when the condition is true. It is checked after each change. Rejects with the signal's reason. */
  waitUntil(condition: () => boolean, signal: AbortSignal): Promise<void>
}

/** Store with its write methods, which only its reflector calls. */
export class IndexedStore<T extends ApiObject> implements Store<T> {
  #objects = new Map<string, T>()
  #byUid = new Map<string, T>()
  readonly #indexes = new Map<string, { of: IndexFunction<T>; entries: Map<string, Set<string>> }>()
  readonly #pages: PageIndex<T> | undefined
  readonly #waiters = new Set<() => void>()
  #resourceVersion: string | undefined

  constructor(indexes: Record<string, IndexFunction<T>> = {}, pages?: PageIndexDefinition<T>) {
    for (const [name, of] of Object.entries(indexes)) this.#indexes.set(name, { of, entries: new Map() })
    if (pages !== undefined) this.#pages = new PageIndex(pages)
  }

  get size(): number {
    return this.#objects.size
  }

  get resourceVersion(): string | undefined {
    return this.#resourceVersion
  }

  get({ namespace, name }: ObjectRef): T | undefined {
    return this.#objects.get(namespace === undefined ? name : `${namespace}/${name}`)
  }

  getByKey(key: string): T | undefined {
    return this.#objects.get(key)
  }

  getByUid(uid: string): T | undefined {
    return this.#byUid.get(uid)
  }

  list(): T[] {
    return [...this.#objects.values()]
  }

  byIndex(index: string, value: string): T[] {
    const objects: T[] = []
    for (const key of this.#keysOf(index, value)) {
      const object = this.#objects.get(key)
      if (object !== undefined) objects.push(object)
    }
    return objects
  }

  countByIndex(index: string, value: string): number {
    return this.#keysOf(index, value).size
  }

  #keysOf(index: string, value: string): ReadonlySet<string> {
    const found = this.#indexes.get(index)
    if (found !== undefined) return found.entries.get(value) ?? NONE
    throw new RangeError(`no index "${index}": this store has ${[...this.#indexes.keys()].join(", ") || "none"}`)
  }

  page(query: PageQuery): PageOf<T> {
    if (this.#pages === undefined) throw new RangeError("this store keeps no order for pages")
    return this.#pages.page(query)
  }

  reached(resourceVersion: string): boolean {
    return this.#resourceVersion !== undefined && compareResourceVersions(this.#resourceVersion, resourceVersion) >= 0
  }

  waitFor(resourceVersion: string, signal: AbortSignal): Promise<void> {
    return this.waitUntil(() => this.reached(resourceVersion), signal)
  }

  async waitUntil(condition: () => boolean, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if (condition()) return
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const check = (): void => {
      if (condition()) resolve()
    }
    const aborted = (): void => reject(signal.reason as Error)
    this.#waiters.add(check)
    signal.addEventListener("abort", aborted, { once: true })
    try {
      await promise
    } finally {
      this.#waiters.delete(check)
      signal.removeEventListener("abort", aborted)
    }
  }

  /**
   * Stores an added or modified object. Returns no change if the cache has this version. Returns two if it has another
   * object of that name, because the watch missed the deletion of that one.
   */
  put(object: T): Change<T>[] {
    const key = keyOf(object)
    const old = this.#objects.get(key)
    if (old !== undefined && old.metadata.resourceVersion === object.metadata.resourceVersion) return []
    if (old !== undefined) this.#unindex(key, old)
    this.#objects.set(key, object)
    this.#index(key, object)
    const added = { key, current: object }
    if (old === undefined) return [added]
    return old.metadata.uid === object.metadata.uid ? [{ key, old, current: object }] : [{ key, old }, added]
  }

  /** Removes an object. `old` is the last state known here; undefined if it was not here. */
  remove(key: string): Change<T> | undefined {
    const old = this.#objects.get(key)
    if (old === undefined) return undefined
    this.#objects.delete(key)
    this.#unindex(key, old)
    return { key, old }
  }

  /** Replaces the contents with exactly these objects. The changes include deletions that no watch reported. */
  replace(objects: Map<string, T>): Change<T>[] {
    const changes: Change<T>[] = []
    for (const key of [...this.#objects.keys()]) {
      const change = objects.has(key) ? undefined : this.remove(key)
      if (change !== undefined) changes.push(change)
    }
    for (const object of this.#pages?.inOrder(objects.values()) ?? objects.values()) changes.push(...this.put(object))
    return changes
  }

  /** Records the version that the cache shows now, and resumes callers that wait for it. */
  advance(resourceVersion: string): void {
    this.#resourceVersion = resourceVersion
    for (const check of this.#waiters) check()
  }

  #index(key: string, object: T): void {
    if (object.metadata.uid !== undefined) this.#byUid.set(object.metadata.uid, object)
    this.#pages?.add(object)
    for (const { of, entries } of this.#indexes.values()) {
      for (const value of of(object)) {
        const keys = entries.get(value)
        if (keys === undefined) entries.set(value, new Set([key]))
        else keys.add(key)
      }
    }
  }

  #unindex(key: string, object: T): void {
    if (object.metadata.uid !== undefined) this.#byUid.delete(object.metadata.uid)
    this.#pages?.remove(object)
    for (const { of, entries } of this.#indexes.values()) {
      for (const value of of(object)) {
        const keys = entries.get(value)
        keys?.delete(key)
        if (keys?.size === 0) entries.delete(value)
      }
    }
  }
}
