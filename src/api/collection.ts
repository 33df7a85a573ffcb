import { newestFirst } from "../core/apis/creation-times.ts"
import { escapePointer, quote, toFieldPath } from "../core/apis/field-error.ts"
import { ANNOTATIONS, type KubeObject, keyOf, type Stored } from "../core/apis/meta.ts"
import { isUuid, toMetadataName } from "../core/apis/names.ts"
import type { FieldError } from "../core/apis/validate.ts"
import { findOrCatchUp, NAMESPACE_INDEX } from "../core/identity/catch-up.ts"
import type { CallerClient } from "../core/identity/principal.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { ifFound, isAlreadyExists, isConflict, isInvalid, isNotFound, type KubeError } from "../core/kube/errors.ts"
import type { Match, MatchQuery, PageOf, PageQuery } from "../core/kube/page-index.ts"
import type { Resource } from "../core/kube/resource.ts"
import type { Store } from "../core/kube/store.ts"
import { IDEMPOTENCY_KEY_INDEX, inNamespace, isBeingDeleted, requireSynced, waitWithTimeout } from "./caches.ts"
import type { Changes } from "./changes.ts"
import { notAtVersion, type Precondition, requireVersion } from "./http/entity-tags.ts"
import { beingDeleted, invalidRequest, kubeErrorMessage, nameConflict, notFound, unavailable } from "./http/problem.ts"
import type { Page } from "./http/query.ts"
import { type KeyedMutex, requireHeld, usedKey } from "./idempotency.ts"
import { idempotencySelector } from "./idempotency-marks.ts"
import { nameIn } from "./sorting.ts"

/** Longest time that the response to a write waits for the cache to show it. The limit is for a broken watch. */
const CACHE_WAIT_MS = 3000

/** Parts that all requests share. */
export interface Mutexes {
  /** Mutex of the creations with an Idempotency-Key, across replicas. */
  creations: KeyedMutex
  changes: Changes
}

export interface CollectionOptions<T extends Stored<KubeObject>> {
  /** Word of the contract for one object, such as `cronjob`. */
  noun: string
  resource: Resource<T>
  /** Cache with the indexes of CACHE_OPTIONS. */
  store: Store<T>
  namespace: string
  /** Client with the façade's own rights: REST shows viewers redacted objects that they can't read in Kubernetes. */
  reader: Pick<KubeClient, "get" | "list">
  /** Client with the caller's rights. */
  writer: CallerClient
  mutexes: Mutexes
  /** Throws the Problem for which the project takes no new object of the kind. Absent: it takes any. */
  requireRoom?: () => void
  /** Names in REST of the spec's fields that have another name there, for errors of the API server. */
  fieldNames?: Readonly<Record<string, string>>
}

/** Filter of a page. */
export interface PageFilter extends Pick<PageQuery, "from" | "before" | "numbers"> {
  /** See `CACHE_OPTIONS`. */
  terms?: readonly string[]
  /** Start of metadata.name. */
  namePrefix?: string | undefined
  /** Part of the name in REST. */
  namePart?: string | undefined
}

/** Request to create an object that may be sent again. */
export interface Replay<T> {
  key: string
  /** Returns the object if the same request created it. @throws Problem 422 if another request did */
  accept: (earlier: T) => T | Promise<T>
}

interface Creation<T> {
  replay?: Replay<T>
  dryRun?: boolean
}

/** Objects of one kind in a project. Reads come from the cache, writes have the caller's rights. */
export class Collection<T extends Stored<KubeObject>> {
  readonly #options: CollectionOptions<T>

  constructor(options: CollectionOptions<T>) {
    this.#options = options
  }

