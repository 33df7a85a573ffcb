import type { BootDisk } from "../../core/apis/disk.ts"
import { nvidiaGpusOf } from "../../core/apis/offer.ts"
import { findFamily, type SoldMachine } from "../machines/family.ts"
import { AZURE } from "./machines.ts"

/**
 * Sizes that support Premium SSDs have an `s` after the number of vCPUs, or `S` before it in old names
 * (https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions).
 */
const PREMIUM = /^Standard_([A-Z]+S\d|[A-Z]+\d+(-\d+)?[a-z]*s[a-z]*(_|$))/

export function bootDisk(machine: SoldMachine): BootDisk {
  const family = findFamily(AZURE, machine)
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
