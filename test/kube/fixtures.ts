import { setTimeout as sleep } from "node:timers/promises"
import type { Logger } from "../../src/kube/logger.ts"
import { type ApiObject, resourceOf } from "../../src/kube/resource.ts"

export interface ConfigMap extends ApiObject {
  data?: Record<string, string>
}

export const configMaps = resourceOf<ConfigMap>({
  group: "",
  version: "v1",
  kind: "ConfigMap",
  plural: "configmaps",
  namespaced: true,
})

export const namespaces = resourceOf<ApiObject>({
  group: "",
  version: "v1",
  kind: "Namespace",
  plural: "namespaces",
  namespaced: false,
})

export const silentLogger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
}

/** Waits until the condition holds; throws an Error that names it after `seconds`. */
export async function eventually(what: string, condition: () => unknown, seconds = 10): Promise<void> {
  const deadline = performance.now() + seconds * 1000
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`)
    await sleep(20)
  }
}
