import { setImmediate as turn } from "node:timers/promises"
import { type BackoffLimits, backoffSeconds, pause } from "../apis/backoff.ts"
import { type Clock, systemClock } from "../apis/clock.ts"
import { defined } from "../apis/defined.ts"
import type { Logger } from "../apis/logger.ts"
import { keyOf } from "../apis/meta.ts"
import type { KubeClient, Selection, WatchEvent } from "./client.ts"
import {
  CLIENT_REASONS,
  isGone,
  isTooLargeResourceVersion,
  isTooManyRequests,
  isUnavailable,
  KubeError,
} from "./errors.ts"
import type { PageIndexDefinition } from "./page-index.ts"
import type { ApiObject, Resource, ServerMeta } from "./resource.ts"
import { compareResourceVersions } from "./resource-version.ts"
import { type Change, type ChangeHandler, IndexedStore, type IndexFunction, type Packing, type Store } from "./store.ts"

export interface ReflectorOptions<T extends ApiObject> extends Selection {
  client: Pick<KubeClient, "list" | "pages" | "watch">
  resource: Resource<T>
  logger: Logger
  /** Indexes by name; see Store.byIndex. */
  indexes?: Record<string, IndexFunction<T>>
  /** See Store.page. */
  pages?: PageIndexDefinition<T>
  /**
   * Objects that are kept as compressed text. Default: none. Such objects are many, so the first list is stored page by
   * page: handlers get each page's changes before the store is synced.
   */
  packing?: Packing<T>
  /** Converts each object before `managedFields` is removed. The result is stored. May change its argument. */
  transform?: (object: T) => T
  clock?: Clock
  /** Objects per page of a list. Default 500. */
  pageSize?: number
  /** Delay between failed attempts. Default 0.8 to 30 s, as in client-go. */
  backoff?: BackoffLimits
  /** See WatchOptions. */
  serverTimeoutSeconds?: number
  /** See WatchOptions. */
  idleTimeoutSeconds?: number
}

/**
 * Number of objects that are packed in one turn of the event loop. In each turn the connection is read, so that the API
 * server can send the next page meanwhile. Without it, a list of many objects takes half as long again.
 */
const OBJECTS_A_TURN = 50

/** Counters of a reflector since its start. */
export interface ReflectorCounts {
  /** Complete lists that were started. */
  lists: number
  /** Watches that were started. Each but the first continues where one has ended. */
  watches: number
  /** Lists and watches that failed. */
  failures: number
}

/**
 * Minimum duration of a watch without an event. A watch that the server ends earlier counts as a failure, as in
 * client-go.
 */
const SHORT_WATCH_SECONDS = 1

/**
 * Keeps a store equal to the API server's objects of one resource, and reports each change. The contract is that of
 * client-go's reflector: list, then watch from the list's version. After a break it resumes from the last version. If
 * that is Expired, or the server has not reached it, it lists again and reports the missed changes, deletions included. Changes of one object come in
 * order. Several changes may be reported as one; the last is never lost.
 */
export class Reflector<T extends ApiObject = ApiObject> {
  readonly resource: Resource<T>
  readonly #options: ReflectorOptions<T>
  readonly #store: IndexedStore<T>
  readonly #clock: Clock
  readonly #handlers = new Set<ChangeHandler<T>>()
  readonly #counts: ReflectorCounts = { lists: 0, watches: 0, failures: 0 }
  #failures = 0
  #heardAt = Number.NEGATIVE_INFINITY

  constructor(options: ReflectorOptions<T>) {
    this.resource = options.resource
    this.#options = options
    this.#store = new IndexedStore(options.indexes, options)
    this.#clock = options.clock ?? systemClock
  }

  get store(): Store<T> {
    return this.#store
  }

  /** True once the store has been filled by a complete list. */
  get synced(): boolean {
    return this.#store.resourceVersion !== undefined
  }

  /** Resolves after the first complete list. Rejects with the signal's reason. */
  whenSynced(signal: AbortSignal): Promise<void> {
    return this.#store.waitUntil(() => this.synced, signal)
  }

  /** Seconds since the last answer of the server (a list, an event or a bookmark); Infinity before. */
  idleSeconds(): number {
    return this.#clock.monotonic() - this.#heardAt
  }

  get counts(): Readonly<ReflectorCounts> {
    return this.#counts
  }

