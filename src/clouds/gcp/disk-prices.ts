import type { DiskPrice } from "../definition.ts"

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

export const DISK_PRICES = {
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
} as const satisfies Record<string, DiskPrice>
