import type { StoredApiKey } from "../../core/apis/apikey.ts"
import { keyOf, type ObjectMeta } from "../../core/apis/meta.ts"
import { SERVICE_ACCOUNTS, type ServiceAccount } from "../../core/identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../core/identity/role-bindings.ts"
import { ifFound } from "../../core/kube/errors.ts"
import type { ApiObject, ObjectRef, Resource } from "../../core/kube/resource.ts"
import { limitForExisting } from "../../core/quota/project-limits.ts"
import { API_KEYS } from "../../core/resources.ts"
import { API_KEY_INDEX } from "../caches.ts"
import { type ApiKeyObservation, buildBinding, buildMachineUser, isMadeFor } from "./decide.ts"
import type { ApiKeyControllerDependencies } from "./dependencies.ts"

type Reads = Pick<ApiKeyControllerDependencies, "client" | "apiKeys" | "users" | "bindings" | "quota">

/** Reads the facts about a key's machine user from the caches. Objects that the caches lack are read live. */
export async function gather(key: StoredApiKey, reads: Reads): Promise<ApiKeyObservation> {
  const overLimit = limitForExisting(reads.quota, "apiKeys", key, reads.apiKeys.store)
  const found = await findMachineUser(key, reads)
  return overLimit === undefined ? found : { ...found, overLimit: overLimit.message }
}

async function findMachineUser(key: StoredApiKey, reads: Reads): Promise<ApiKeyObservation> {
  const user = await find(SERVICE_ACCOUNTS, buildMachineUser(key).metadata, reads.users.store, reads.client)
  const made = reads.bindings.store.byIndex(API_KEY_INDEX, keyOf(key)).filter((binding) => isMadeFor(binding, key))
  const { metadata } = buildBinding(key)
  if (made.some(({ metadata: { name } }) => name === metadata.name)) return { user, bindings: made }
  // The cache has only bindings with our label. Another one of that name means that the name is taken.
  const named = await read(ROLE_BINDINGS, metadata, reads.client)
  return { user, bindings: named === undefined ? made : [...made, named] }
}

/** Machine users and bindings of an earlier ApiKey with the same name. */
export interface Leftovers {
  users: ServiceAccount[]
  bindings: RoleBinding[]
}

/**
 * Returns objects of earlier ApiKeys with this name, which were deleted without their finalizer. They are decided on by
 * a live read, as the cache may be stale.
 */
export async function findLeftovers(key: string, { client, apiKeys, users, bindings }: Reads): Promise<Leftovers> {
  const madeForOthers = (of: StoredApiKey | undefined): Leftovers => {
    const isLeft = (object: { metadata: ObjectMeta }): boolean => of === undefined || !isMadeFor(object, of)
    return {
      users: users.store.byIndex(API_KEY_INDEX, key).filter(isLeft),
      bindings: bindings.store.byIndex(API_KEY_INDEX, key).filter(isLeft),
    }
  }
  const suspects = madeForOthers(apiKeys.store.getByKey(key))
  if (suspects.users.length + suspects.bindings.length === 0) return suspects
  const [namespace, name = ""] = key.split("/")
  return madeForOthers(await read(API_KEYS, { namespace, name }, client))
}

async function find<T extends ApiObject>(
  resource: Resource<T>,
  ref: ObjectRef,
  store: { get(ref: ObjectRef): T | undefined },
  client: Reads["client"],
): Promise<T | undefined> {
  return store.get(ref) ?? (await read(resource, ref, client))
}

async function read<T extends ApiObject>(
  resource: Resource<T>,
  { namespace, name }: ObjectRef,
  client: Reads["client"],
): Promise<T | undefined> {
  return ifFound(client.get(resource, { namespace, name }))
}
