import { Counter, Gauge, Histogram, type Registry } from "prom-client"
import type { KubeClient } from "../kube/client.ts"
import type { Reflector, ReflectorCounts } from "../kube/reflector.ts"

/**
 * Counts and times what a client asks of the API server, under client-go's names: dashboards for Kubernetes' own
 * programs show it. `code` is `<error>` where no answer came.
 * @param end a client may outlive whoever measures it
 */
export function measureClient(registry: Registry, client: Pick<KubeClient, "onExchange">, end: AbortSignal): void {
  const requests = new Counter({
    name: "rest_client_requests_total",
    help: "Requests to the Kubernetes API server, by HTTP method and status.",
    labelNames: ["method", "code"],
    registers: [registry],
  })
  const duration = new Histogram({
    name: "rest_client_request_duration_seconds",
    help: "Time until the API server began to answer, by HTTP method.",
    labelNames: ["verb"],
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30],
    registers: [registry],
  })
  const unsubscribe = client.onExchange(({ method, code = "<error>", seconds }) => {
    requests.inc({ method, code })
    duration.observe({ verb: method }, seconds)
  })
  end.addEventListener("abort", unsubscribe, { once: true })
}

/** The part of a reflector that is measured; a Reflector of any kind is one. */
export type MeasuredReflector = Pick<Reflector, "counts" | "synced" | "silentSeconds"> & {
  readonly resource: { readonly plural: string }
  readonly store: { readonly size: number }
}

/** Tells of caches: how large they are, how long they have heard nothing, and how often they began to watch anew. */
export function measureCaches(registry: Registry, reflectors: readonly MeasuredReflector[]): void {
  const gauge = (name: string, help: string, amountOf: (reflector: MeasuredReflector) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ["resource"],
      registers: [registry],
      collect() {
        for (const reflector of reflectors) this.set({ resource: reflector.resource.plural }, amountOf(reflector))
      },
    })
  gauge("reflector_objects", "Objects in the cache.", ({ store }) => store.size)
  gauge("reflector_synced", "1 when the cache has once shown everything.", ({ synced }) => Number(synced))
  gauge(
    "reflector_silence_seconds",
    "Time since the API server was heard last; it sends a bookmark about once a minute. +Inf before the first list.",
    (reflector) => reflector.silentSeconds(),
  )
  const counter = (name: string, help: string, counted: keyof ReflectorCounts) =>
    new Counter({
      name,
      help,
      labelNames: ["resource"],
      registers: [registry],
      collect() {
        this.reset()
        for (const { resource, counts } of reflectors) this.inc({ resource: resource.plural }, counts[counted])
      },
    })
  counter("reflector_lists_total", "Complete lists that were begun.", "lists")
  counter("reflector_watches_total", "Watches that were begun; each but the first where another had ended.", "watches")
  counter("reflector_failures_total", "Lists and watches that failed.", "failures")
}