  /** Returns all objects of the project, in no order. @throws Problem 503 before the cache is filled */
  all(): T[] {
    return requireSynced(this.#options.store).byIndex(NAMESPACE_INDEX, this.#options.namespace)
  }

  /**
   * Returns a page of the objects that match, and their number. @throws Problem 503 before the cache is filled
   * @param order default: newest first
   */
  page({ limit, offset }: Page, filter: PageFilter = {}, order?: PageQuery["order"]): PageOf<T> {
    return requireSynced(this.#options.store).page({ ...this.#query(filter), order, limit, offset })
  }

  /** Visits what the cache's index knows of the objects that match, newest first. @throws Problem 503 before the cache is filled */
  visit(filter: PageFilter, use: (match: Match) => void): void {
    requireSynced(this.#options.store).visit(this.#query(filter), use)
  }

  /** Returns the object that a visit has found; undefined if it was deleted since. */
  at(key: string): T | undefined {
    return this.#options.store.getByKey(key)
  }

  #query({ terms = [], namePrefix = "", namePart = "", ...range }: PageFilter): MatchQuery {
    const scope = this.#options.namespace
    const start = `${scope}/${namePrefix}`
    const isAny = namePrefix === "" && namePart === ""
    const hasKey = isAny ? undefined : (key: string) => key.startsWith(start) && nameIn(key).includes(namePart)
    return { scope, terms, hasKey, ...range }
  }

  /** Returns the object with this id or, if the text isn't a UUID, with this name. @throws Problem 404 */
  async find(idOrName: string): Promise<T> {
    const found = await (isUuid(idOrName) ? this.#byId(idOrName) : this.#byName(idOrName))
    if (found === undefined) throw this.#unknown(idOrName)
    return found
  }

  /**
   * Returns the objects with these ids or names from the cache, which is brought up to date at most once. Unknown ones are
   * undefined.
   */
  async findMany(idsOrNames: readonly string[]): Promise<Map<string, T | undefined>> {
    const missing = idsOrNames.filter((idOrName) => this.cached(idOrName) === undefined)
    // Asked after each change of the cache, so it stops at the first that is still missing.
    const areThere = () => missing.every((idOrName) => this.cached(idOrName) !== undefined) || undefined
    if (missing.length > 0) await this.#findOrCatchUp(areThere)
    return new Map(idsOrNames.map((idOrName) => [idOrName, this.cached(idOrName)]))
  }

  /** Returns the cached object with this id or name. */
  cached(idOrName: string): T | undefined {
    const { store, namespace } = this.#options
    if (!isUuid(idOrName)) {
      const name = toMetadataName(idOrName)
      return name === undefined ? undefined : store.get({ namespace, name })
    }
    const found = store.getByUid(idOrName.toLowerCase())
    return found?.metadata.namespace === namespace ? found : undefined
  }

  /** Waits until the cache shows what the API server has in the project now. @throws CacheBehind */
  async caughtUp(): Promise<void> {
    await this.#findOrCatchUp(() => undefined)
  }

  #byId(uid: string): Promise<T | undefined> {
    return this.#findOrCatchUp(() => this.cached(uid))
  }

  async #byName(name: string): Promise<T | undefined> {
    const metadataName = toMetadataName(name)
    // The name becomes a part of the API server's URL, so text that can't be a name stops here.
    if (metadataName === undefined) return undefined
    const { store, namespace } = this.#options
    return store.get({ namespace, name: metadataName }) ?? (await this.read(metadataName))
  }

  /** Reads the object with this metadata.name from the API server. Returns undefined if there is none. */
  async read(metadataName: string): Promise<T | undefined> {
    const { reader, resource, namespace } = this.#options
    return ifFound(reader.get(resource, { namespace, name: metadataName }))
  }

  /**
   * Creates an object, once per Idempotency-Key.
   * @throws Problem 409 if the name is in use, or the object that the key created is being deleted; 400 if the API
   * server rejects the object; 422 if the key was used with another body
   */
  create(object: T, name: string, replay?: Replay<T>): Promise<T> {
    if (replay === undefined) return this.#create(object, name)
    const { resource, namespace, mutexes } = this.#options
    const known = (): Promise<T | undefined> => this.earlier(replay)
    // The API server only rejects equal names, so requests with one key and different names need a mutex.
    const make = async (isHeld: () => boolean): Promise<T> => {
      const earlier = await known()
      if (earlier !== undefined) return earlier
      requireHeld(isHeld)
      return this.#create(object, name, { replay })
    }
    return mutexes.creations.runExclusive(`${resource.plural}/${namespace}/${replay.key}`, make, known)
  }

  /**
   * Returns the object that the same request created before.
   * @throws Problem 422 if another request created it, 409 if it is being deleted
   */
  async earlier(replay: Replay<T>): Promise<T | undefined> {
    const earlier = await this.madeBy(replay.key)
    return earlier && this.#accepted(earlier, replay)
  }

  async #accepted(earlier: T, { accept }: Replay<T>): Promise<T> {
    const accepted = await accept(earlier)
    if (!isBeingDeleted(accepted)) return accepted
    const detail = `The ${this.#options.noun} that this Idempotency-Key created is being deleted: choose a new key.`
    throw beingDeleted(detail)
  }

