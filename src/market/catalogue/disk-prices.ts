/**
 * Prices of boot disks and public addresses. docs/routing.md has the sources. An installation's own rules come before
 * them, and no request to a cloud refreshes them.
 */

/** Prices of a GiB, USD a month, each with its regions, separated by spaces. */
type GibPrices = readonly (readonly [gibUsd: number, regions: string])[]

/** Price of a disk type, USD a month. */
export interface DiskPrice {
  byPrice: GibPrices
  /**
   * Prices of a GiB in other regions, by macro-region: the highest known one there. A macro-region without one has the
   * highest of all. Absent: `sizes` has the prices.
   */
  elsewhere?: Readonly<Record<string, number>>
  /** Disks are billed as the next larger of these sizes, GiB, at this price each. Absent: each GiB is billed. */
  sizes?: readonly (readonly [gib: number, usd: number])[]
  /** Regions whose price is published, separated by spaces. Absent: those of `byPrice`. */
  published?: string
  /** Factor between a price that is not published and the most that strict limits count for it. Default 1. */
  mostTimes?: number
  /** Throughput that the price of the capacity includes, MiB/s. Absent: throughput has no price of its own. */
  includedMibps?: number
}

/**
 * A MiB/s above the included throughput costs as much as this part of a GiB: $0.04 and $0.08 for gp3 in us-east-1 and for
 * Hyperdisk Balanced in us-central1, $0.048 and $0.096 for gp3 in ap-northeast-1, $0.0476 and $0.0952 in eu-central-1.
 */
export const MIBPS_AS_GIB = 0.5

/**
 * EBS, by the price list and by public copies of it (July 2018 to September 2026). Where only the price of gp2 is
 * published, gp3 costs 20 % less, as everywhere else (https://aws.amazon.com/ebs/general-purpose/).
 */
const AWS = {
  gp3: {
    byPrice: [
      [0.08, "us-east-1 us-east-2 us-west-2"],
      [0.0836, "eu-north-1"],
      [0.088, "ca-central-1 eu-west-1"],
      [0.0912, "ap-northeast-2 ap-south-1"],
      [0.0924, "eu-south-1"],
      [0.0928, "eu-west-2 eu-west-3"],
      [0.0952, "eu-central-1"],
      [0.096, "ap-northeast-1 ap-northeast-3 ap-southeast-1 ap-southeast-2 us-west-1"],
      [0.0968, "me-south-1"],
      [0.1047, "af-south-1"],
      [0.1056, "ap-east-1"],
      [0.152, "sa-east-1"],
    ],
    elsewhere: {
      us: 0.096,
      ca: 0.088,
      sa: 0.152,
      eu: 0.0952,
      asia: 0.1056,
      oceania: 0.096,
      me: 0.0968,
      af: 0.1047,
    },
    includedMibps: 125,
  },
  gp2: {
    byPrice: [
      [0.1, "us-east-1 us-east-2 us-west-2"],
      [0.1045, "eu-north-1"],
      [0.11, "ca-central-1 eu-west-1"],
      [0.114, "ap-northeast-2 ap-south-1"],
      [0.1155, "eu-south-1"],
      [0.116, "eu-west-2 eu-west-3"],
      [0.119, "eu-central-1"],
      [0.12, "ap-northeast-1 ap-northeast-3 ap-southeast-1 ap-southeast-2 us-west-1"],
      [0.121, "me-south-1"],
      [0.1309, "af-south-1"],
      [0.132, "ap-east-1"],
      [0.19, "sa-east-1"],
    ],
    elsewhere: { us: 0.12, ca: 0.11, sa: 0.19, eu: 0.119, asia: 0.132, oceania: 0.12, me: 0.121, af: 0.1309 },
  },
} as const

