import { escapePointer } from "../apis/fault.ts"
import type { KubeObject, Stored } from "../apis/meta.ts"
import { isUuid, toMetadataName } from "../apis/names.ts"
import type { Fault } from "../apis/validate.ts"
import { notAtVersion, type Precondition, requireVersion } from "../http/entity-tags.ts"
import { invalidRequest, messageOf, nameConflict, notFound, Problem, unavailable } from "../http/problem.ts"
import type { Page } from "../http/query.ts"
import { findOrCatchUp, NAMESPACE_INDEX } from "../identity/catch-up.ts"
import type { CallerClient } from "../identity/principal.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound, isAlreadyExists, isConflict, isInvalid, isNotFound, type KubeError } from "../kube/errors.ts"
import type { PageOf } from "../kube/page-index.ts"
import type { Resource } from "../kube/resource.ts"
import type { Store } from "../kube/store.ts"
import { filled, IDEMPOTENCY_KEY_INDEX, inNamespace, isGoing, withPatience } from "./caches.ts"
import { type Turns, usedKey } from "./idempotency.ts"

/** How often a change is tried on an object that others change at the same time. */
const CHANGE_ATTEMPTS = 8

/** How long an answer to a write waits for the cache to show it; a broken watch must not hold it up longer. */
const ECHO_MS = 1000

export interface CollectionOptions<T extends Stored<KubeObject>> {
  /** The contract's word for one of them, such as `cronjob`. */
  noun: string
  resource: Resource<T>
  /** With the indexes of CACHE_OPTIONS. */
  store: Store<T>
  namespace: string
  /** Reads with the façade's own rights: REST shows a viewer what Kubernetes' roles keep from him, in redacted form. */
  reader: Pick<KubeClient, "get" | "list">
  /** Writes as the caller. */
  writer: CallerClient
  /** Shared by all requests of the process, and with other replicas. */
  turns: Turns
  /** REST's names of the spec's fields, where they are others: for what the API server refuses. */
  fieldNames?: Readonly<Record<string, string>>
}

/** A request to create that may be sent again. */
export interface Replay<T> {
  key: string
  /** Gives back the object that the same request made before. @throws Problem 422 when it was another request */
  accept: (earlier: T) => T | Promise<T>
}

/** Reads one kind of a project from the cache, and changes it on a caller's behalf; found by id or by name. */
export class Collection<T extends Stored<KubeObject>> {
  readonly #options: CollectionOptions<T>

  constructor(options: CollectionOptions<T>) {
    this.#options = options
  }

  /** All of the project, in no order. @throws Problem 503 before the cache was read */
  all(): T[] {
    return filled(this.#options.store).byIndex(NAMESPACE_INDEX, this.#options.namespace)
  }

  /**
   * A page of those that have all of these terms (see `CACHE_OPTIONS`), newest first, and how many they are.
   * @throws Problem 503 before the cache was read
   */
  page({ limit, offset }: Page, terms: readonly string[] = []): PageOf<T> {
    return filled(this.#options.store).page({ scope: this.#options.namespace, terms, offset, limit })
  }

  /** The one of this id or, when the text is no UUID, of this name. @throws Problem 404 */
  async find(idOrName: string): Promise<T> {
    const found = await (isUuid(idOrName) ? this.#byId(idOrName.toLowerCase()) : this.#byName(idOrName))
    if (found === undefined) throw this.#unknown(idOrName)
    return found
  }

  #byId(uid: string): Promise<T | undefined> {
    const { store, namespace } = this.#options
    return this.#findOrCatchUp(() => {
      const found = store.getByUid(uid)
      return found?.metadata.namespace === namespace ? found : undefined
    })
  }

