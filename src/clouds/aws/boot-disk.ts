import type { BootDisk } from "../../core/apis/disk.ts"
import { nvidiaGpusOf } from "../../core/apis/offer.ts"
import { findFamily, orderedPerformance, type SoldMachine } from "../machines/family.ts"
import { AWS } from "./machines.ts"

export function bootDisk(machine: SoldMachine): BootDisk {
  const hasGpus = nvidiaGpusOf(machine) !== undefined
  const image = findFamily(AWS, machine)?.image ?? (hasGpus ? "gpu" : machine.architecture)
  return {
    leastGib: hasGpus ? AWS.diskGib.gpu : AWS.diskGib.cpu,
    imageGib: AWS.images[image].leastDiskGib,
    types: ["gp3", "gp2"],
    performance: orderedPerformance(AWS, machine),
  }
}
