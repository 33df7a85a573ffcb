import type { VmDisk } from "../apis/disk.ts"

/** Sizes of a kind of machine that its boot disk depends on, GiB. */
export interface DiskNeeds {
  /** Default size. */
  least: number
  /** Size of the machine image's own disk. */
  image: number
}

/**
 * Returns the size of a VM's boot disk, GiB. A size that the connection sets replaces the default. No disk is smaller
 * than the job requires, or than the machine image: the clouds reject that. Pure.
 */
export function diskGiB({ least, image }: DiskNeeds, { sizeGib, requiredGib = 0 }: VmDisk = {}): number {
  return Math.max(sizeGib ?? least, requiredGib, image)
}