  /**
   * Returns the object that a request with this Idempotency-Key created before. A miss in the cache is checked by a live
   * list of the key's label.
   */
  async madeBy(key: string): Promise<T | undefined> {
    const { reader, resource, store, namespace } = this.#options
    const cached = originalOf(store.byIndex(IDEMPOTENCY_KEY_INDEX, inNamespace(namespace, key)))
    if (cached !== undefined) return cached
    const { items } = await reader.list(resource, { namespace, labelSelector: idempotencySelector(key) })
    return originalOf(items.filter((item) => usedKey(item) === key))
  }

  /**
   * Lets the API server validate an object, and stores nothing. Returns the object with the defaults of the API server.
   * @throws Problem as `create`
   */
  validated(object: T, name: string): Promise<T> {
    return this.#create(object, name, { dryRun: true })
  }

  async #create(object: T, name: string, { replay, dryRun = false }: Creation<T> = {}): Promise<T> {
    const { writer, resource, noun, requireRoom } = this.#options
    requireRoom?.()
    try {
      const created = await writer.create(resource, object, { dryRun })
      return dryRun ? created : await this.waitForCache(created)
    } catch (error) {
      if (isInvalid(error)) throw this.#refused(error)
      if (isNotFound(error)) throw unavailable(`The project is not ready for a new ${noun} yet: try again.`, 5, error)
      if (!isAlreadyExists(error)) throw error
    }
    const existing = await this.read(object.metadata.name)
    if (replay !== undefined && existing !== undefined && usedKey(existing) === replay.key)
      return this.#accepted(existing, replay)
    const there =
      existing !== undefined && isBeingDeleted(existing)
        ? "is being deleted: choose another name, or wait until it is deleted"
        : "exists in this project: choose another name, or PATCH it"
    throw nameConflict(`${/^[aeiou]/.test(noun) ? "An" : "A"} ${noun} named ${quote(name)} ${there}.`, name)
  }

  /**
   * Changes an object. `change` gets a copy of the present object and returns the wanted one, or undefined for no
   * change. `change` is called again if another request changed the object meanwhile.
   * @throws Problem 404, 412 if the object is not at a version of `precondition`, 400 if the API server rejects it, 503
   */
  async change(
    idOrName: string,
    change: (present: T) => T | undefined | Promise<T | undefined>,
    precondition?: Precondition,
  ): Promise<T> {
    const { resource, namespace, mutexes, noun } = this.#options
    const name = (await this.#metadataNameOf(idOrName)) ?? idOrName
    const { object, isChanged } = await mutexes.changes.run(
      { noun, key: `${resource.plural}/${namespace}/${name}` },
      async () => {
        const present = await this.present(idOrName)
        requireVersion(noun, present, precondition)
        const wanted = await change(structuredClone(present))
        if (wanted === undefined) return { object: present, isChanged: false }
        const changed = await this.#tryToReplace(wanted)
        return changed && { object: changed, isChanged: true }
      },
    )
    return isChanged ? this.waitForCache(object) : object
  }

  /** Replaces an object. Returns undefined if the object was changed or deleted since it was read. */
  async #tryToReplace(wanted: T): Promise<T | undefined> {
    const { writer, resource } = this.#options
    try {
      return await writer.replace(resource, wanted)
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) return undefined
      if (isInvalid(error)) throw this.#refused(error)
      throw error
    }
  }

  /** @throws Problem 404, 412 */
  async remove(idOrName: string, precondition?: Precondition): Promise<void> {
    const { writer, resource, store, noun } = this.#options
    const { metadata } = await this.present(idOrName)
    requireVersion(noun, { metadata }, precondition)
    const { uid, resourceVersion } = metadata
    const preconditions = precondition === undefined ? { uid } : { uid, resourceVersion }
    try {
      await writer.delete(resource, metadata, { preconditions })
    } catch (error) {
      if (isNotFound(error)) throw this.#unknown(idOrName)
      // Another object has the name now. With If-Match, the object may also have changed.
      if (isConflict(error)) throw precondition === undefined ? this.#unknown(idOrName) : notAtVersion(noun)
      throw error
    }
    const isGone = (): boolean => store.getByUid(uid) === undefined
    await waitWithTimeout(CACHE_WAIT_MS, (signal) => store.waitUntil(isGone, signal, { key: keyOf({ metadata }) }))
  }

  /** Reads an object from the API server, by id or name. @throws Problem 404 */
  async present(idOrName: string): Promise<T> {
    const uid = isUuid(idOrName) ? idOrName.toLowerCase() : undefined
    const name = await this.#metadataNameOf(idOrName)
    const present = name === undefined ? undefined : await this.read(name)
    if (present === undefined || (uid !== undefined && present.metadata.uid !== uid)) throw this.#unknown(idOrName)
    return present
  }

  async #metadataNameOf(idOrName: string): Promise<string | undefined> {
    if (!isUuid(idOrName)) return toMetadataName(idOrName)
    return (await this.#byId(idOrName))?.metadata.name
  }

  #unknown(idOrName: string): Error {
    return notFound(this.unknown(idOrName))
  }

  /** Returns the words about an id or a name that no object has. */
  unknown(idOrName: string): string {
    return `There is no ${this.#options.noun} with the id or name ${quote(idOrName)}.`
  }

  #refused(error: KubeError): Error {
    const { noun, fieldNames } = this.#options
    return invalidRequest(errorsOfRefusal(error, fieldNames), `The ${noun}`)
  }

  #findOrCatchUp<Found>(find: () => Found | undefined): Promise<Found | undefined> {
    const { reader, resource, store, namespace } = this.#options
    return findOrCatchUp({ client: reader, resource, store }, namespace, find)
  }

  /** Waits until the cache shows the written object, at most CACHE_WAIT_MS, so that the caller's next list has it. */
  async waitForCache(object: T): Promise<T> {
    await waitWithTimeout(CACHE_WAIT_MS, (signal) =>
      this.#options.store.waitFor(object.metadata.resourceVersion, signal),
    )
    return object
  }
}

