import Type, { type Static } from "typebox"
import { defined } from "./defined.ts"
import { ALLOWED, Int, PATTERN_AS_RULE, Text } from "./schema.ts"

/** Maximum sizes, and the patterns of whole Gi or Ti from 10Gi to them. 10Gi is the minimum on Google Cloud. */
const SIZES = {
  "4095Gi": "^((1[0-9]|[2-9][0-9]|[1-9][0-9]{2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-5])Gi|[1-3]Ti)$",
  "16Ti":
    "^((1[0-9]|[2-9][0-9]|[1-9][0-9]{2,3}|1[0-5][0-9]{3}|16[0-2][0-9]{2}|163[0-7][0-9]|1638[0-4])Gi|([1-9]|1[0-6])Ti)$",
  "64Ti":
    "^((1[0-9]|[2-9][0-9]|[1-9][0-9]{2,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-6])Gi|([1-9]|[1-5][0-9]|6[0-4])Ti)$",
} as const
export type MaximumSize = keyof typeof SIZES

/** Returns the pattern of disk sizes up to a maximum, and a description of them. */
export function diskSizes(maximum: MaximumSize): { pattern: string; allowed: string } {
  return { pattern: SIZES[maximum], allowed: `a whole number of Gi or Ti from 10Gi to ${maximum}, such as 200Gi` }
}

/** Declares the size of a VM's disk as a Kubernetes quantity. */
export function DiskSize(description: string, maximum: MaximumSize = "64Ti") {
  const { pattern, allowed } = diskSizes(maximum)
  return Type.String({
    maxLength: 8,
    pattern,
    description,
    [ALLOWED]: allowed,
    [PATTERN_AS_RULE]: true,
  })
}

/** Disk of a VM, as its Launch records it. Absent fields: the cloud's default. */
export const VmDiskSchema = Type.Object(
  {
    sizeGib: Type.Optional(Int({ minimum: 1, maximum: 65_536, description: "Size that the connection sets, GiB." })),
    requiredGib: Type.Optional(
      Int({ minimum: 1, maximum: 65_536, description: "Minimum size that the job or its image requires, GiB." }),
    ),
    type: Type.Optional(Text(64, "The cloud's name of the disk type.")),
  },
  { description: "Disk of the VM: the settings of the connection and the job when this Launch was created." },
)
export type VmDisk = Static<typeof VmDiskSchema>

/** Performance of a disk that is ordered, and billed, apart from its size. */
export interface OrderedPerformance {
  /** Input and output operations per second. */
  iops: number
  /** Throughput, MiB/s. */
  mibps: number
}

/** Disk from which the VMs of a machine type boot, whatever the connection sets. */
export interface BootDisk {
  /** Default size, GiB. */
  leastGib: number
  /** Size of the machine image's own disk, GiB. */
  imageGib: number
  /** Types of disks from which it boots, in the cloud's names. The first is the default. */
  types: readonly [string, ...string[]]
  /** Performance by type. Absent types have the performance of their size. */
  performance: Readonly<Record<string, OrderedPerformance>>
}

/** Disk that a cloud is asked for. */
export interface OrderedDisk {
  type: string
  sizeGib: number
  performance?: OrderedPerformance
}

/**
 * Returns the boot disk of a VM. A size that the connection sets replaces the default. No disk is smaller than the job
 * requires, or than the machine image: the clouds reject that. A type from which the machine can't boot is replaced by
 * the default. Pure.
 */
export function orderedDisk({ leastGib, imageGib, types, performance }: BootDisk, disk: VmDisk = {}): OrderedDisk {
  const { sizeGib = leastGib, requiredGib = 0, type: wanted = types[0] } = disk
  const type = types.includes(wanted) ? wanted : types[0]
  const ordered = performance[type]
  return {
    type,
    sizeGib: Math.max(sizeGib, requiredGib, imageGib),
    ...defined({ performance: ordered }),
  }
}
