import type { BootDisk, OrderedPerformance } from "../../core/apis/disk.ts"
import { type Architecture, nvidiaGpusOf, type Offer } from "../../core/apis/offer.ts"

/** Machine type that a cloud sells. */
export type SoldMachine = Pick<Offer, "instanceType" | "architecture" | "gpu">

/** GPUs of a family, and the driver that its image has for them. */
export interface FamilyGpu {
  /** Models in the catalogue, such as T4. */
  models: readonly string[]
  /** Kind of NVIDIA's kernel module. GPUs before Turing need the proprietary one, and fractions the GRID one. */
  module: "open" | "proprietary" | "grid"
  /** True if the machines have a fraction of a card. */
  fraction?: true
}

/** Facts about a family of machine types: what its launch request needs. The first matching family of a cloud holds. */
export interface Family {
  /** Name for people. */
  name: string
  /** Machine types of the family. Attached GPUs are part of the type: `n1-standard-4_1xnvidia-tesla-t4`. */
  types: RegExp
  architecture: Architecture
  /** Key of the cloud's `images`. */
  image: string
  /** Type of the boot disk. */
  diskType: string
  /** Disk controller that the request must name; absent: the cloud's default. */
  diskController?: "NVMe"
  /** Security of the boot: `secureBoot`, `unsigned` for drivers without a signature, or absent: the cloud's default. */
  security?: "secureBoot" | "unsigned"
  /** True if the cloud can't move a running machine to another host. */
  pinned?: true
  gpu?: FamilyGpu
  /** Address of the page with these facts. */
  source: string
}

/** Machine image that VMs boot. */
export interface Image {
  /** Name in the launch request: a public parameter (AWS), an image family (Google Cloud) or a URN (Azure). */
  name: string
  /** Size of the image's own disk, GiB. No boot disk may be smaller. */
  leastDiskGib: number
  /** Source of NVIDIA's driver, if the image has one. */
  driver?: string
  source: string
}

/** Machine types that can't be launched. */
export interface Exclusion {
  types: RegExp
  /** Regions that the rule applies to; absent: all. */
  regions?: RegExp
  /** Provisioning that the rule applies to; absent: both. */
  provisioning?: Offer["provisioning"]
  /** GPUs of the machine types, if a user may look for them: models, and true if some types have a fraction of a card. */
  gpu?: { models: readonly string[]; fractions: boolean }
  /** Reason, for people. */
  reason: string
  /** Address of the page that says so. */
  source: string
}

/** Time that a VM may take from its creation until its agent registers: several times what is usual. */
export interface BootDeadline {
  seconds: number
  /** Address of a page with times that were measured. */
  source: string
}

/** Machine types whose vCPUs can't run at 100 % for any time. */
export interface Burstable {
  types: RegExp
  /** vCPUs that such a machine sustains for any time, all its vCPUs together. Jobs get it by this number. */
  cpu: number
  source: string
}

/** Returns the vCPUs that credits sustain. A credit is one vCPU at 100 % for one minute, on AWS as on Azure. */
export function cpuOfCredits(creditsPerHour: number): number {
  return Math.round((creditsPerHour / 60) * 1000) / 1000
}

/** Performance that a type of boot disk is ordered with. */
export interface DiskPerformance {
  /** Input and output operations per second. */
  iops: number
  /** Throughput, MiB/s. */
  mibps: number
  source: string
}

/**
 * Price of a GPU machine from which it gets a faster boot disk, USD per hour on demand. A GPU job's image of 25 GiB is
 * unpacked in 50 s at 500 MiB/s, and in 200 s at 125. On such a machine the 150 s cost more than 20 hours of the throughput,
 * which is $0.02 an hour.
 */
export const FAST_DISK_HOURLY_USD = 10

/** Faster boot disk of expensive machines. */
export interface FastDisk {
  types: RegExp
  /** Throughput of disks whose type has a `DiskPerformance`, MiB/s. */
  mibps?: number
  /** Default type of the disk. */
  type?: string
}

/** Eight cards, on every cloud: the driver attaches one after the other, each in three to four seconds. */
export const EIGHT_GPU_BOOT: BootDeadline = {
  seconds: 900,
  source: "https://github.com/tinfoilsh/cvmimage/pull/363",
}

/** Facts about the machines of one cloud. */
export interface CloudMachines<ImageKey extends string = string> {
  images: Readonly<Record<ImageKey, Image>>
  families: readonly (Family & { image: ImageKey })[]
  exclusions: readonly Exclusion[]
  /** Without GPUs, with up to seven, and with eight or more. */
  bootDeadlines: { cpu: BootDeadline; gpu: BootDeadline; eightGpus: BootDeadline }
  /** Machines that share their cores. The first match holds. */
  burstable: readonly Burstable[]
  /** Performance of boot disks, by type. Absent types have the performance of their size. */
  diskPerformance: Readonly<Record<string, DiskPerformance>>
  fastDisk: FastDisk
  /** Least size of the boot disk, GiB, without and with GPUs. */
  diskGib: { cpu: number; gpu: number }
  /** Returns the series of a machine type by its name, such as m7g. Attached cards are a series of their own. */
  seriesOf: (instanceType: string) => string
  /** Returns the quota that counts the vCPUs or cards of a machine type. Several series may share one. */
  quotaOf: (instanceType: string) => string
}

/** Returns the family of a machine type; undefined if the tables have none. */
export function findFamily<Images extends string>(
  { families }: CloudMachines<Images>,
  offer: SoldMachine,
): (Family & { image: Images }) | undefined {
  const family = families.find(({ types }) => types.test(offer.instanceType))
  // An installation's own offer may describe a machine otherwise. Then the offer holds.
  const hasGpus = nvidiaGpusOf(offer) !== undefined
  const agrees = family?.architecture === offer.architecture && (family.gpu !== undefined) === hasGpus
  return agrees ? family : undefined
}

/** Returns the performance that the boot disks of a machine type are ordered with, by type. */
export function orderedPerformance(
  { diskPerformance, fastDisk }: CloudMachines,
  { instanceType }: SoldMachine,
): BootDisk["performance"] {
  const fastMibps = fastDisk.types.test(instanceType) ? fastDisk.mibps : undefined
  const ordered = Object.entries(diskPerformance).map(([type, { iops, mibps }]): [string, OrderedPerformance] => [
    type,
    { iops, mibps: fastMibps ?? mibps },
  ])
  return Object.fromEntries(ordered)
}