/**
 * Returns the object that a request created, of those with its Idempotency-Key. An export and a backup keep the key, so a
 * copy has it too: it is younger, and has the original's uid once that is recorded.
 */
function originalOf<T extends Stored<KubeObject>>(objects: readonly T[]): T | undefined {
  const isCopy = ({ metadata: { uid, annotations } }: T) => (annotations?.[ANNOTATIONS.recordedUid] ?? uid) !== uid
  return objects
    .filter((object) => !isCopy(object))
    .sort(newestFirst)
    .at(-1)
}

/**
 * Returns the errors that the API server found in an object, with pointers into the body. The field
 * `spec.volumes[data].bucket` becomes `/volumes/data/bucket`, and `metadata.name` becomes `/name`. `fieldNames` has the
 * names in REST of the spec's fields that have another name there.
 */
export function errorsOfRefusal(error: KubeError, fieldNames: Readonly<Record<string, string>> = {}): FieldError[] {
  // A cause without a field only says that CEL rules were not checked, because of the other causes.
  const causes = (error.details?.causes ?? []).filter(({ field }) => field !== "<nil>")
  if (causes.length === 0) return [{ pointer: "", detail: kubeErrorMessage(error) }]
  return causes.map(({ field, message = kubeErrorMessage(error) }) => {
    const pointer = pointerOf(field, fieldNames)
    return { pointer, detail: pointer === "" ? message : `${toFieldPath(pointer)}: ${message}` }
  })
}

/** Converts a field path of Kubernetes (`a.b[0]`, `a[key]`) to a JSON pointer into the body. */
function pointerOf(path: string | undefined, fieldNames: Readonly<Record<string, string>>): string {
  const parts = [...(path ?? "").matchAll(/\[([^\]]*)\]|([^.[\]]+)/g)].map((match) => match[1] ?? match[2] ?? "")
  if (parts[0] !== "spec") return parts.join(".") === "metadata.name" ? "/name" : ""
  const [field = "", ...inside] = parts.slice(1)
  return [fieldNames[field] ?? field, ...inside]
    .filter((part) => part !== "")
    .map((part) => `/${escapePointer(part)}`)
    .join("")
}