  /** Calls the handler for all existing objects, then for each change. The returned function removes the handler. */
  onChange(handler: ChangeHandler<T>): () => void {
    this.#handlers.add(handler)
    for (const current of this.#store.list()) this.#notify([handler], { key: keyOf(current), current })
    return () => this.#handlers.delete(handler)
  }

  /** Runs until the signal. It retries after every error. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        await this.#list(signal)
        await this.#follow(signal)
      } catch (error) {
        if (signal.aborted) return
        await this.#backOff(error, "listing again", signal)
      }
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { client, resource, packing, pageSize, namespace, labelSelector, fieldSelector } = this.#options
    const selection = { namespace, labelSelector, fieldSelector }
    this.#counts.lists++
    const objects = new Map<string, T>()
    const stored = new Set<string>()
    const isByPage = packing !== undefined && !this.synced
    let resourceVersion = ""
    for await (const page of client.pages(resource, { ...selection, limit: pageSize ?? 500, signal })) {
      if (isByPage) await this.#add(page.items, stored)
      else for (const item of page.items) objects.set(keyOf(item), this.#trim(item))
      resourceVersion = page.metadata.resourceVersion
    }
    const changes = isByPage ? this.#store.retain(stored) : this.#store.replace(objects)
    this.#heard(resourceVersion)
    for (const change of changes) this.#notify(this.#handlers, change)
  }

  /** Stores a page of the first list, and adds its keys to `stored`. */
  async #add(items: readonly T[], stored: Set<string>): Promise<void> {
    for (const [index, item] of items.entries()) {
      for (const change of this.#store.put(this.#trim(item))) this.#notify(this.#handlers, change)
      stored.add(keyOf(item))
      if ((index + 1) % OBJECTS_A_TURN === 0) await turn()
    }
  }

  /** Watches again and again. Returns when the server can't resume. Throws errors that need a new list or a caller. */
  async #follow(signal: AbortSignal): Promise<void> {
    for (let isResumed = false; ; isResumed = true) {
      try {
        await this.#watch(signal, isResumed)
      } catch (error) {
        if (signal.aborted || !(mustList(error) || mayResume(error))) throw error
        if (mayResume(error)) {
          await this.#backOff(error, "watching again from the last version", signal)
          continue
        }
        // The first time it lists at once. If the server can't resume from its own list, it waits before the next one.
        if (this.#failures++ > 0) throw error
        this.#options.logger.info(this.#about(error), "the watch can't resume; listing again")
        return
      }
    }
  }

  /**
   * Throws "Too large resource version" if the server has not reached the store's version: etcd was restored from a backup.
   * A watch from that version is accepted, and delivers nothing until the version is reached again.
   */
  async #requireReached(signal: AbortSignal): Promise<void> {
    const { client, resource, namespace, labelSelector, fieldSelector } = this.#options
    const resourceVersion = this.#store.resourceVersion
    if (resourceVersion === undefined) return
    const minimum = { resourceVersion, resourceVersionMatch: "NotOlderThan" } as const
    await client.list(resource, { namespace, labelSelector, fieldSelector, limit: 1, ...minimum, signal })
  }

  async #watch(signal: AbortSignal, isResumed: boolean): Promise<void> {
    if (isResumed) await this.#requireReached(signal)
    const { client, resource, serverTimeoutSeconds, idleTimeoutSeconds } = this.#options
    const { namespace, labelSelector, fieldSelector } = this.#options
    const startedAt = this.#clock.monotonic()
    this.#counts.watches++
    const events = client.watch(resource, {
      namespace,
      labelSelector,
      fieldSelector,
      resourceVersion: this.#store.resourceVersion ?? "",
      // Random timeout, so that not all watches of an installation end at the same moment.
      serverTimeoutSeconds: serverTimeoutSeconds ?? 300 * (1 + Math.random()),
      ...defined({ idleTimeoutSeconds }),
      signal,
    })
    let count = 0
    for await (const event of events) {
      this.#apply(event)
      this.#failures = 0
      count++
    }
    if (count === 0 && this.#clock.monotonic() - startedAt < SHORT_WATCH_SECONDS) throw veryShortWatch(resource)
    this.#failures = 0
  }

  #apply({ type, object }: WatchEvent<T>): void {
    const resourceVersion = object.metadata.resourceVersion ?? ""
    const known = this.#store.resourceVersion ?? "0"
    if (compareResourceVersions(resourceVersion, known) < 0) throw new WentBackwards(known, resourceVersion)
    const changes = type === "BOOKMARK" ? [] : this.#changes(type, object)
    this.#heard(resourceVersion)
    for (const change of changes) this.#notify(this.#handlers, change)
  }

  #changes(type: "ADDED" | "MODIFIED" | "DELETED", object: T): Change<T>[] {
    const trimmed = this.#trim(object)
    if (type !== "DELETED") return this.#store.put(trimmed)
    const removed = this.#store.remove(keyOf(object))
    // The event's object is the last state, later than the one in the store.
    return removed === undefined ? [] : [{ key: removed.key, old: trimmed }]
  }

  #trim(object: T): T {
    const kept = this.#options.transform?.(object) ?? object
    // `delete` would turn the metadata into a hash table, which takes 800 bytes more.
    const { managedFields: _, ...metadata } = kept.metadata as ServerMeta
    return Object.assign(kept, { metadata })
  }

  #heard(resourceVersion: string): void {
    this.#heardAt = this.#clock.monotonic()
    this.#store.advance(resourceVersion)
  }

  #notify(handlers: Iterable<ChangeHandler<T>>, change: Change<T>): void {
    for (const handler of handlers) {
      try {
        handler(change)
      } catch (error) {
        this.#options.logger.error({ ...this.#about(error), key: change.key }, "a change handler failed")
      }
    }
  }

  async #backOff(error: unknown, next: string, signal: AbortSignal): Promise<void> {
    this.#failures++
    this.#counts.failures++
    const limits = this.#options.backoff ?? { baseSeconds: 0.8, capSeconds: 30 }
    const asked = error instanceof KubeError ? (error.retryAfterSeconds ?? 0) : 0
    const seconds = Math.max(asked, backoffSeconds(this.#failures, limits))
    this.#options.logger.warn({ ...this.#about(error), retryInSeconds: seconds }, `the list or watch failed; ${next}`)
    await pause(this.#clock, seconds, signal).catch(() => undefined)
  }

  #about(error: unknown): object {
    return { resource: this.resource.plural, err: error }
  }
}

/** The server's version is lower than before: it was restored from a backup. */
class WentBackwards extends Error {
  override readonly name = "WentBackwards"
  constructor(known: string, seen: string) {
    super(`the watch went back from resourceVersion ${known} to ${seen}`)
  }
}

function veryShortWatch(resource: Resource): KubeError {
  const message = `WATCH ${resource.plural}: ended at once, without an event`
  return new KubeError({ code: 0, reason: CLIENT_REASONS.network, message })
}

function mustList(error: unknown): boolean {
  return isGone(error) || isTooLargeResourceVersion(error) || error instanceof WentBackwards
}

function mayResume(error: unknown): boolean {
  return !mustList(error) && (isUnavailable(error) || isTooManyRequests(error))
}
