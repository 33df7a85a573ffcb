import { OWN_CLOUD } from "./machine.ts"
import type { Offer } from "./offer.ts"

/** Maximum memory that a VM keeps for its system, the engine and the agent, GiB. Smaller VMs keep an eighth. */
const MOST_RESERVED_GIB = 0.5

/** Returns the part of a VM's memory that is for its container. */
export function containerPart(vmMemoryGib: number): number {
  return vmMemoryGib - Math.min(MOST_RESERVED_GIB, vmMemoryGib / 8)
}

/** Returns the memory that a container gets on a machine, GiB. Local VMs are parts of a host, and keep nothing. */
export function containerMemoryGib({ cloud, memoryGib }: Pick<Offer, "cloud" | "memoryGib">): number {
  return cloud === "local" ? memoryGib : containerPart(memoryGib)
}

/** Returns the memory that a container gets on a machine, MiB: at least 1. */
export function containerMemoryMib(offer: Pick<Offer, "cloud" | "memoryGib">): number {
  return Math.max(1, Math.floor(containerMemoryGib(offer) * 1024))
}

/**
 * Returns true if others use the host of this machine too: a local VM is a process on a host with all others, and people
 * have their own containers on a machine that they own.
 */
export function isOnSharedHost({ cloud }: Pick<Offer, "cloud">): boolean {
  return cloud === "local" || cloud === OWN_CLOUD
}
