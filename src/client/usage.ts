import type { JobRecord, Schemas } from "./client.ts"

/** Usage of jobs, for command line and console. */

export type JobUsage = Schemas["JobUsage"]
export type UsagePoint = JobUsage["points"][number]

/** Returns a number with at most one digit behind the point; below 1 with two. */
export function shortNumber(value: number): string {
  const factor = value < 1 ? 100 : 10
  return String(Math.round(value * factor) / factor)
}

/** Returns GiB of MiB as text. */
export function gibOf(mib: number): string {
  return shortNumber(mib / 1024)
}

/** Returns how much of a size is used, such as `3.2/8`; the size is left out if it is not known. */
export function partOf(used: string, size: number | null | undefined): string {
  return size == null ? used : `${used}/${shortNumber(size)}`
}

/** Returns what a run used in a few words; undefined: nothing is known. */
export function usedText(
  usage: JobRecord["usage"] | undefined,
  machine: JobUsage["machine"] = null,
): string | undefined {
  if (usage == null) return undefined
  const of = (value: number, size: number | null | undefined) =>
    `${shortNumber(value)}${size == null ? "" : ` of ${shortNumber(size)}`}`
  const { cpu_mean, cpu_peak, memory_peak_mib, disk_peak_gib, gpu_mean, vram_peak_mib } = usage
  const parts = [
    `${of(cpu_peak, machine?.cpu)} vCPUs (mean ${shortNumber(cpu_mean)})`,
    `${of(memory_peak_mib / 1024, machine?.memory_gib)} GiB memory`,
    gpu_mean !== null && `GPU ${shortNumber(gpu_mean)} %`,
    vram_peak_mib !== null && `${of(vram_peak_mib / 1024, machine?.vram_gib)} GiB GPU memory`,
    disk_peak_gib !== null && `${shortNumber(disk_peak_gib)} GiB disk`,
  ]
  return parts.filter(Boolean).join(", ")
}