  async #byName(name: string): Promise<T | undefined> {
    const metadataName = toMetadataName(name)
    // What can't be a name must not become a part of the API server's URL.
    if (metadataName === undefined) return undefined
    const { store, namespace } = this.#options
    return store.get({ namespace, name: metadataName }) ?? (await this.read(metadataName))
  }

  /** The one of this metadata.name as it is at the API server now; undefined when there is none. */
  async read(metadataName: string): Promise<T | undefined> {
    const { reader, resource, namespace } = this.#options
    return ifFound(reader.get(resource, { namespace, name: metadataName }))
  }

  /**
   * Creates once per Idempotency-Key.
   * @throws Problem 409 name taken or what the key made is being deleted, 400 what the API server refuses, 422
   */
  create(object: T, name: string, replay?: Replay<T>): Promise<T> {
    if (replay === undefined) return this.#create(object, name)
    const { resource, namespace, turns } = this.#options
    const known = (): Promise<T | undefined> => this.earlier(replay)
    // In turn, because requests with one key and different names would not meet at the API server.
    const make = async (): Promise<T> => (await known()) ?? (await this.#create(object, name, replay))
    return turns.take(`${resource.plural}/${namespace}/${replay.key}`, make, known)
  }

  /** The one that the same request made before. @throws Problem 422 another request, 409 it is being deleted */
  async earlier(replay: Replay<T>): Promise<T | undefined> {
    const earlier = await this.madeBy(replay.key)
    return earlier && this.#accepted(earlier, replay)
  }

  async #accepted(earlier: T, { accept }: Replay<T>): Promise<T> {
    const accepted = await accept(earlier)
    if (!isGoing(accepted)) return accepted
    const detail = `The ${this.#options.noun} that this Idempotency-Key created is being deleted: choose a new key.`
    throw new Problem({ type: "being-deleted", status: 409, detail })
  }

  /** The one that a request with this Idempotency-Key made before. */
  madeBy(idempotencyKey: string): Promise<T | undefined> {
    const { store, namespace } = this.#options
    return this.#findOrCatchUp(() => store.byIndex(IDEMPOTENCY_KEY_INDEX, inNamespace(namespace, idempotencyKey))[0])
  }

  async #create(object: T, name: string, replay?: Replay<T>): Promise<T> {
    const { writer, resource, noun } = this.#options
    try {
      return await this.echoed(await writer.create(resource, object))
    } catch (error) {
      if (isInvalid(error)) throw this.#refused(error)
      if (isNotFound(error)) throw unavailable(`The project is not ready for a new ${noun} yet: try again.`, 5, error)
      if (!isAlreadyExists(error)) throw error
    }
    const existing = await this.read(object.metadata.name)
    if (replay !== undefined && existing !== undefined && usedKey(existing) === replay.key)
      return this.#accepted(existing, replay)
    const there =
      existing !== undefined && isGoing(existing)
        ? "is being deleted: choose another name, or wait until it is deleted"
        : "exists in this project: choose another name, or PATCH it"
    throw nameConflict(`A ${noun} named ${JSON.stringify(name)} ${there}.`, name)
  }

  /**
   * Changes one: `change` is given a copy of its present state and returns the wanted one, or undefined when nothing
   * is to be changed; it is asked again when somebody else was faster.
   * @throws Problem 404, 412 when it is not at a version of `precondition`, 400 what the API server refuses, 503
   */
  async change(
    idOrName: string,
    change: (present: T) => T | undefined | Promise<T | undefined>,
    precondition?: Precondition,
  ): Promise<T> {
    for (let attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
      const present = await this.present(idOrName)
      requireVersion(this.#options.noun, present, precondition)
      const wanted = await change(structuredClone(present))
      if (wanted === undefined) return present
      const changed = await this.#tryToReplace(wanted)
      if (changed !== undefined) return this.echoed(changed)
    }
    throw unavailable(`The ${this.#options.noun} is changed by many requests at once: try again.`)
  }

  /** The changed object; undefined when it has changed since it was read, or is gone. */
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

  /** Deletes one. @throws Problem 404, 412 */
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
      // Another one has the name by now, or, with If-Match, another version is there.
      if (isConflict(error)) throw precondition === undefined ? this.#unknown(idOrName) : notAtVersion(noun)
      throw error
    }
    await withPatience(ECHO_MS, (signal) => store.waitUntil(() => store.getByUid(uid) === undefined, signal))
  }

  /** As it is at the API server now. @throws Problem 404 */
  async present(idOrName: string): Promise<T> {
    const uid = isUuid(idOrName) ? idOrName.toLowerCase() : undefined
    const name = uid === undefined ? toMetadataName(idOrName) : (await this.#byId(uid))?.metadata.name
    const present = name === undefined ? undefined : await this.read(name)
    if (present === undefined || (uid !== undefined && present.metadata.uid !== uid)) throw this.#unknown(idOrName)
    return present
  }

  #unknown(idOrName: string): Error {
    const { noun } = this.#options
    return notFound(`There is no ${noun} with the id or name ${JSON.stringify(idOrName)}.`)
  }

  #refused(error: KubeError): Error {
    const { noun, fieldNames } = this.#options
    return invalidRequest(faultsOfRefusal(error, fieldNames), `The ${noun}`)
  }

  #findOrCatchUp<Found>(find: () => Found | undefined): Promise<Found | undefined> {
    const { reader, resource, store, namespace } = this.#options
    return findOrCatchUp({ client: reader, resource, store }, namespace, find)
  }

  /** The written object, when the cache shows it (so that its caller finds it in the next list), or after a second. */
  async echoed(object: T): Promise<T> {
    await withPatience(ECHO_MS, (signal) => this.#options.store.waitFor(object.metadata.resourceVersion, signal))
    return object
  }
}

/**
 * The faults that the API server found in an object, in the body's terms: `spec.volumes[data].bucket` is the body's
 * `/volumes/data/bucket`, `metadata.name` its `/name`. `fieldNames` has REST's names of the spec's own fields, where
 * they are others.
 */
export function faultsOfRefusal(error: KubeError, fieldNames: Readonly<Record<string, string>> = {}): Fault[] {
  const causes = error.details?.causes ?? []
  if (causes.length === 0) return [{ pointer: "", detail: messageOf(error) }]
  return causes.map(({ field, message }) => ({
    pointer: pointerOf(field, fieldNames),
    detail: message ?? messageOf(error),
  }))
}

/** A field path of Kubernetes (`a.b[0]`, `a[key]`) as a JSON pointer into the body. */
function pointerOf(path: string | undefined, fieldNames: Readonly<Record<string, string>>): string {
  const parts = [...(path ?? "").matchAll(/\[([^\]]*)\]|([^.[\]]+)/g)].map((match) => match[1] ?? match[2] ?? "")
  if (parts[0] !== "spec") return parts.join(".") === "metadata.name" ? "/name" : ""
  const [field = "", ...inside] = parts.slice(1)
  return [fieldNames[field] ?? field, ...inside]
    .filter((part) => part !== "")
    .map((part) => `/${escapePointer(part)}`)
    .join("")
}
