import { Counter, Gauge, Histogram, type Registry } from "prom-client"
import type { ControllerMetrics } from "../runtime/controller.ts"

/** Queues are waited in for milliseconds, unless something is wrong. */
const QUEUE_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300]
const WORK_BUCKETS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120]

/**
 * Tells of controllers' queues and reconciles, under the names of client-go and controller-runtime: dashboards for other
 * operators show it. Returns what gives a controller, by its name, whom it tells.
 */
export function measureControllers(registry: Registry): (controller: string) => ControllerMetrics {
  const queue = queueMetrics(registry)
  const reconciles = new Counter({
    name: "controller_runtime_reconcile_total",
    help: "Reconciles, by controller and how they ended: success, requeue_after, requeue, error, terminal_error.",
    labelNames: ["controller", "result"],
    registers: [registry],
  })
  const duration = new Histogram({
    name: "controller_runtime_reconcile_time_seconds",
    help: "How long reconciles took.",
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
    help: "How long a key waited until it was taken.",
    buckets: QUEUE_BUCKETS,
    ...shared,
  })
  const worked = new Histogram({
    name: "workqueue_work_duration_seconds",
    help: "How long a key was worked on.",
    buckets: WORK_BUCKETS,
    ...shared,
  })
  const retries = new Counter({ name: "workqueue_retries_total", help: "Keys to be tried again.", ...shared })
  return (name) => ({
    depth: (keys) => depth.set({ name }, keys),
    waited: (seconds) => waited.observe({ name }, seconds),
    worked: (seconds) => worked.observe({ name }, seconds),
    retried: () => retries.inc({ name }),
  })
}

/** Tells who leads: the sum over all replicas is 1, but for the moments of a change. */
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
