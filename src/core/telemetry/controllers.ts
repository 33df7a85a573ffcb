import { Counter, Gauge, Histogram, type Registry } from "prom-client"
import type { ControllerMetrics } from "../runtime/controller.ts"

/** Buckets of the time in queues, which is milliseconds unless something is wrong. */
const QUEUE_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300]
const WORK_BUCKETS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120]

/**
 * Adds the metrics of controllers' queues and reconciles. Their names are those of client-go and controller-runtime, so
 * that dashboards for other operators work. Returns a function that returns a controller's metrics by its name.
 */
export function measureControllers(registry: Registry): (controller: string) => ControllerMetrics {
  const queue = queueMetrics(registry)
  const reconciles = new Counter({
    name: "controller_runtime_reconcile_total",
    help: "Reconciles, by controller and outcome: success, requeue_after, requeue, error, terminal_error.",
    labelNames: ["controller", "result"],
    registers: [registry],
  })
  const duration = new Histogram({
    name: "controller_runtime_reconcile_time_seconds",
    help: "Duration of reconciles.",
    labelNames: ["controller"],
    buckets: WORK_BUCKETS,
    registers: [registry],
  })
  return (controller) => ({
    ...queue(controller),
    reconciled: (result, seconds) => {
      reconciles.inc({ controller, result })
      duration.observe({ controller }, seconds)
    },
  })
}

function queueMetrics(registry: Registry): (name: string) => Omit<ControllerMetrics, "reconciled"> {
  const shared = { labelNames: ["name"] as const, registers: [registry] }
  const depth = new Gauge({ name: "workqueue_depth", help: "Keys that wait in a controller's queue.", ...shared })
  const waited = new Histogram({
    name: "workqueue_queue_duration_seconds",
    help: "Time that a key waited in the queue.",
    buckets: QUEUE_BUCKETS,
    ...shared,
  })
  const worked = new Histogram({
    name: "workqueue_work_duration_seconds",
    help: "Time that the processing of a key took.",
    buckets: WORK_BUCKETS,
    ...shared,
  })
  const retries = new Counter({ name: "workqueue_retries_total", help: "Retries of keys.", ...shared })
  return (name) => ({
    depth: (keys) => depth.set({ name }, keys),
    waited: (seconds) => waited.observe({ name }, seconds),
    worked: (seconds) => worked.observe({ name }, seconds),
    retried: () => retries.inc({ name }),
  })
}

/** Adds the metric of a copied cluster, in which the operator does nothing. */
export function measureCopy(registry: Registry, isCopy: () => boolean): void {
  new Gauge({
    name: "berth_cluster_is_copy",
    help: "1 while the gateway belongs to another cluster with the same installation: nothing is launched or ended here.",
    registers: [registry],
    collect() {
      this.set(Number(isCopy()))
    },
  })
}

/** Adds the metric of leadership. The sum over all replicas is 1, except for a moment during a change. */
export function measureLeadership(registry: Registry, name: string, isLeading: () => boolean): void {
  new Gauge({
    name: "leader_election_master_status",
    help: "1 in the replica that leads.",
    labelNames: ["name"],
    registers: [registry],
    collect() {
      this.set({ name }, Number(isLeading()))
    },
  })
}
