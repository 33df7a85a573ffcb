import { KubeClient, type Patch, type WriteOptions } from "../../src/core/kube/client.ts"
import type { ApiObject, ObjectRef, Resource, Unstored } from "../../src/core/kube/resource.ts"
import type { Store } from "../../src/core/kube/store.ts"
import { PATIENCE_MS } from "./eventually.ts"

/** Cache of a façade that runs in this process. `namespace`: the only one that it has; absent: all. */
export interface ShowingCache {
  readonly reflector: { readonly resource: Resource; readonly store: Pick<Store<ApiObject>, "waitFor"> }
  readonly namespace?: string
}

const showing = new Set<ShowingCache>()

/** Lets every ShownClient wait for these caches. Returns a function that ends it, before the caches stop. */
export function showWritesIn(caches: readonly ShowingCache[]): () => void {
  for (const cache of caches) showing.add(cache)
  return () => {
    for (const cache of caches) showing.delete(cache)
  }
}

/**
 * Client of a test that then asks a façade. A façade lists from its caches, and these show another client's write after
 * a delay. So each write ends when the caches of all façades in this process show it.
 */
export class ShownClient extends KubeClient {
  override async create<T extends ApiObject>(
    resource: Resource<T>,
    object: Unstored<T>,
    options: WriteOptions = {},
  ): Promise<T> {
    return shown(resource, await super.create(resource, object, options), options)
  }

  override async replace<T extends ApiObject>(
    resource: Resource<T>,
    object: T,
    options: WriteOptions = {},
  ): Promise<T> {
    return shown(resource, await super.replace(resource, object, options), options)
  }

  override async patch<T extends ApiObject>(
    resource: Resource<T>,
    ref: ObjectRef,
    patch: Patch,
    options: WriteOptions = {},
  ): Promise<T> {
    return shown(resource, await super.patch(resource, ref, patch, options), options)
  }
}

async function shown<T extends ApiObject>(resource: Resource<T>, written: T, options: WriteOptions): Promise<T> {
  if (options.dryRun) return written
  const { namespace, resourceVersion = "" } = written.metadata
  const caches = [...showing].filter(
    (cache) =>
      cache.reflector.resource.plural === resource.plural &&
      cache.reflector.resource.group === resource.group &&
      (cache.namespace === undefined || cache.namespace === namespace),
  )
  const signal = AbortSignal.timeout(PATIENCE_MS)
  await Promise.all(caches.map(({ reflector }) => reflector.store.waitFor(resourceVersion, signal)))
  return written
}
