import { Counter, Gauge, Histogram, type Registry } from "prom-client"
import { onAborted } from "../apis/abort.ts"
import type { KubeClient } from "../kube/client.ts"
import { FLOW_KINDS } from "../kube/flow.ts"
import type { Reflector, ReflectorCounts } from "../kube/reflector.ts"

/**
 * Counts and measures a client's requests to the API server. The names are client-go's, so that dashboards for
 * Kubernetes' own programs work. `code` is `<error>` for a request without an answer.
 * @param end ends the measurement, as a client may exist for longer
 */
export function measureClient(
  registry: Registry,
  client: Pick<KubeClient, "onExchange" | "onWait" | "waiting">,
  end: AbortSignal,
): void {
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
  const waits = new Histogram({
    name: "rest_client_rate_limiter_duration_seconds",
    help: "Time for which a call waited for other calls to the API server, by the kind of work. Calls that did not wait don't count.",
    labelNames: ["kind"],
    buckets: [0.005, 0.025, 0.1, 0.25, 0.5, 1, 4, 15, 30],
    registers: [registry],
  })
  new Gauge({
    name: "berth_api_server_calls_waiting",
    help: "Calls that wait for other calls to the API server, by the kind of work.",
    labelNames: ["kind"],
    registers: [registry],
    collect() {
      for (const kind of FLOW_KINDS) this.set({ kind }, client.waiting(kind))
    },
  })
  const unsubscribeWaits = client.onWait(({ kind, seconds }) => waits.observe({ kind }, seconds))
  const unsubscribe = client.onExchange(({ method, code = "<error>", seconds }) => {
    requests.inc({ method, code })
    duration.observe({ verb: method }, seconds)
  })
  onAborted(end, () => {
    unsubscribe()
    unsubscribeWaits()
  })
}

/** Part of a reflector that is measured. A Reflector of any kind has it. */
export type MeasuredReflector = Pick<Reflector, "counts" | "synced" | "idleSeconds"> & {
  readonly resource: { readonly plural: string }
  readonly store: { readonly size: number }
}

/** Adds the metrics of caches: size, time since the last data from the server, and number of lists and watches. */
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
  gauge("reflector_synced", "1 after the cache has been filled once.", ({ synced }) => Number(synced))
  gauge(
    "reflector_silence_seconds",
    "Time since the last data from the API server, which sends a bookmark about once a minute. +Inf before the first list.",
    (reflector) => reflector.idleSeconds(),
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
  counter("reflector_lists_total", "Complete lists that were started.", "lists")
  counter(
    "reflector_watches_total",
    "Watches that were started; each but the first after another had ended.",
    "watches",
  )
  counter("reflector_failures_total", "Lists and watches that failed.", "failures")
}
