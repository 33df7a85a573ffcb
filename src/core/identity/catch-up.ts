import type { KubeClient } from "../kube/client.ts"
import type { ApiObject, Resource } from "../kube/resource.ts"
import type { IndexFunction, Store } from "../kube/store.ts"

/** Name of the index by namespace, which every cache of a namespaced kind has. */
export const NAMESPACE_INDEX = "namespace"

export const byNamespace: IndexFunction<ApiObject> = ({ metadata }) => [metadata.namespace ?? ""]

/** The cache is known to be behind the API server: an object that is missing in the cache may exist. Try again soon. */
export class CacheBehind extends Error {
  override readonly name = "CacheBehind"
}

export interface Cached<T extends ApiObject> {
  client: Pick<KubeClient, "list">
  resource: Resource<T>
  /** Cache with NAMESPACE_INDEX. */
  store: Store<T>
}

const LIST_TIMEOUT_SECONDS = 5
const PATIENCE_MS = 2000

/**
 * Looks in the cache. On a miss it waits until the cache is up to date with the API server, and looks again. Another
 * replica may just have created the object. Up to date means: the API server's resourceVersion is reached, or both have
 * as many objects in the namespace. With versions alone, a miss would wait for the next bookmark.
 * @throws CacheBehind if that takes longer than 2 s; KubeError if the API server is unavailable
 */
export async function findOrCatchUp<T extends ApiObject, Found>(
  { client, resource, store }: Cached<T>,
  namespace: string,
  find: () => Found | undefined,
): Promise<Found | undefined> {
  const found = find()
  if (found !== undefined) return found
  const { items, metadata } = await client.list(resource, { namespace, limit: 1, timeoutSeconds: LIST_TIMEOUT_SECONDS })
  const more = metadata.continue ? metadata.remainingItemCount : 0
  const total = more === undefined ? undefined : items.length + more
  const upToDate = (): boolean =>
    store.reached(metadata.resourceVersion) || store.countByIndex(NAMESPACE_INDEX, namespace) === total
  try {
    await store.waitUntil(() => find() !== undefined || upToDate(), AbortSignal.timeout(PATIENCE_MS))
  } catch (cause) {
    throw new CacheBehind(`the cache of ${resource.plural} is behind the API server`, { cause })
  }
  return find()
}
