import Type from "typebox"
import { COMPONENT } from "../apis/schema.ts"
import type { Usage } from "../apis/usage.ts"

/** Use of a run, in REST. */
export interface UsageRecord {
  seconds: number
  cpu_mean: number
  cpu_peak: number
  memory_peak_mib: number
  disk_peak_gib: number | null
  received_gib: number | null
  sent_gib: number | null
  gpu_mean: number | null
  vram_peak_mib: number | null
}

const number = (description: string) => Type.Number({ description })

/** Schema of a number that is null if it was not measured. */
function measured(description: string) {
  return Type.Unsafe<number | null>({ type: ["number", "null"], description: `${description} Null: not measured.` })
}

/** Schema of what a run used; null: not known. */
export const UsageRecordSchema = Type.Unsafe<UsageRecord | null>({
  [COMPONENT]: "UsageRecord",
  ...Type.Object({
    seconds: Type.Integer({ description: "Time that was measured, seconds." }),
    cpu_mean: number("Mean number of vCPUs in use."),
    cpu_peak: number("Number of vCPUs in use in the minute with the most."),
    memory_peak_mib: number("Largest memory of the container without its file cache, MiB."),
    disk_peak_gib: measured("Largest use of the VM's disk, GiB."),
    received_gib: measured("Data that the container received, GiB."),
    sent_gib: measured("Data that the container sent, GiB."),
    gpu_mean: measured("Mean use of the GPUs, percent of all of them."),
    vram_peak_mib: measured("Largest GPU memory in use, summed over all cards, MiB."),
  }),
  type: ["object", "null"],
  description:
    "What the last run used, by samples of 5 seconds: peaks between them are unseen. Null before its end, and if the VM's agent measured nothing.",
})

/** Returns the record of what a run used. */
export function toUsageRecord(usage: Usage): UsageRecord {
  return {
    seconds: usage.seconds,
    cpu_mean: usage.cpuMean,
    cpu_peak: usage.cpuPeak,
    memory_peak_mib: usage.memoryPeakMib,
    disk_peak_gib: usage.diskPeakGib ?? null,
    received_gib: usage.receivedGib ?? null,
    sent_gib: usage.sentGib ?? null,
    gpu_mean: usage.gpuMean ?? null,
    vram_peak_mib: usage.vramPeakMib ?? null,
  }
}
