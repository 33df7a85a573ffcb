import { unlessAborted } from "../apis/abort.ts"
import { keyOf } from "../apis/meta.ts"
import { PackedTexts } from "./packed-texts.ts"
import {
  firstIndex,
  type Match,
  type MatchQuery,
  PageIndex,
  type PageIndexDefinition,
  type PageOf,
  type PageQuery,
} from "./page-index.ts"
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

/** Objects that a store keeps as compressed text, because they are rarely read. */
export interface Packing<T extends ApiObject> {
  isPacked(object: T): boolean
  textOf(object: T): string
  objectOf(text: string): T
}

/** Parts of a store that depend on its kind. */
export interface StoreOptions<T extends ApiObject> {
  /** Order of pages. Default: none, so there are no pages. */
  pages?: PageIndexDefinition<T> | undefined
  /** Default: no object is packed. */
  packing?: Packing<T> | undefined
}

/** Objects on which a condition depends: the one with a key, or those of an index's value. */
export type Dependence = { key: string } | { index: string; value: string }

/**
 * Cache of one resource. Its objects are shared: never modify them, copy with structuredClone. An object that is packed
 * is another copy at each read.
 */
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
  /**
   * Visits what the pages' index knows of all objects that match, in its order, without reading the objects. @throws
   * RangeError without an order
   */
  visit(query: MatchQuery, use: (match: Match) => void): void
  /** Returns true if the cache shows this version of its resource, or a later one. */
  reached(resourceVersion: string): boolean
  /** Resolves when `reached` returns true. Rejects with the signal's reason. */
  waitFor(resourceVersion: string, signal: AbortSignal): Promise<void>
  /**
   * Resolves when the condition is true. It is checked now, and after each change of the objects on which it depends:
   * by default, of any. Rejects with the signal's reason.
   */
  waitUntil(condition: () => boolean, signal: AbortSignal, on?: Dependence): Promise<void>
}

/** Caller that waits for a version. */
interface VersionWaiter {
  resourceVersion: string
  resume: () => void
}

/** Topic of the conditions that are checked at each change. */
const ANY = ""

/** Store with its write methods, which only its reflector calls. */
export class IndexedStore<T extends ApiObject> implements Store<T> {
  /** Objects, or the packed texts of objects. */
  readonly #objects = new Map<string, T | string>()
  readonly #keysByUid = new Map<string, string>()
  readonly #indexes = new Map<string, { of: IndexFunction<T>; keys: KeysByValue }>()
  readonly #pages: PageIndex<T> | undefined
  readonly #packing: Packing<T> | undefined
  readonly #texts = new PackedTexts()
  /** Checks of conditions, by topic. */
  readonly #checks = new Map<string, Set<() => void>>()
  /** Topics of the changes since the last `advance`. */
  readonly #changed = new Set<string>()
  /** In the order of their versions. */
  readonly #versionWaiters: VersionWaiter[] = []
  #resourceVersion: string | undefined

  constructor(indexes: Record<string, IndexFunction<T>> = {}, { pages, packing }: StoreOptions<T> = {}) {
    for (const [name, of] of Object.entries(indexes)) this.#indexes.set(name, { of, keys: new KeysByValue() })
    if (pages !== undefined) this.#pages = new PageIndex(pages)
    this.#packing = packing
  }

  get size(): number {
    return this.#objects.size
  }

  get resourceVersion(): string | undefined {
    return this.#resourceVersion
  }

  get({ namespace, name }: ObjectRef): T | undefined {
    return this.getByKey(namespace === undefined ? name : `${namespace}/${name}`)
  }

  getByKey(key: string): T | undefined {
    return this.#unpacked(this.#objects.get(key))
  }

