import { MIB } from "./engine.ts"
import type { Reading } from "./runtime.ts"

const NANOSECONDS = 1e9

/** Parts of the engine's statistics that are read. An engine leaves out what it doesn't know. */
export interface Stats {
  cpu_stats?: { cpu_usage?: { total_usage?: number; percpu_usage?: number[] }; online_cpus?: number }
  memory_stats?: { usage?: number; stats?: Record<string, number> }
  networks?: Record<string, { rx_bytes: number; tx_bytes: number }>
}

/**
 * Returns a reading of the engine's statistics
 * (https://docs.docker.com/reference/api/engine/version/v1.47/#tag/Container/operation/ContainerStats); undefined if the
 * container doesn't run.
 */
export function readingOf({ cpu_stats: cpu = {}, memory_stats: memory = {}, networks }: Stats): Reading | undefined {
  const { total_usage: used, percpu_usage: each } = cpu.cpu_usage ?? {}
  const cpus = cpu.online_cpus || each?.length
  // The engine answers with zeros and empty objects for a container that has ended.
  if (used === undefined || cpus === undefined || memory.usage === undefined) return undefined
  const devices = networks === undefined ? undefined : Object.values(networks)
  return {
    cpuSeconds: used / NANOSECONDS,
    cpus,
    memoryMib: (memory.usage - inactiveFile(memory.usage, memory.stats)) / MIB,
    ...(devices !== undefined && {
      receivedBytes: devices.reduce((sum, { rx_bytes }) => sum + rx_bytes, 0),
      sentBytes: devices.reduce((sum, { tx_bytes }) => sum + tx_bytes, 0),
    }),
  }
}

/** Returns the file cache that the kernel frees first, as `docker stats` subtracts it; the name is cgroup v1's or v2's. */
function inactiveFile(usage: number, stats: Record<string, number> = {}): number {
  const bytes = stats["total_inactive_file"] ?? stats["inactive_file"] ?? 0
  return bytes < usage ? bytes : 0
}
