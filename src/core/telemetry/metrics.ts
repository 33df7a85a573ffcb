import { collectDefaultMetrics, Registry } from "prom-client"

export type { Registry } from "prom-client"

export function createMetrics(program: string): Registry {
  const registry = new Registry()
  registry.setDefaultLabels({ program })
  return registry
}

/** Adds Node.js' metrics of the process (memory, event loop, garbage collection), for the lifetime of the process. */
export function measureProcess(registry: Registry): void {
  collectDefaultMetrics({ register: registry })
}
