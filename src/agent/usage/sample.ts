import type { Reading } from "../runtimes/runtime.ts"

const MIB = 1024 * 1024

/** Use of the GPUs within a sample. A part that is unknown is absent, and never 0. */
export interface GpuUse {
  /** Mean over time and all cards, percent. */
  mean?: number
  /** Highest reading of any card, percent. */
  highest?: number
  /** Largest memory in use, summed over all cards, MiB. */
  vramMib?: number
}

/** Use of a container between two readings. */
export interface Sample {
  /** Length, seconds. */
  seconds: number
  /** VCPUs in use, mean. */
  cpu: number
  /** VCPUs that the container may use. */
  cpus: number
  memoryMib: number
  diskGib?: number
  /** MiB in the whole sample. */
  receivedMib?: number
  sentMib?: number
  gpu?: GpuUse
}

/** A reading at a time of the monotonic clock, seconds. */
export interface TimedReading extends Reading {
  at: number
}

/** Returns what was used between two readings of one container; undefined if its counters went backwards. */
export function sampleBetween(earlier: TimedReading, later: TimedReading): Sample | undefined {
  const seconds = later.at - earlier.at
  const cpuSeconds = later.cpuSeconds - earlier.cpuSeconds
  if (seconds <= 0 || cpuSeconds < 0) return undefined
  const { cpus, memoryMib, diskGib } = later
  const received = moved(earlier.receivedBytes, later.receivedBytes)
  const sent = moved(earlier.sentBytes, later.sentBytes)
  return {
    ...{ seconds, cpu: cpuSeconds / seconds, cpus, memoryMib },
    ...(diskGib !== undefined && { diskGib }),
    ...(received !== undefined && { receivedMib: received }),
    ...(sent !== undefined && { sentMib: sent }),
  }
}

/** Returns MiB. */
function moved(earlier: number | undefined, later: number | undefined): number | undefined {
  if (earlier === undefined || later === undefined || later < earlier) return undefined
  return (later - earlier) / MIB
}
