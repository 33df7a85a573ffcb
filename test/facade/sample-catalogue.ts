import type { Offer } from "../../src/core/apis/offer.ts"
import { createCatalogue } from "../../src/market/router/catalogue.ts"

/** Two regions of each cloud, with the same offers. */
const offers = ["aws", "azure", "gcp"].flatMap((cloud) =>
  ["us", "eu"].flatMap((group) =>
    ["A100", "H100", "L4"].map(
      (gpu): Offer => ({
        cloud,
        region: `${group}-1`,
        instanceType: gpu,
        architecture: "amd64",
        provisioning: "onDemand",
        cpu: 4,
        memoryGib: 16,
        gpu: { model: gpu, count: 1, vramGib: 24 },
        hourlyPriceUsd: 1,
        minimumBilledSeconds: 60,
      }),
    ),
  ),
)

/** A small catalogue for tests that need no real prices. */
export const SAMPLE_CATALOGUE = createCatalogue(offers, (_, region) => [region.slice(0, 2)])