/** Balanced Persistent Disk, by the Cloud Billing Catalog (google-cloud-pricing-cost-calculator, 2026-07-30). */
const BALANCED = {
  byPrice: [
    [0.1, "asia-east1 europe-north2 europe-west1 us-central1 us-east1 us-east5 us-west1"],
    [0.105, "asia-southeast3"],
    [0.109, "northamerica-south1"],
    [0.109788, "africa-south1"],
    [
      0.11,
      "asia-east2 asia-southeast1 europe-north1 europe-west4 me-west1 northamerica-northeast1 northamerica-northeast2 us-east4 us-west4",
    ],
    [0.116, "europe-west8 europe-west9"],
    [
      0.12,
      "asia-south1 asia-south2 europe-southwest1 europe-west12 europe-west2 europe-west3 us-south1 us-west2 us-west3",
    ],
    [0.1215, "me-central1"],
    [0.13, "asia-northeast1 asia-northeast2 asia-northeast3 asia-southeast2 europe-central2 europe-west6"],
    [0.135, "australia-southeast1 australia-southeast2"],
    [0.143, "southamerica-west1"],
    [0.15, "southamerica-east1"],
    [0.154, "europe-west10"],
    [0.16, "me-central2"],
  ],
  elsewhere: {
    us: 0.12,
    ca: 0.11,
    sa: 0.15,
    eu: 0.154,
    asia: 0.13,
    oceania: 0.135,
    me: 0.16,
    af: 0.109788,
  },
} as const

/**
 * Part of the price of a balanced disk that the capacity of Hyperdisk Balanced costs: $0.08 and $0.10 in us-central1
 * (https://cloud.google.com/compute/disks-image-pricing). No public copy of the list has its other regions.
 */
const HYPERDISK = 0.8

const hyperdiskUsd = (usd: number) => Math.round(usd * HYPERDISK * 1e6) / 1e6

const GCP = {
  "pd-balanced": BALANCED,
  "pd-ssd": {
    byPrice: [
      [0.17, "asia-east1 europe-north2 europe-west1 us-central1 us-east1 us-east5 us-west1"],
      [0.1785, "asia-southeast3"],
      [0.1853, "northamerica-south1"],
      [0.1866395, "africa-south1"],
      [
        0.187,
        "asia-east2 asia-southeast1 europe-north1 europe-west4 me-west1 northamerica-northeast1 northamerica-northeast2 us-east4 us-west4",
      ],
      [0.1972, "europe-west8 europe-west9"],
      [0.2006, "europe-southwest1 us-south1"],
      [0.204, "asia-south1 asia-south2 europe-central2 europe-west12 europe-west2 europe-west3 us-west2 us-west3"],
      [0.20655, "me-central1"],
      [0.221, "asia-northeast1 asia-northeast2 asia-northeast3 asia-southeast2 europe-west6"],
      [0.23, "australia-southeast1 australia-southeast2"],
      [0.2431, "southamerica-west1"],
      [0.255, "southamerica-east1"],
      [0.2618, "europe-west10"],
      [0.272, "me-central2"],
    ],
    elsewhere: {
      us: 0.204,
      ca: 0.187,
      sa: 0.255,
      eu: 0.2618,
      asia: 0.221,
      oceania: 0.23,
      me: 0.272,
      af: 0.1866395,
    },
  },
  "hyperdisk-balanced": {
    byPrice: BALANCED.byPrice.map(([usd, regions]) => [hyperdiskUsd(usd), regions] as const),
    elsewhere: Object.fromEntries(Object.entries(BALANCED.elsewhere).map(([of, usd]) => [of, hyperdiskUsd(usd)])),
    published: "us-central1",
    mostTimes: 1 / HYPERDISK,
    includedMibps: 140,
  },
} as const

/**
 * Managed disks of East US, by the retail price API. They stand for all regions, because no public copy of the list has
 * the others. Of those that are known, Brazil South costs most: $17.92 for an E10 instead of $9.60. Operations on standard
 * disks are billed too, and aren't known beforehand.
 */
const EAST_US = { byPrice: [], published: "eastus", mostTimes: 17.92 / 9.6 } as const

const AZURE = {
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
} as const

/** Prices by cloud and by the cloud's name of the disk type. The local cloud's VMs have no disk of their own. */
export const DISK_PRICES: Readonly<Record<string, Readonly<Record<string, DiskPrice>>>> = {
  aws: AWS,
  gcp: GCP,
  azure: AZURE,
}

/**
 * Public IPv4 address in use by a VM, USD per hour, in every region (https://aws.amazon.com/vpc/pricing/,
 * https://cloud.google.com/vpc/network-pricing#ipaddress: half for Spot VMs,
 * https://azure.microsoft.com/pricing/details/ip-addresses/).
 */
export const ADDRESS_USD: Readonly<Record<string, { onDemand: number; spot: number }>> = {
  aws: { onDemand: 0.005, spot: 0.005 },
  gcp: { onDemand: 0.005, spot: 0.0025 },
  azure: { onDemand: 0.005, spot: 0.005 },
}
