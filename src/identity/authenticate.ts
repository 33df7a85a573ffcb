import { API_KEY, isBound, isExpired, type StoredApiKey } from "../apis/apikey.ts"
import type { Clock } from "../apis/clock.ts"
import type { KubeClient } from "../kube/client.ts"
import { isNotFound } from "../kube/errors.ts"
import { resourceOf } from "../kube/resource.ts"
import { compareResourceVersions } from "../kube/resource-version.ts"
import type { IndexFunction, Store } from "../kube/store.ts"
import { keyIdOf, matchesHash } from "./apikeys.ts"
import { byNamespace, findOrCatchUp, NAMESPACE_INDEX } from "./catch-up.ts"
import { machineUserName } from "./machine-users.ts"
import type { Principal, ProjectScope } from "./principal.ts"

export const API_KEYS = resourceOf<StoredApiKey>(API_KEY)

const KEY_ID_INDEX = "keyId"

/** Indexes that the cache of ApiKeys must have. */
export const API_KEY_INDEXES: Record<string, IndexFunction<StoredApiKey>> = {
  [NAMESPACE_INDEX]: byNamespace,
  [KEY_ID_INDEX]: ({ metadata, spec }) => [`${metadata.namespace}/${spec.keyId}`],
}

/** An accepted key is confirmed by a live read at most this old, so that a broken watch can't keep it alive. */
const CONFIRMATION_SECONDS = 1
const READ_TIMEOUT_SECONDS = 5
const READS_KEPT = 1024

export interface ApiKeyAuthenticatorOptions {
  client: Pick<KubeClient, "get" | "list">
  /** With API_KEY_INDEXES. */
  store: Store<StoredApiKey>
  clock: Clock
}

interface LiveRead {
  startedAt: number
  key: Promise<StoredApiKey | undefined>
}

/** Tells who holds an API key. */
export class ApiKeyAuthenticator {
  readonly #options: ApiKeyAuthenticatorOptions
  readonly #reads = new Map<string, LiveRead>()

  constructor(options: ApiKeyAuthenticatorOptions) {
    this.#options = options
  }

  /**
   * The principal of a key of this project; undefined when the value is no key of it, expired or revoked.
   * @throws KubeError or CacheBehind when that can't be told now
   */
  async authenticate(value: string, project: ProjectScope): Promise<Principal | undefined> {
    const keyId = keyIdOf(value)
    if (keyId === undefined) return undefined
    const { client, store } = this.#options
    const entry = `${project.namespace}/${keyId}`
    const cached = await findOrCatchUp({ client, resource: API_KEYS, store }, project.namespace, () =>
      store.byIndex(KEY_ID_INDEX, entry).find(({ spec }) => matchesHash(value, spec.tokenHash)),
    )
    if (cached === undefined) return undefined
    const confirmed = await this.#confirm(cached)
    if (confirmed === undefined) return undefined
    // The read may be a second old, and the cache have heard of a revocation since.
    const key = newerOf(cached, confirmed)
    if (!matchesHash(value, key.spec.tokenHash) || isRevoked(key) || isExpired(key, this.#options.clock.now()))
      return undefined
    const { uid } = key.metadata
    return {
      kind: "apiKey",
      id: `apiKey/${uid}`,
      role: key.spec.role,
      project,
      machineUser: machineUserName(uid),
      isBound: isBound(key),
    }
  }

  /** The key as the API server has it now, or had it within the last second; undefined when it is gone. */
  async #confirm(cached: StoredApiKey): Promise<StoredApiKey | undefined> {
    const now = this.#options.clock.monotonic()
    const id = cached.metadata.uid
    const last = this.#reads.get(id)
    const fresh = last !== undefined && now - last.startedAt < CONFIRMATION_SECONDS
    const key = await (fresh ? last.key : this.#read(id, cached, now))
    // A key that was deleted and made anew under the same name is another one.
    return key?.metadata.uid === cached.metadata.uid ? key : undefined
  }

  #read(id: string, { metadata }: StoredApiKey, startedAt: number): Promise<StoredApiKey | undefined> {
    this.#forgetStaleReads(startedAt)
    const key = this.#options.client
      .get(API_KEYS, metadata, { timeoutSeconds: READ_TIMEOUT_SECONDS })
      .catch((error: unknown) => {
        if (isNotFound(error)) return undefined
        this.#reads.delete(id)
        throw error
      })
    this.#reads.set(id, { startedAt, key })
    return key
  }

  #forgetStaleReads(now: number): void {
    if (this.#reads.size < READS_KEPT) return
    for (const [id, { startedAt }] of this.#reads) {
      if (now - startedAt >= CONFIRMATION_SECONDS) this.#reads.delete(id)
    }
  }
}

function newerOf(a: StoredApiKey, b: StoredApiKey): StoredApiKey {
  return compareResourceVersions(a.metadata.resourceVersion, b.metadata.resourceVersion) > 0 ? a : b
}

/** From the moment on that it is deleted, whatever is still to be done about its machine user. */
function isRevoked({ metadata }: StoredApiKey): boolean {
  return metadata.deletionTimestamp !== undefined
}
