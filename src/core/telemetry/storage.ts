import { Counter, Gauge, type Registry } from "prom-client"

/** Bytes that projects store, and their limits in MiB. */
export interface MeasuredStorage {
  quota: {
    limits: { installationMib: number }
    usage: { all: () => { bytes: number; endedBytes: number } }
  }
  /** Only the leader reports, so that sums over replicas are right. */
  isLeading: () => boolean
}

const MIB = 1024 * 1024

/** Limits that ended jobs are deleted for. */
const CAUSES = ["projectMib", "installationMib"] as const

/** Registers the metrics of stored objects. Returns a function that counts a job deleted for a limit. */
export function measureStorage(
  registry: Registry,
  { quota: { limits, usage }, isLeading }: MeasuredStorage,
): (cause: (typeof CAUSES)[number]) => void {
  new Gauge({
    name: "berth_stored_bytes",
    help: "JSON bytes of the jobs, cronjobs, keys and connections of all projects. History: the part of ended jobs.",
    labelNames: ["part"],
    registers: [registry],
    collect() {
      this.reset()
      if (!isLeading()) return
      const { bytes, endedBytes } = usage.all()
      this.set({ part: "live" }, bytes - endedBytes)
      this.set({ part: "history" }, endedBytes)
    },
  })
  new Gauge({
    name: "berth_stored_bytes_limit",
    help: "Limit of berth_stored_bytes. Above it Berth deletes the oldest ended jobs.",
    registers: [registry],
    collect() {
      this.set(limits.installationMib * MIB)
    },
  })
  const pruned = new Counter({
    name: "berth_pruned_jobs_total",
    help: "Ended jobs that Berth deleted because a limit of stored bytes was reached, by limit.",
    labelNames: ["limit"],
    registers: [registry],
  })
  for (const limit of CAUSES) pruned.inc({ limit }, 0)
  return (limit) => pruned.inc({ limit })
}
