import type { DiskPrice } from "../definition.ts"

/**
 * Managed disks of East US, by the retail price API. They stand for all regions, because no public copy of the list has
 * the others. Of those that are known, Brazil South costs most: $17.92 for an E10 instead of $9.60. Operations on standard
 * disks are billed too, and aren't known beforehand.
 */
const EAST_US = { byPrice: [], published: "eastus", mostTimes: 17.92 / 9.6 } as const

export const DISK_PRICES = {
  StandardSSD_LRS: {
    ...EAST_US,
    sizes: [
      [4, 0.3],
      [8, 0.6],
      [16, 1.2],
      [32, 2.4],
      [64, 4.8],
      [128, 9.6],
      [256, 19.2],
      [512, 38.4],
      [1024, 76.8],
      [2048, 153.6],
      [4096, 307.2],
    ],
  },
  Standard_LRS: {
    ...EAST_US,
    sizes: [
      [32, 1.54],
      [64, 3.01],
      [128, 5.89],
      [256, 11.33],
      [512, 21.76],
      [1024, 40.96],
      [2048, 77.83],
      [4096, 143.36],
    ],
  },
  Premium_LRS: {
    ...EAST_US,
    sizes: [
      [4, 0.77],
      [8, 1.54],
      [16, 3.08],
      [32, 5.28],
      [64, 10.21],
      [128, 19.71],
      [256, 38.02],
      [512, 73.22],
      [1024, 135.17],
      [2048, 259.2],
      [4096, 495.43],
    ],
  },
} as const satisfies Record<string, DiskPrice>
