import type { BootDisk, OrderedPerformance } from "../../core/apis/disk.ts"
import { nvidiaGpusOf, type Offer } from "../../core/apis/offer.ts"
import { AWS } from "./aws.ts"
import { AZURE } from "./azure.ts"
import type { CloudMachines } from "./family.ts"
import { GCP } from "./gcp.ts"
import { familyOf } from "./machines.ts"

type SoldMachine = Pick<Offer, "instanceType" | "architecture" | "gpu">

/** Boot disks by cloud. The local cloud has none: its VMs share the host's disk. */
const BOOT_DISKS = { aws: awsBootDisk, gcp: gcpBootDisk, azure: azureBootDisk }

/** Returns the boot disk of a machine type; undefined if the cloud's VMs have none. Pure. */
export function bootDiskOf({ cloud, ...machine }: SoldMachine & Pick<Offer, "cloud">): BootDisk | undefined {
  return Object.hasOwn(BOOT_DISKS, cloud) ? BOOT_DISKS[cloud as keyof typeof BOOT_DISKS](machine) : undefined
}

export function awsBootDisk(machine: SoldMachine): BootDisk {
  const hasGpus = nvidiaGpusOf(machine) !== undefined
  const image = familyOf(AWS, machine)?.image ?? (hasGpus ? "gpu" : machine.architecture)
  return {
    leastGib: hasGpus ? AWS.diskGib.gpu : AWS.diskGib.cpu,
    imageGib: AWS.images[image].leastDiskGib,
    types: ["gp3", "gp2"],
    performance: performanceOf(AWS, machine),
  }
}

function performanceOf(
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

/** Machine series with Persistent Disk, but without `pd-ssd` (Compute Engine's page on machine families). */
const BALANCED_ONLY = /^h3-/

export function gcpBootDisk(machine: SoldMachine): BootDisk {
  const family = familyOf(GCP, machine)
  const image = family?.image ?? (nvidiaGpusOf(machine) === undefined ? machine.architecture : "gpu")
  const type = family?.diskType ?? "pd-balanced"
  const isFixed = type === "hyperdisk-balanced" || BALANCED_ONLY.test(machine.instanceType)
  return {
    leastGib: image === "gpu" ? GCP.diskGib.gpu : GCP.diskGib.cpu,
    imageGib: GCP.images[image].leastDiskGib,
    types: isFixed ? [type] : [type, "pd-ssd"],
    performance: type === "hyperdisk-balanced" ? performanceOf(GCP, machine) : {},
  }
}

/**
 * Sizes that support Premium SSDs have an `s` after the number of vCPUs, or `S` before it in old names
 * (https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions).
 */
const PREMIUM = /^Standard_([A-Z]+S\d|[A-Z]+\d+(-\d+)?[a-z]*s[a-z]*(_|$))/

export function azureBootDisk(machine: SoldMachine): BootDisk {
  const family = familyOf(AZURE, machine)
  const hasGpus = nvidiaGpusOf(machine) !== undefined
  const image = family?.image ?? (hasGpus ? "gpu" : machine.architecture)
  // Only the images with NVIDIA's driver need a disk of this size.
  const isGpuImage = image === "gpu" || image === "gpuV100"
  return {
    leastGib: isGpuImage ? AZURE.diskGib.gpu : AZURE.diskGib.cpu,
    imageGib: AZURE.images[image].leastDiskGib,
    types: azureTypes(machine),
    performance: {},
  }
}

function azureTypes({ instanceType }: SoldMachine): BootDisk["types"] {
  if (!PREMIUM.test(instanceType)) return ["StandardSSD_LRS", "Standard_LRS"]
  if (AZURE.fastDisk.types.test(instanceType)) return [AZURE.fastDisk.type, "StandardSSD_LRS", "Standard_LRS"]
  return ["StandardSSD_LRS", "Standard_LRS", "Premium_LRS"]
}
