import type { CallerClient } from "../../src/core/identity/principal.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"

/** Returns a client's methods as an object whose parts a test may replace. */
export function plainClient(client: KubeClient): CallerClient {
  return {
    get: (resource, ref, options) => client.get(resource, ref, options),
    list: (resource, options) => client.list(resource, options),
    create: (resource, object, options) => client.create(resource, object, options),
    patch: (resource, ref, patch, options) => client.patch(resource, ref, patch, options),
    replace: (resource, object, options) => client.replace(resource, object, options),
    delete: (resource, ref, options) => client.delete(resource, ref, options),
  }
}