  #unpacked(found: T | string | undefined): T | undefined {
    return typeof found === "string" ? this.#packing?.objectOf(this.#texts.unpack(found)) : found
  }

  getByUid(uid: string): T | undefined {
    const key = this.#keysByUid.get(uid)
    return key === undefined ? undefined : this.getByKey(key)
  }

  list(): T[] {
    const objects: T[] = []
    for (const found of this.#objects.values()) {
      const object = this.#unpacked(found)
      if (object !== undefined) objects.push(object)
    }
    return objects
  }

  byIndex(index: string, value: string): T[] {
    return this.#read(this.#index(index).keys.of(value))
  }

  countByIndex(index: string, value: string): number {
    return this.#index(index).keys.count(value)
  }

  #index(name: string): { of: IndexFunction<T>; keys: KeysByValue } {
    const found = this.#indexes.get(name)
    if (found !== undefined) return found
    throw new RangeError(`no index "${name}": this store has ${[...this.#indexes.keys()].join(", ") || "none"}`)
  }

  #read(keys: Iterable<string>): T[] {
    const objects: T[] = []
    for (const key of keys) {
      const object = this.getByKey(key)
      if (object !== undefined) objects.push(object)
    }
    return objects
  }

  page(query: PageQuery): PageOf<T> {
    const { objects, total } = this.#pagesOrThrow().page(query)
    return { objects: this.#read(objects), total }
  }

  visit(query: MatchQuery, use: (match: Match) => void): void {
    this.#pagesOrThrow().visit(query, use)
  }

  #pagesOrThrow(): PageIndex<T> {
    if (this.#pages === undefined) throw new RangeError("this store keeps no order for pages")
    return this.#pages
  }

  reached(resourceVersion: string): boolean {
    return this.#resourceVersion !== undefined && compareResourceVersions(this.#resourceVersion, resourceVersion) >= 0
  }

  async waitFor(resourceVersion: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if (this.reached(resourceVersion)) return
    const { promise, resolve: resume } = Promise.withResolvers<void>()
    const waiters = this.#versionWaiters
    const waiter = { resourceVersion, resume }
    const isLater = (at: number): boolean =>
      compareResourceVersions((waiters[at] as VersionWaiter).resourceVersion, resourceVersion) > 0
    waiters.splice(firstIndex(waiters.length, isLater), 0, waiter)
    await unlessAborted(promise, signal).finally(() => {
      const at = waiters.indexOf(waiter)
      if (at !== -1) waiters.splice(at, 1)
    })
  }

  async waitUntil(condition: () => boolean, signal: AbortSignal, on?: Dependence): Promise<void> {
    signal.throwIfAborted()
    if (condition()) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const check = (): void => {
      if (condition()) resolve()
    }
    const topic = on === undefined ? ANY : "key" in on ? topicOfKey(on.key) : topicOfValue(on.index, on.value)
    const checks = this.#checks.get(topic) ?? new Set()
    this.#checks.set(topic, checks.add(check))
    await unlessAborted(promise, signal).finally(() => {
      checks.delete(check)
      if (checks.size === 0 && this.#checks.get(topic) === checks) this.#checks.delete(topic)
    })
  }

  /**
   * Stores an added or modified object. Returns no change if the cache has this version. Returns two if it has another
   * object of that name, because the watch missed the deletion of that one.
   */
  put(object: T): Change<T>[] {
    const key = keyOf(object)
    const old = this.getByKey(key)
    if (old !== undefined && old.metadata.resourceVersion === object.metadata.resourceVersion) return []
    if (old !== undefined) this.#unindexObject(key, old)
    const packing = this.#packing
    const isPacked = packing?.isPacked(object) === true
    this.#objects.set(key, isPacked ? this.#texts.pack(packing.textOf(object)) : object)
    this.#indexObject(key, object)
    const added = { key, current: object }
    if (old === undefined) return [added]
    return old.metadata.uid === object.metadata.uid ? [{ key, old, current: object }] : [{ key, old }, added]
  }

  /** Removes an object. `old` is the last state known here; undefined if it was not here. */
  remove(key: string): Change<T> | undefined {
    const old = this.getByKey(key)
    if (old === undefined) return undefined
    this.#objects.delete(key)
    this.#unindexObject(key, old)
    return { key, old }
  }

  /** Replaces the contents with exactly these objects. The changes include deletions that no watch reported. */
  replace(objects: Map<string, T>): Change<T>[] {
    const changes = this.retain(objects)
    for (const object of objects.values()) changes.push(...this.put(object))
    return changes
  }

  /** Removes all objects but those with these keys. */
  retain(kept: Pick<ReadonlySet<string>, "has">): Change<T>[] {
    return [...this.#objects.keys()].flatMap((key) => (kept.has(key) ? [] : (this.remove(key) ?? [])))
  }

  /** Records the version that the cache shows now, and resumes callers that wait for it. */
  advance(resourceVersion: string): void {
    this.#resourceVersion = resourceVersion
    const waiters = this.#versionWaiters
    const isLater = (at: number): boolean => !this.reached((waiters[at] as VersionWaiter).resourceVersion)
    for (const { resume } of waiters.splice(0, firstIndex(waiters.length, isLater))) resume()
    // A new version without a change may be what a condition waits for, too.
    for (const topic of [ANY, ...this.#changed]) for (const check of this.#checks.get(topic) ?? []) check()
    this.#changed.clear()
  }

  #indexObject(key: string, object: T): void {
    if (object.metadata.uid !== undefined) this.#keysByUid.set(object.metadata.uid, key)
    this.#pages?.add(key, object)
    this.#note(topicOfKey(key))
    for (const [index, { of, keys }] of this.#indexes) {
      for (const value of of(object)) {
        keys.add(value, key)
        this.#note(topicOfValue(index, value))
      }
    }
  }

  #unindexObject(key: string, object: T): void {
    if (object.metadata.uid !== undefined) this.#keysByUid.delete(object.metadata.uid)
    this.#pages?.remove(object)
    this.#note(topicOfKey(key))
    for (const [index, { of, keys }] of this.#indexes) {
      for (const value of of(object)) {
        keys.delete(value, key)
        this.#note(topicOfValue(index, value))
      }
    }
  }

  #note(topic: string): void {
    if (this.#checks.has(topic)) this.#changed.add(topic)
  }
}

function topicOfKey(key: string): string {
  return `key\0${key}`
}

function topicOfValue(index: string, value: string): string {
  return `index\0${index}\0${value}`
}

/** Keys by the values of an index. Most values have one key, which then needs no set. */
class KeysByValue {
  readonly #keys = new Map<string, string | Set<string>>()

  of(value: string): Iterable<string> {
    const keys = this.#keys.get(value) ?? []
    return typeof keys === "string" ? [keys] : keys
  }

  count(value: string): number {
    const keys = this.#keys.get(value)
    return typeof keys === "string" ? 1 : (keys?.size ?? 0)
  }

  add(value: string, key: string): void {
    const keys = this.#keys.get(value)
    if (keys === undefined) this.#keys.set(value, key)
    else if (typeof keys !== "string") keys.add(key)
    else if (keys !== key) this.#keys.set(value, new Set([keys, key]))
  }

  delete(value: string, key: string): void {
    const keys = this.#keys.get(value)
    if (typeof keys === "object") keys.delete(key)
    if (keys === key || (typeof keys === "object" && keys.size === 0)) this.#keys.delete(value)
  }
}
