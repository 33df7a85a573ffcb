import { collectDefaultMetrics, Registry } from "prom-client"

export type { Registry } from "prom-client"

/** A registry of a program's metrics. */
export function createMetrics(program: string): Registry {
  const registry = new Registry()
  registry.setDefaultLabels({ program })
  return registry
}

/** Adds what Node.js tells of the process (memory, event loop, garbage collection), for as long as the process lives. */
export function measureProcess(registry: Registry): void {
  collectDefaultMetrics({ register: registry })
}
