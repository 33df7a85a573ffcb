import { setTimeout as delay } from "node:timers/promises"
import { isBound, isExpired, type StoredApiKey } from "../../../core/apis/apikey.ts"
import type { Clock } from "../../../core/apis/clock.ts"
import type { CreationTimes } from "../../../core/apis/creation-times.ts"
import { quote } from "../../../core/apis/field-error.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { makeApiKey } from "../../../core/identity/apikeys.ts"
import { machineUserName } from "../../../core/identity/machine-users.ts"
import type { CallerClient } from "../../../core/identity/principal.ts"
import { hasRights } from "../../../core/identity/rights.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import { ifFound, isConflict, isNotFound } from "../../../core/kube/errors.ts"
import type { Store } from "../../../core/kube/store.ts"
import { API_KEYS } from "../../../core/resources.ts"
import { isBeingDeleted } from "../../caches.ts"
import { Collection, type Mutexes, type Replay } from "../../collection.ts"
import type { Precondition } from "../../http/entity-tags.ts"
import { notFound, Problem, unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import { requireRepetition } from "../../repetition.ts"
import { type Sorting, sorted } from "../../sorting.ts"
import type { KeyUpdate } from "./schema.ts"
import { toApiKey, toKeyRecord, type WantedKey } from "./translate.ts"

export interface KeysOptions {
  /** Cache with the indexes of CACHE_OPTIONS. */
  store: Store<StoredApiKey>
  namespace: string
  /** Client with the façade's own rights: viewers can't read ApiKeys in Kubernetes, because these hold hashes. */
  reader: Pick<KubeClient, "get" | "list">
  /** Client with the caller's rights. */
  writer: CallerClient
  /** Returns the client that calls as a machine user. */
  asUser: (machineUser: string) => Pick<CallerClient, "create">
  creationTimes: CreationTimes
  mutexes: Mutexes
  /** Throws the Problem for which the project takes no new key. Absent: it takes any. */
  requireRoom?: () => void
  clock: Clock
  /** Longest time until a key's machine user is ready, seconds. Default 10. */
  patienceSeconds?: number
}

/** Query of GET /keys. */
interface KeyQuery extends Sorting, Page {
  name: string | undefined
}

/** Longest wait for the cache before the API server is read. */
const LOOK_MS = 250

const PATIENCE_SECONDS = 10

/** Longest time until the API server's RBAC knows the bindings of a key that is bound, seconds. */
const RIGHTS_SECONDS = 2
/** Delay before the API server is asked again. */
const RIGHTS_LOOK_MS = 50

/** API keys of one project. Reads come from the cache, writes have the caller's rights. */
export class Keys {
  readonly #options: KeysOptions
  readonly #collection: Collection<StoredApiKey>

  constructor(options: KeysOptions) {
    this.#options = options
    this.#collection = new Collection({ noun: "key", resource: API_KEYS, fieldNames: FIELD_NAMES, ...options })
  }

  /** Returns a page of the keys, and their number. A name limits both to the keys with this name. */
  list({ name, limit, offset, ...sorting }: KeyQuery): { keys: StoredApiKey[]; total: number } {
    const keys = this.#collection
      .all()
      .filter((key) => !isBeingDeleted(key) && (name === undefined || fromMetadataName(key.metadata.name) === name))
    return { keys: sorted(keys, sorting).slice(offset, offset + limit), total: keys.length }
  }

  /** @throws Problem 404 */
  async find(id: string): Promise<StoredApiKey> {
    return there(await this.#collection.find(id), id)
  }

  /**
   * Creates a key. Waits until its machine user has its rights, so that the key works when the caller gets it. Only
   * this response has the value. It is empty if tokens stand for the key: then no caller ever has the value of the hash.
   * @throws Problem 409 name in use or Idempotency-Key used; 503 if the machine user is not ready in time or its state
   * is unknown. In this case the key is deleted, or the problem names it.
   */
  async create(wanted: WantedKey, idempotencyKey?: string): Promise<{ key: StoredApiKey; value: string }> {
    const { namespace, creationTimes } = this.#options
    const { value, keyId, tokenHash } = makeApiKey()
    const createdAt = creationTimes.next()
    const object = toApiKey(wanted, { namespace, keyId, tokenHash, createdAt, idempotencyKey })
    const replay = idempotencyKey === undefined ? undefined : replayOf(idempotencyKey)
    const created = await this.#collection.create(object as StoredApiKey, wanted.name, replay)
    const key = await this.#bound(created).catch((error: unknown) => this.#discard(created, error))
    if (key !== undefined) {
      await this.#inForce(key)
      return { key, value: wanted.oidc === undefined ? value : "" }
    }
    const detail = "The key was not created, because its machine user was not ready in time: try again."
    return this.#discard(created, unavailable(detail, 5))
  }

  /** Rejects a repeated request: the value of its key can't be shown again. @throws Problem 409 if it is repeated */
  async refuseReplay(idempotencyKey: string): Promise<undefined> {
    await this.#collection.earlier(replayOf(idempotencyKey))
  }

  /**
   * Changes a key's role, unless it is undefined or null. Waits until the machine user has the new rights, at most
   * `patienceSeconds`. REST enforces the new role at once.
   * @throws Problem 404, 412, 400 for a field that can't be changed
   */
  async update(id: string, update: KeyUpdate, precondition: Precondition): Promise<StoredApiKey> {
    const role = update.role ?? undefined
    const change = (present: StoredApiKey): StoredApiKey | undefined => {
      const { spec } = there(present, id)
      const { role: _, conditions: _conditions, ...fixed } = toKeyRecord(present)
      requireRepetition("key", update, fixed)
      return role === undefined || role === spec.role ? undefined : { ...present, spec: { ...spec, role } }
    }
    const changed = await this.#collection.change(id, change, precondition)
    const bound = await this.#bound(changed)
    if (bound !== undefined) await this.#inForce(bound)
    return bound ?? changed
  }

  /** Deletes a key. It is rejected from now on. Waits a second at most for its machine user. @throws Problem 404, 412 */
  async remove(id: string, precondition: Precondition): Promise<void> {
    there(await this.#collection.find(id), id)
    await this.#collection.remove(id, precondition)
  }

  /**
   * Waits until the key is bound (its machine user has the rights of this version's role) or expired. Returns undefined
   * after `patienceSeconds`.
   */
  async #bound(key: StoredApiKey): Promise<StoredApiKey | undefined> {
    const { store, clock, patienceSeconds = PATIENCE_SECONDS } = this.#options
    const { uid, resourceVersion } = key.metadata
    const isSettled = (present: StoredApiKey | undefined): present is StoredApiKey =>
      present !== undefined && (isBound(present) || isExpired(present, clock.now()))
    const isShown = (): boolean => store.reached(resourceVersion) && isSettled(store.getByUid(uid))
    const deadline = clock.monotonic() + patienceSeconds
    do {
      const look = AbortSignal.timeout(LOOK_MS)
      const isInCache = store.waitUntil(isShown, look).then(
        () => true,
        () => false,
      )
      const present = (await isInCache) ? store.getByUid(uid) : await this.#read(key)
      if (isSettled(present)) return present
    } while (clock.monotonic() < deadline)
    return undefined
  }

  /**
   * Waits until the API server gives the key's machine user the rights of its role, at most RIGHTS_SECONDS. RBAC reads
   * the bindings from a cache. After an error or the time, the key is returned anyway: its rights come within moments.
   */
  async #inForce(key: StoredApiKey): Promise<void> {
    const { asUser, namespace, clock } = this.#options
    if (!isBound(key)) return
    const user = asUser(machineUserName(key.metadata.uid))
    const deadline = clock.monotonic() + RIGHTS_SECONDS
    const ask = (): Promise<boolean> => hasRights(key.spec.role, namespace, user).catch(() => true)
    while (!(await ask()) && clock.monotonic() < deadline) await delay(RIGHTS_LOOK_MS)
  }

  async #read({ metadata }: StoredApiKey): Promise<StoredApiKey | undefined> {
    const present = await ifFound(this.#options.reader.get(API_KEYS, metadata))
    return present?.metadata.uid === metadata.uid ? present : undefined
  }

  /**
   * Deletes a key whose value is not returned to the caller.
   * @throws `reason`, or Problem 503 that names the key if it can't be deleted
   */
  async #discard({ metadata }: StoredApiKey, reason: unknown): Promise<never> {
    try {
      await this.#options.writer.delete(API_KEYS, metadata, { preconditions: { uid: metadata.uid } })
    } catch (error) {
      if (isNotFound(error) || isConflict(error)) throw reason
      const name = JSON.stringify(fromMetadataName(metadata.name))
      const detail = `The key ${name} (${metadata.uid}) was created, but its value is lost and it could not be deleted. Delete it and create another.`
      throw unavailable(detail, 5, new AggregateError([reason, error], "a key could be neither bound nor deleted"))
    }
    throw reason
  }
}

/** Names in REST of an ApiKey's fields that have another name there. */
const FIELD_NAMES = { expiresAt: "expires_at" }

/** Returns the key if it is not being deleted. @throws Problem 404 */
function there(key: StoredApiKey, id: string): StoredApiKey {
  if (isBeingDeleted(key)) throw notFound(`No key has the id or name ${quote(id)}.`)
  return key
}

function replayOf(key: string): Replay<StoredApiKey> {
  return { key, accept: refuseReplay }
}

function refuseReplay(): never {
  const detail =
    "The Idempotency-Key was used before, and the value of the key that it created cannot be shown again: " +
    "delete that key, and create another with a new Idempotency-Key."
  throw new Problem({ type: "value-shown-once", status: 409, detail })
}
