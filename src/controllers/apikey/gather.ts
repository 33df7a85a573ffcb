import type { StoredApiKey } from "../../apis/apikey.ts"
import { keyOf, type ObjectMeta } from "../../apis/meta.ts"
import { SERVICE_ACCOUNTS, type ServiceAccount } from "../../identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../identity/role-bindings.ts"
import { ifFound } from "../../kube/errors.ts"
import type { ApiObject, ObjectRef, Resource } from "../../kube/resource.ts"
import type { ApiKeyObservation } from "./decide.ts"
import { API_KEY_INDEX, API_KEYS, type ApiKeyControllerOptions } from "./dependencies.ts"
import { bindingOf, isMadeFor, machineUserOf } from "./objects.ts"

type Reads = Pick<ApiKeyControllerOptions, "client" | "users" | "bindings">

/** Reads what there is of a key's machine user: from the caches, and live what they don't have. */
export async function gather(key: StoredApiKey, reads: Reads): Promise<ApiKeyObservation> {
  const user = await find(SERVICE_ACCOUNTS, machineUserOf(key).metadata, reads.users.store, reads.client)
  const made = reads.bindings.store.byIndex(API_KEY_INDEX, keyOf(key)).filter((binding) => isMadeFor(binding, key))
  const { metadata } = bindingOf(key)
  if (made.some(({ metadata: { name } }) => name === metadata.name)) return { user, bindings: made }
  // The cache has only what is marked as ours: somebody else's of that name must not be taken for a free name.
  const named = await read(ROLE_BINDINGS, metadata, reads.client)
  return { user, bindings: named === undefined ? made : [...made, named] }
}

/** Machine users and bindings that name this ApiKey but were made for another one, which had its name before. */
export interface Leftovers {
  users: ServiceAccount[]
  bindings: RoleBinding[]
}

/**
 * What is left of ApiKeys of this name that went without their finalizer's leave. `cached` is the one that has the name
 * as far as the cache knows; only the API server's own word makes anything a leftover, as the cache may be late.
 */
export async function leftoversOf(
  key: string,
  cached: StoredApiKey | undefined,
  { client, users, bindings }: Reads,
): Promise<Leftovers> {
  const madeForOthers = (of: StoredApiKey | undefined): Leftovers => {
    const isLeft = (object: { metadata: ObjectMeta }): boolean => of === undefined || !isMadeFor(object, of)
    return {
      users: users.store.byIndex(API_KEY_INDEX, key).filter(isLeft),
      bindings: bindings.store.byIndex(API_KEY_INDEX, key).filter(isLeft),
    }
  }
  const suspects = madeForOthers(cached)
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
