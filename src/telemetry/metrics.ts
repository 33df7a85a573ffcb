import { collectDefaultMetrics, Registry } from "prom-client"

export type { Registry } from "prom-client"

/** A registry of this process's metrics, with Node's own (memory, event loop, garbage collection) in it. */
export function createMetrics(program: string): Registry {
  const registry = new Registry()
  registry.setDefaultLabels({ program })
  collectDefaultMetrics({ register: registry })
  return registry
}
