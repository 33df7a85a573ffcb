import { defined } from "../../core/apis/defined.ts"
import type { BootDisk, OrderedDisk } from "../../core/apis/disk.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { parseGib } from "../../core/apis/quantity.ts"
import type { VmSettings } from "../../core/apis/vm-settings.ts"
import type { Machine, Region } from "./table.ts"

/** Prices of what a VM needs besides its machine. */
export interface PartPrices {
  /** Returns the boot disk of a machine; undefined if the cloud's VMs have none. */
  bootDiskOf(machine: Machine): BootDisk | undefined
  /**
   * Returns the price of a disk, USD per hour. Where none is published, the price of near regions stands for it. Strict
   * limits then count the most that it can be.
   */
  diskUsd(region: Region, disk: OrderedDisk, isStrict: boolean): number
  /** Returns true if the price of a disk is known in this region, published or as an own price. */
  isDiskPriceKnown(region: Region, type: string): boolean
  /** Returns the price of a VM's public IPv4 address, USD per hour. */
  addressUsd(region: Region, provisioning: Offer["provisioning"]): number
}

/** Settings of a connection that the price of its VMs depends on. */
export interface VmShape {
  diskGib?: number
  diskType?: string
  publicAddress: boolean
}

/** Returns the shape of the VMs that a connection with these settings starts. */
export function vmShape({ disk, publicAddress = true }: VmSettings = {}): VmShape {
  return {
    ...(disk?.size !== undefined && { diskGib: parseGib(disk.size) }),
    ...defined({ diskType: disk?.type }),
    publicAddress,
  }
}

/** Returns the identity of a shape. */
export function shapeKey({ diskGib, diskType, publicAddress }: VmShape): string {
  return `${diskGib ?? ""} ${diskType ?? ""} ${publicAddress}`
}
