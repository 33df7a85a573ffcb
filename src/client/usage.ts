import { type BerthClient, type JobRecord, readBody, type Schemas } from "./client.ts"
import { isMissing } from "./jobs.ts"

/** Usage of jobs, for command line and console. */

export type JobUsage = Schemas["JobUsage"]
export type UsagePoint = JobUsage["points"][number]

/**
 * Returns what a job uses; undefined if the API is older than this client, or the job was deleted.
 * @param last number of last points; undefined: all
 */
export async function readUsage(
  client: BerthClient,
  id: string,
  last?: number,
  signal?: AbortSignal,
): Promise<JobUsage | undefined> {
  const params = { path: { id }, query: last === undefined ? {} : { last } }
  try {
    return await readBody(client.api.GET("/jobs/{id}/usage", { params, ...(signal !== undefined && { signal }) }))
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

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
  const { cpu_mean, cpu_peak, memory_peak_mib, disk_peak_gib, gpu_mean, vram_peak_mib } = usage
  const of = (size: number | null | undefined) => (size == null ? "" : ` of ${shortNumber(size)}`)
  return [
    `${shortNumber(cpu_peak)}${of(machine?.cpu)} vCPUs at most, ${shortNumber(cpu_mean)} on average`,
    `${gibOf(memory_peak_mib)}${of(machine?.memory_gib)} GiB memory`,
    ...(gpu_mean === null ? [] : [`GPU ${shortNumber(gpu_mean)} %`]),
    ...(vram_peak_mib === null ? [] : [`${gibOf(vram_peak_mib)}${of(machine?.vram_gib)} GiB GPU memory`]),
    ...(disk_peak_gib === null ? [] : [`${shortNumber(disk_peak_gib)} GiB disk`]),
  ].join("; ")
}
