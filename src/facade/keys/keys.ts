import { isBound, isExpired, type Role, type StoredApiKey } from "../../apis/apikey.ts"
import type { Clock } from "../../apis/clock.ts"
import type { CreationTimes } from "../../apis/creation-times.ts"
import { fromMetadataName } from "../../apis/names.ts"
import type { Precondition } from "../../http/entity-tags.ts"
import { notFound, Problem, unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import { makeApiKey } from "../../identity/apikeys.ts"
import { API_KEYS } from "../../identity/authenticate.ts"
import type { CallerClient } from "../../identity/principal.ts"
import type { KubeClient } from "../../kube/client.ts"
import { ifFound, isConflict, isNotFound } from "../../kube/errors.ts"
import type { Store } from "../../kube/store.ts"
import { isGoing } from "../caches.ts"
import { Collection, type Replay } from "../collection.ts"
import type { Turns } from "../idempotency.ts"
import { type Sorting, sorted } from "../sorting.ts"
import { apiKeyOf, type WantedKey } from "./translate.ts"

export interface KeysOptions {
  /** With the indexes of CACHE_OPTIONS. */
  store: Store<StoredApiKey>
  namespace: string
  /** The façade's own: ApiKeys hold hashes, which Kubernetes' roles keep from viewers; REST shows none. */
  reader: Pick<KubeClient, "get" | "list">
  /** As the caller. */
  writer: CallerClient
  creationTimes: CreationTimes
  /** Shared by all requests of the process. */
  turns: Turns
  clock: Clock
  /** How long a key's machine user may take, seconds. Default 10. */
  patienceSeconds?: number
}

/** What GET /keys asks for. */
interface KeyQuery extends Sorting, Page {
  name: string | undefined
}

/** How long the cache alone is waited for before the API server is asked. */
const LOOK_MS = 250

const PATIENCE_SECONDS = 10

/** The API keys of one project, read from the cache and changed on a caller's behalf. */
export class Keys {
  readonly #options: KeysOptions
  readonly #collection: Collection<StoredApiKey>

  constructor(options: KeysOptions) {
    this.#options = options
    this.#collection = new Collection({ noun: "key", resource: API_KEYS, fieldNames: FIELD_NAMES, ...options })
  }

  /** A page of the keys, of those with this name where one is given, and how many there are. */
  list({ name, limit, offset, ...sorting }: KeyQuery): { keys: StoredApiKey[]; total: number } {
    const keys = this.#collection
      .all()
      .filter((key) => !isGoing(key) && (name === undefined || fromMetadataName(key.metadata.name) === name))
    return { keys: sorted(keys, sorting).slice(offset, offset + limit), total: keys.length }
  }

  /** @throws Problem 404 */
  async find(id: string): Promise<StoredApiKey> {
    return there(await this.#collection.find(id), id)
  }

  /**
   * Makes a key; resolves when its machine user has its rights, so that it works from the answer on. The value is known
   * to nobody but whoever gets this answer.
   * @throws Problem 409 name taken or Idempotency-Key used, 503 when no machine user comes or nobody can tell: then nothing
   * is left, or what is left is named
   */
  async create(wanted: WantedKey, idempotencyKey?: string): Promise<{ key: StoredApiKey; value: string }> {
    const { namespace, creationTimes } = this.#options
    const { value, keyId, tokenHash } = makeApiKey()
    const createdAt = creationTimes.next()
    const object = apiKeyOf(wanted, { namespace, keyId, tokenHash, createdAt, idempotencyKey })
    const replay = idempotencyKey === undefined ? undefined : replayOf(idempotencyKey)
    const created = await this.#collection.create(object as StoredApiKey, wanted.name, replay)
    const key = await this.#bound(created).catch((error: unknown) => this.#discard(created, error))
    if (key !== undefined) return { key, value }
    const detail = "The key was not created, because its machine user was not ready in time: try again."
    return this.#discard(created, unavailable(detail, 5))
  }

  /** What a request with this key has made before is told nobody again. @throws Problem 409 when there is something */
  async refuseReplay(idempotencyKey: string): Promise<undefined> {
    await this.#collection.earlier(replayOf(idempotencyKey))
  }

  /**
   * Gives a key another role; undefined leaves it. Resolves when its rights are the new ones, or after a while: what
   * REST allows is the new role's at once.
   * @throws Problem 404, 412
   */
  async setRole(id: string, role: Role | undefined, precondition: Precondition): Promise<StoredApiKey> {
    const change = (present: StoredApiKey): StoredApiKey | undefined => {
      const { spec } = there(present, id)
      return role === undefined || role === spec.role ? undefined : { ...present, spec: { ...spec, role } }
    }
    const changed = await this.#collection.change(id, change, precondition)
    return (await this.#bound(changed)) ?? changed
  }

  /** Deletes a key: it is refused from now on. Resolves when its machine user is gone, or after a while. */
  async remove(id: string, precondition: Precondition): Promise<void> {
    there(await this.#collection.find(id), id)
    await this.#collection.remove(id, precondition)
  }

  /** The key once its machine user has the rights of this version's role, or as expired; undefined after a while. */
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

  async #read({ metadata }: StoredApiKey): Promise<StoredApiKey | undefined> {
    const present = await ifFound(this.#options.reader.get(API_KEYS, metadata))
    return present?.metadata.uid === metadata.uid ? present : undefined
  }

  /**
   * Takes a key back whose value nobody will ever be told.
   * @throws the reason why; Problem 503 that names the key, when it is there still
   */
  async #discard({ metadata }: StoredApiKey, reason: unknown): Promise<never> {
    try {
      await this.#options.writer.delete(API_KEYS, metadata, { preconditions: { uid: metadata.uid } })
    } catch (error) {
      if (isNotFound(error) || isConflict(error)) throw reason
      const name = JSON.stringify(fromMetadataName(metadata.name))
      const detail = `The key ${name} (${metadata.uid}) was created, but its value is lost and it could not be deleted. Delete it and create another.`
      throw unavailable(detail, 5, new AggregateError([reason, error], "a key was neither bound nor deleted"))
    }
    throw reason
  }
}

/** REST's names of an ApiKey's fields. */
const FIELD_NAMES = { expiresAt: "expires_at" }

/** A key that is being deleted is no key any more. */
function there(key: StoredApiKey, id: string): StoredApiKey {
  if (isGoing(key)) throw notFound(`No key has the id or name ${JSON.stringify(id)}.`)
  return key
}

function replayOf(key: string): Replay<StoredApiKey> {
  return { key, accept: refuseReplay }
}

function refuseReplay(): never {
  const detail =
    "The Idempotency-Key was used before, and the value of the key that it created cannot be shown again: " +
    "delete that key, and create another with a new Idempotency-Key."
  throw new Problem({ type: "idempotency-key-reused", status: 409, detail })
}
