import type { BootDisk } from "../../core/apis/disk.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { parseGib } from "../../core/apis/quantity.ts"
import { DEFINITIONS, VM_CLOUDS, vmsOf } from "../definitions.ts"
import type { SoldMachine } from "./family.ts"

/** Returns the boot disk of a machine type; undefined if the cloud's VMs have none of their own. Pure. */
export function chooseBootDisk({ cloud, ...machine }: SoldMachine & Pick<Offer, "cloud">): BootDisk | undefined {
  return vmsOf(cloud)?.bootDisk(machine)
}

/** The local cloud has none: its VMs share the host's disk. */
const LARGEST_GIB: ReadonlyMap<string, number> = new Map(
  VM_CLOUDS.map((cloud) => [cloud, parseGib(DEFINITIONS[cloud].vms.settings.largest)]),
)

/** Returns the size of the largest disk from which a cloud's VM boots, GiB; infinite if the cloud sets no limit. */
export function largestDiskGib(cloud: string): number {
  return LARGEST_GIB.get(cloud) ?? Number.POSITIVE_INFINITY
}
