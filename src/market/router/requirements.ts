import { defined } from "../../core/apis/defined.ts"
import { DEFAULT_RESOURCES } from "../../core/apis/field-limits.ts"
import type { JobSpec, Provisioning } from "../../core/apis/job.ts"
import type { Architecture } from "../../core/apis/offer.ts"
import { parseCpu, parseGib } from "../../core/apis/quantity.ts"

/** GPUs that a machine must have: NVIDIA cards, `vramGib` over all of them. */
export interface GpuRequirement {
  model?: string
  count?: number
  vramGib?: number
}

/** Requirements of a job for its machine, in the units of offers. Empty lists mean any. */
export interface Requirements {
  cpu: number
  /** Memory of the container, or of the machine: see `memoryOf`. */
  memoryGib: number
  /** `machine`: the cloud sells this memory, and the container gets a part. For jobs that name none. Default: container. */
  memoryOf?: "container" | "machine"
  /** Absent: any size. */
  diskGib?: number
  gpu?: GpuRequirement
  clouds: readonly string[]
  /** The clouds' own names of regions, or groups of regions such as macro-regions. */
  regions: readonly string[]
  /** Architectures of the image. */
  architectures: readonly Architecture[]
  provisioning: Provisioning
  maxHourlyPriceUsd?: number
}

/**
 * The requirements of a job, with the contract's defaults.
 * @param architectures those that the job's image offers; none: any
 * @throws RangeError for a quantity that no validated object has
 */
export function toRequirements(spec: JobSpec, architectures: readonly Architecture[] = []): Requirements {
  const { cpu, memory, gpu, disk } = spec.resources ?? {}
  return {
    cpu: parseCpu(cpu ?? DEFAULT_RESOURCES.cpu),
    memoryGib: parseGib(memory ?? DEFAULT_RESOURCES.memory),
    ...(memory === undefined && { memoryOf: "machine" as const }),
    ...(disk !== undefined && { diskGib: parseGib(disk) }),
    ...(gpu !== undefined && { gpu: gpuRequirement(gpu) }),
    clouds: spec.cloud ?? [],
    regions: spec.region ?? [],
    architectures,
    provisioning: spec.provisioning ?? "onDemand",
    ...defined({ maxHourlyPriceUsd: spec.maxHourlyPriceUsd }),
  }
}

/** The contract's GPU rules: a model alone means one card, a model with vram as many cards as that takes. */
function gpuRequirement(gpu: NonNullable<NonNullable<JobSpec["resources"]>["gpu"]>): GpuRequirement {
  const { model, count, vram } = gpu
  const least = count ?? (model !== undefined && vram === undefined ? 1 : undefined)
  return {
    ...defined({ model, count: least }),
    ...(vram !== undefined && { vramGib: parseGib(vram) }),
  }
}
