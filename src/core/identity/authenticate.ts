import { isBound, isExpired, type StoredApiKey } from "../apis/apikey.ts"
import type { Clock } from "../apis/clock.ts"
import { fromMetadataName } from "../apis/names.ts"
import type { KubeClient } from "../kube/client.ts"
import type { IndexFunction, Store } from "../kube/store.ts"
import { API_KEYS } from "../resources.ts"
import { matchesHash, parseKeyId } from "./apikeys.ts"
import { byNamespace, findOrCatchUp, NAMESPACE_INDEX } from "./catch-up.ts"
import { LiveReads } from "./live-reads.ts"
import { machineUserName } from "./machine-users.ts"
import type { Principal, ProjectScope } from "./principal.ts"

const KEY_ID_INDEX = "keyId"

/** Indexes that the cache of ApiKeys must have. */
export const API_KEY_INDEXES: Record<string, IndexFunction<StoredApiKey>> = {
  [NAMESPACE_INDEX]: byNamespace,
  [KEY_ID_INDEX]: ({ metadata, spec }) => [`${metadata.namespace}/${spec.keyId}`],
}

export interface ApiKeyAuthenticatorOptions {
  client: Pick<KubeClient, "get" | "list">
  /** Cache with API_KEY_INDEXES. */
  store: Store<StoredApiKey>
  clock: Clock
}

/** Finds the principal that holds an API key. */
export class ApiKeyAuthenticator {
  readonly #options: ApiKeyAuthenticatorOptions
  readonly #live: LiveReads<StoredApiKey>

  constructor(options: ApiKeyAuthenticatorOptions) {
    this.#options = options
    this.#live = new LiveReads({ ...options, resource: API_KEYS })
  }

  /**
   * Returns the principal of a key of this project; undefined if the key is unknown there, expired or revoked. With
   * `onlyCached`, keys that are not in the cache are not looked up in the API server.
   * @throws KubeError or CacheBehind if the API server or the cache can't answer now
   */
  async authenticate(
    value: string,
    project: ProjectScope,
    { onlyCached = false } = {},
  ): Promise<Principal | undefined> {
    const keyId = parseKeyId(value)
    if (keyId === undefined) return undefined
    const { client, store } = this.#options
    const entry = `${project.namespace}/${keyId}`
    const find = (): StoredApiKey | undefined =>
      store.byIndex(KEY_ID_INDEX, entry).find(({ spec }) => matchesHash(value, spec.tokenHash))
    const cache = { client, resource: API_KEYS, store }
    const cached = onlyCached ? find() : await findOrCatchUp(cache, project.namespace, find)
    if (cached === undefined) return undefined
    const key = await this.#live.newest(cached)
    if (key === undefined) return undefined
    if (!matchesHash(value, key.spec.tokenHash) || isRevoked(key) || isExpired(key, this.#options.clock.now()))
      return undefined
    const { uid, name } = key.metadata
    return {
      kind: "apiKey",
      id: `apiKey/${uid}`,
      publicId: uid,
      name: fromMetadataName(name),
      expiresAt: key.spec.expiresAt,
      role: key.spec.role,
      project,
      machineUser: machineUserName(uid),
      isBound: isBound(key),
    }
  }
}

/** Returns true once the key is deleted, even while the finalizer still removes its machine user. */
function isRevoked({ metadata }: StoredApiKey): boolean {
  return metadata.deletionTimestamp !== undefined
}
