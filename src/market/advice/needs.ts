import { DEFAULT_RESOURCES } from "../../core/apis/field-limits.ts"
import type { JobSpec, Resources } from "../../core/apis/job.ts"
import { containerPart } from "../../core/apis/memory.ts"
import { formatCpu, parseCpu, parseGib } from "../../core/apis/quantity.ts"

/** Use of one succeeded run. Absent: unknown. */
export interface MeasuredRun {
  /** End, milliseconds since 1970. */
  endedAt: number
  /** Time from its first start to its end, seconds. */
  seconds: number
  /** VCPUs in use in the minute with the most. */
  cpuPeak: number
  /** VCPUs of its last machine. */
  machineCpu?: number | undefined
  memoryPeakMib: number
  diskPeakGib?: number | undefined
  /** GPU memory over all cards. */
  vramPeakMib?: number | undefined
}

/** Largest use of all runs. Absent: unknown in one of them. */
export interface Peaks {
  cpu: number
  memoryGib: number
  diskGib: number | undefined
  vramGib: number | undefined
}

/** Number of runs from which there is advice. */
export const LEAST_RUNS = 3

/** Room above the peak. */
const HEADROOM = 1.25

/** Smallest disk that a job may ask for, GiB. Every cloud's own default is as large. */
const SMALLEST_DISK_GIB = 10

/** Returns the largest use of all runs. */
export function peaksOf(runs: readonly MeasuredRun[]): Peaks {
  const most = (of: (run: MeasuredRun) => number | undefined) => {
    const known = runs.map(of).filter((value) => value !== undefined)
    return known.length === runs.length ? Math.max(...known) : undefined
  }
  const gib = (mib: number | undefined) => (mib === undefined ? undefined : mib / 1024)
  return {
    cpu: Math.max(...runs.map(({ cpuPeak }) => cpuPeak)),
    memoryGib: Math.max(...runs.map(({ memoryPeakMib }) => memoryPeakMib)) / 1024,
    diskGib: most(({ diskPeakGib }) => diskPeakGib),
    vramGib: gib(most(({ vramPeakMib }) => vramPeakMib)),
  }
}

/**
 * Returns the resources that runs need: a quarter more than their peaks. CPU and memory are always named, also where that
 * is more than the job asks for: by chance its machine may have had more. Undefined: it needs no less than it asks for.
 */
export function neededResources(
  { resources = {}, maxMemory }: JobSpec,
  runs: readonly MeasuredRun[],
): Resources | undefined {
  const peaks = peaksOf(runs)
  const cpu = neededCpu(runs)
  const memoryGib = roundedMemoryGib(peaks.memoryGib * HEADROOM)
  const gpu = neededGpu(resources.gpu, peaks)
  const disk = neededDisk(resources.disk, peaks)
  const needed = {
    cpu: formatCpu(cpu),
    memory: memoryText(memoryGib),
    ...(gpu !== undefined && { gpu }),
    ...(disk !== undefined && { disk }),
  }
  const [less, asked] = [amountsOf(needed), amountsOf(resources)]
  const isLess = RESOURCE_NAMES.some((name) => less[name] < asked[name])
  const isOverGrowth = maxMemory !== undefined && parseGib(maxMemory) < memoryGib
  return isLess && !isOverGrowth ? needed : undefined
}

/** Parts of a job's resources that advice changes. */
export const RESOURCE_NAMES = ["cpu", "memory", "gpu", "disk"] as const
export type ResourceName = (typeof RESOURCE_NAMES)[number]

/** Returns what resources mean: vCPUs, and GiB of the container's memory, of GPU memory and of disk. 0: any. */
export function amountsOf({ cpu, memory, gpu, disk }: Resources): Record<ResourceName, number> {
  return {
    cpu: parseCpu(cpu ?? DEFAULT_RESOURCES.cpu),
    memory: memory === undefined ? containerPart(parseGib(DEFAULT_RESOURCES.memory)) : parseGib(memory),
    gpu: gpu?.vram === undefined ? 0 : parseGib(gpu.vram),
    disk: disk === undefined ? 0 : parseGib(disk),
  }
}

/** Returns the vCPUs that runs need. A run that used all of its machine needs no more: its time does not change. */
function neededCpu(runs: readonly MeasuredRun[]): number {
  const needs = runs.map(({ cpuPeak, machineCpu = Number.POSITIVE_INFINITY }) =>
    Math.max(cpuPeak, Math.min(cpuPeak * HEADROOM, machineCpu)),
  )
  const most = Math.max(...needs)
  return most < 1 ? roundedUp(most, 0.1) : roundedUp(most, 0.5)
}

/** Rounds memory so that no size that a machine leaves for its container is missed: seven eighths, or half a GiB less. */
function roundedMemoryGib(gib: number): number {
  return gib < 2 ? roundedUp(gib, 0.125) : roundedUp(gib, 0.5)
}

function memoryText(gib: number): string {
  return gib < 2 ? `${gib * 1024}Mi` : `${gib}Gi`
}

/** Returns the next multiple of a step, at least one step. */
function roundedUp(value: number, step: number): number {
  const steps = Math.max(1, Math.ceil(value / step - 1e-9))
  return Math.round(steps * step * 1000) / 1000
}

/** Returns the GPUs. Only a wish for GPU memory changes, and never to more. */
function neededGpu(gpu: Resources["gpu"], { vramGib }: Peaks): Resources["gpu"] {
  if (gpu?.vram === undefined || gpu.count !== undefined || vramGib === undefined) return gpu
  const needed = roundedUp(vramGib * HEADROOM, 1)
  return needed < parseGib(gpu.vram) ? { ...gpu, vram: `${needed}Gi` } : gpu
}

/** Returns the disk. A job that names none needs one to be named if it uses more than the smallest. */
function neededDisk(disk: string | undefined, { diskGib: peak }: Peaks): string | undefined {
  if (peak === undefined) return disk
  const needed = Math.max(SMALLEST_DISK_GIB, roundedUp(peak * HEADROOM, 1))
  if (disk === undefined && needed <= SMALLEST_DISK_GIB) return undefined
  return `${needed}Gi`
}
