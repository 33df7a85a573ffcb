import { isBound, isExpired, roleAllows, type StoredApiKey } from "../apis/apikey.ts"
import type { Clock } from "../apis/clock.ts"
import { fromMetadataName } from "../apis/names.ts"
import type { KubeClient } from "../kube/client.ts"
import type { IndexFunction, Store } from "../kube/store.ts"
import { API_KEYS } from "../resources.ts"
import { matchesHash, parseKeyId } from "./apikeys.ts"
import { byNamespace, findOrCatchUp, NAMESPACE_INDEX } from "./catch-up.ts"
import { LiveReads } from "./live-reads.ts"
import { machineUserName } from "./machine-users.ts"
import type { Workload } from "./oidc.ts"
import type { Principal, ProjectScope } from "./principal.ts"

const KEY_ID_INDEX = "keyId"
const ISSUER_INDEX = "issuer"

/** Indexes that the cache of ApiKeys must have. */
export const API_KEY_INDEXES: Record<string, IndexFunction<StoredApiKey>> = {
  [NAMESPACE_INDEX]: byNamespace,
  [KEY_ID_INDEX]: ({ metadata, spec }) => [`${metadata.namespace}/${spec.keyId}`],
  [ISSUER_INDEX]: ({ metadata, spec: { oidc } }) =>
    oidc === undefined ? [] : [`${metadata.namespace}/${oidc.issuer}`],
}

export interface ApiKeyAuthenticatorOptions {
  client: Pick<KubeClient, "get" | "list">
  /** Cache with API_KEY_INDEXES. */
  store: Store<StoredApiKey>
  clock: Clock
}

/** Finds the principal that holds an API key, or a token that stands for one. */
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
    return matchesHash(value, key.spec.tokenHash) && this.#isValid(key) ? principalOf(key, project) : undefined
  }

  /**
   * Returns the principal of the key of this project that trusts a workload's token. If several do, it is one with the
   * highest role. Undefined: none does. @see authenticate
   */
  async authenticateWorkload(
    workload: Workload,
    project: ProjectScope,
    { onlyCached = false } = {},
  ): Promise<Principal | undefined> {
    const { client, store } = this.#options
    const entry = `${project.namespace}/${workload.issuer}`
    const find = (): StoredApiKey[] | undefined => {
      const found = store.byIndex(ISSUER_INDEX, entry).filter((key) => trusts(key, workload))
      return found.length === 0 ? undefined : found
    }
    const cache = { client, resource: API_KEYS, store }
    const cached = (onlyCached ? find() : await findOrCatchUp(cache, project.namespace, find)) ?? []
    const live = await Promise.all(cached.map((key) => this.#live.newest(key)))
    const valid = live.filter((key) => key !== undefined).filter((key) => trusts(key, workload) && this.#isValid(key))
    const [first, ...others] = valid
    if (first === undefined) return undefined
    const key = others.reduce((high, one) => (roleAllows(high.spec.role, one.spec.role) ? high : one), first)
    const principal = principalOf(key, project)
    return { ...principal, expiresAt: earlier(principal.expiresAt, workload.expiresAt) }
  }

  #isValid(key: StoredApiKey): boolean {
    return !isRevoked(key) && !isExpired(key, this.#options.clock.now())
  }
}

/** Returns true if a token stands for a key: it has each claim of the key, with exactly the key's text. */
function trusts({ spec: { oidc } }: StoredApiKey, { issuer, claims }: Workload): boolean {
  if (oidc === undefined || oidc.issuer !== issuer) return false
  const wanted = Object.entries(oidc.claims)
  return wanted.length > 0 && wanted.every(([claim, text]) => Object.hasOwn(claims, claim) && claims[claim] === text)
}

function principalOf(key: StoredApiKey, project: ProjectScope): Principal {
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

/** Returns the earlier of two times. */
function earlier(one: string | undefined, other: string | undefined): string | undefined {
  if (one === undefined || other === undefined) return one ?? other
  return Date.parse(one) < Date.parse(other) ? one : other
}

/** Returns true once the key is deleted, even while the finalizer still removes its machine user. */
function isRevoked({ metadata }: StoredApiKey): boolean {
  return metadata.deletionTimestamp !== undefined
}
