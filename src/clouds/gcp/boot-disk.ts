import type { BootDisk } from "../../core/apis/disk.ts"
import { nvidiaGpusOf } from "../../core/apis/offer.ts"
import { findFamily, orderedPerformance, type SoldMachine } from "../machines/family.ts"
import { GCP } from "./machines.ts"

/** Machine series with Persistent Disk, but without `pd-ssd` (Compute Engine's page on machine families). */
const BALANCED_ONLY = /^h3-/

export function bootDisk(machine: SoldMachine): BootDisk {
  const family = findFamily(GCP, machine)
  const image = family?.image ?? (nvidiaGpusOf(machine) === undefined ? machine.architecture : "gpu")
  const type = family?.diskType ?? "pd-balanced"
  const isFixed = type === "hyperdisk-balanced" || BALANCED_ONLY.test(machine.instanceType)
  return {
    leastGib: image === "gpu" ? GCP.diskGib.gpu : GCP.diskGib.cpu,
    imageGib: GCP.images[image].leastDiskGib,
    types: isFixed ? [type] : [type, "pd-ssd"],
    performance: type === "hyperdisk-balanced" ? orderedPerformance(GCP, machine) : {},
  }
}
