import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { Int, StringEnum, Text } from "./schema.ts"

/** CPU architectures, named like in container image manifests. */
export const ARCHITECTURES = ["amd64", "arm64"] as const
export type Architecture = (typeof ARCHITECTURES)[number]

/** Purchase options of an offer. The cloud may preempt a `spot` VM at any time. */
export const OFFER_PROVISIONINGS = ["onDemand", "spot"] as const

/** GPUs of an offer. `count` may be a fraction of a shared card; `vramGib` is the memory of one whole card. */
const OfferGpuSchema = Type.Object(
  {
    model: Text(LIMITS.gpuModel, "GPU model in the catalogue, such as A100 or H100."),
    count: Type.Number({ minimum: 0, description: "Number of cards, or a fraction of one." }),
    vramGib: Type.Number({ minimum: 0, description: "Memory of one whole card, GiB." }),
  },
  { description: "GPUs of the machine type." },
)

/** Row of the catalogue: one machine type in one region with one purchase option. */
export const OfferSchema = Type.Object(
  {
    cloud: Text(32, "aws, gcp, azure, nebius, own for a machine of your own, or local in development."),
    region: Text(LIMITS.region, "Name of the region in the cloud."),
    zone: Type.Optional(Text(LIMITS.region, "Zone, if the offer is limited to one.")),
    instanceType: Text(128, "Name of the machine type in the cloud."),
    architecture: StringEnum(ARCHITECTURES, { description: "Architecture of the CPUs." }),
    provisioning: StringEnum(OFFER_PROVISIONINGS, { description: "Purchase option." }),
    cpu: Type.Number({
      minimum: 0,
      description: "Number of vCPUs. Of a burstable machine: the vCPUs that it sustains.",
    }),
    memoryGib: Type.Number({ minimum: 0, description: "Memory, GiB." }),
    gpu: Type.Optional(OfferGpuSchema),
    hourlyPriceUsd: Type.Number({ minimum: 0, description: "Price of the whole machine, USD per hour." }),
    minimumBilledSeconds: Int({ description: "Minimum time that the cloud bills, seconds." }),
    priceDate: Type.Optional(
      Text(10, "Date of the price (YYYY-MM-DD, UTC): of the cloud's answer, or of the price list."),
    ),
  },
  { description: "A machine type in a region with one purchase option." },
)
export type Offer = Static<typeof OfferSchema>

/**
 * Returns the NVIDIA GPUs of an offer; undefined without any. Accelerators of other makers name them before a colon
 * (`AMD:MI300X`). No machine image has a driver for them, so such a machine runs jobs without a GPU.
 */
export function nvidiaGpusOf({ gpu }: Pick<Offer, "gpu">): Offer["gpu"] {
  return gpu?.model.includes(":") ? undefined : gpu
}

/** Returns the identity of an offer, stable between catalogues. Cooldowns and rejections refer to it. */
export function offerKey(offer: Pick<Offer, "cloud" | "region" | "zone" | "instanceType" | "provisioning">): string {
  return [offer.cloud, offer.region, offer.zone ?? "", offer.instanceType, offer.provisioning].join("/")
}
