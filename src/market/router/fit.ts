import { largestDiskGib } from "../../clouds/machines/disk.ts"
import { containerMemoryGib } from "../../core/apis/memory.ts"
import type { Catalogue } from "./catalogue.ts"
import { isModel, type ModelName, parseModel } from "./gpu-models.ts"
import { memo } from "./memo.ts"
import type { GpuRequirement, Requirements } from "./requirements.ts"
import type { Machine, Region } from "./table.ts"

/** The criteria that an offer can fail, as bits, in the order in which people read them. */
export const BIT = {
  cloud: 1 << 0,
  region: 1 << 1,
  architecture: 1 << 2,
  gpu: 1 << 3,
  "gpu.count": 1 << 4,
  "gpu.vram": 1 << 5,
  cpu: 1 << 6,
  memory: 1 << 7,
  provisioning: 1 << 8,
  maxHourlyPriceUsd: 1 << 9,
  disk: 1 << 10,
} as const
export type Criterion = keyof typeof BIT
export const CRITERIA = Object.keys(BIT) as Criterion[]

/**
 * The requirements of a job that offers fail, as bits of their criteria; 0: they fit. A requirement is about the machine,
 * the place, the provisioning or the price. There are few machines and places, so each is checked once for all its rows.
 */
export interface Unmet {
  byMachine: Uint16Array
  byPlace: Uint16Array
  /** Of on-demand offers, and of spot offers. */
  bySpot: Uint16Array
  /** US dollars. */
  maxHourlyPriceUsd: number
}

export function findUnmet(requirements: Requirements, catalogue: Catalogue): Unmet {
  const { table } = catalogue
  const { regions, provisioning, maxHourlyPriceUsd = Number.POSITIVE_INFINITY } = requirements
  const isAllowed = table.regions.map((region) => isRegionAllowed(region, regions))
  return {
    byMachine: unmetByMachine(requirements, catalogue),
    byPlace: Uint16Array.from(table.places, ({ region }) => (isAllowed[region] ? 0 : BIT.region)),
    bySpot: Uint16Array.of(
      provisioning === "spot" ? BIT.provisioning : 0,
      provisioning === "onDemand" ? BIT.provisioning : 0,
    ),
    maxHourlyPriceUsd,
  }
}

const machineMemo = memo<Uint16Array>()

function unmetByMachine(requirements: Requirements, catalogue: Catalogue): Uint16Array {
  const { cpu, memoryGib, memoryOf, diskGib, clouds, architectures, gpu } = requirements
  const key = [cpu, memoryGib, memoryOf, diskGib, clouds, architectures, gpu?.model, gpu?.count, gpu?.vramGib]
  return machineMemo(catalogue, key, () => {
    const model = gpu?.model === undefined ? undefined : parseModel(gpu.model)
    return Uint16Array.from(
      catalogue.table.machines,
      (machine, index) =>
        unmetBySize(machine, requirements) | unmetByGpu(machine, catalogue.modelBases[index], gpu, model),
    )
  })
}

const cloudMemo = memo<Uint8Array>()

/** Returns 1 for each machine of one of these clouds, else 0. */
export function selectMachines(clouds: ReadonlySet<string>, catalogue: Catalogue): Uint8Array {
  return cloudMemo(catalogue, [...clouds], () =>
    Uint8Array.from(catalogue.table.machines, ({ cloud }) => (clouds.has(cloud) ? 1 : 0)),
  )
}

/** Returns the unmet criteria of each row. */
export function unmetByRow(requirements: Requirements, catalogue: Catalogue): Uint16Array {
  const { machine, place, spot, hourlyPriceUsd } = catalogue.table
  const { byMachine, byPlace, bySpot, maxHourlyPriceUsd } = findUnmet(requirements, catalogue)
  const unmet = new Uint16Array(catalogue.size)
  for (let row = 0; row < unmet.length; row++) {
    unmet[row] =
      (byMachine[machine[row] as number] as number) |
      (byPlace[place[row] as number] as number) |
      (bySpot[spot[row] as number] as number) |
      ((hourlyPriceUsd[row] as number) > maxHourlyPriceUsd ? BIT.maxHourlyPriceUsd : 0)
  }
  return unmet
}

/** A restricted region is for jobs that name it: not even its groups allow it. */
function isRegionAllowed({ name, groups, restricted }: Region, wanted: readonly string[]): boolean {
  if (wanted.includes(name)) return true
  return restricted !== true && (wanted.length === 0 || groups.some((group) => wanted.includes(group)))
}

function unmetBySize(machine: Machine, requirements: Requirements): number {
  const { cpu, memoryGib, memoryOf, diskGib = 0, clouds, architectures } = requirements
  const hasGib = memoryOf === "machine" ? machine.memoryGib : containerMemoryGib(machine)
  return (
    (clouds.length === 0 || clouds.includes(machine.cloud) ? 0 : BIT.cloud) |
    (architectures.length === 0 || architectures.includes(machine.architecture) ? 0 : BIT.architecture) |
    (machine.cpu < cpu ? BIT.cpu : 0) |
    (hasGib < memoryGib ? BIT.memory : 0) |
    (largestDiskGib(machine.cloud) < diskGib ? BIT.disk : 0)
  )
}

/** @param base the base of the machine's NVIDIA model; undefined without one: GPUs of other makers do not count */
function unmetByGpu(
  machine: Machine,
  base: string | undefined,
  wanted: GpuRequirement | undefined,
  model: ModelName | undefined,
): number {
  if (wanted === undefined) return 0
  const { count = 0, vramGib = 0 } = (base !== undefined && machine.gpu) || {}
  const isWanted = base !== undefined && (model === undefined || isModel(model, base, vramGib))
  return (
    (isWanted ? 0 : BIT.gpu) |
    (count < (wanted.count ?? 0) ? BIT["gpu.count"] : 0) |
    (count * vramGib < (wanted.vramGib ?? 0) ? BIT["gpu.vram"] : 0)
  )
}
