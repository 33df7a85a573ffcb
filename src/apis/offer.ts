import Type, { type Static } from "typebox"
import { LIMITS } from "./limits.ts"
import { Int, StringEnum, Text } from "./schema.ts"

/** CPU architectures, in the words of container image manifests. */
export const ARCHITECTURES = ["amd64", "arm64"] as const
export type Architecture = (typeof ARCHITECTURES)[number]

/** How a VM is bought: `spot` may be taken away by the cloud at any time. */
export const OFFER_PROVISIONINGS = ["onDemand", "spot"] as const

/** GPUs of an offer. `count` may be a fraction of a shared card; `vramGib` is the memory of one whole card. */
const OfferGpuSchema = Type.Object(
  {
    model: Text(LIMITS.gpuModel, "Model as the catalogue names it, such as A100 or H100."),
    count: Type.Number({ minimum: 0, description: "Cards, or a fraction of one." }),
    vramGib: Type.Number({ minimum: 0, description: "Memory of one whole card, GiB." }),
  },
  { description: "Its GPUs." },
)

/** A row of the catalogue: one machine type in one region, bought one way. */
export const OfferSchema = Type.Object(
  {
    cloud: Text(32, "aws, gcp, azure, or local in development."),
    region: Text(LIMITS.region, "The cloud's own name of the region."),
    zone: Type.Optional(Text(LIMITS.region, "The zone, where the offer is pinned to one.")),
    instanceType: Text(128, "The cloud's own name of the machine type."),
    architecture: StringEnum(ARCHITECTURES, { description: "Of its CPUs." }),
    provisioning: StringEnum(OFFER_PROVISIONINGS, { description: "How it is bought." }),
    cpu: Type.Number({ minimum: 0, description: "vCPUs as the cloud sells them." }),
    memoryGib: Type.Number({ minimum: 0, description: "Memory, GiB." }),
    gpu: Type.Optional(OfferGpuSchema),
    hourlyPriceUsd: Type.Number({ minimum: 0, description: "US dollars an hour for the whole machine." }),
    minimumBilledSeconds: Int({ description: "The shortest time that the cloud bills, seconds." }),
    priceDate: Type.Optional(
      Text(10, "The day of its price (YYYY-MM-DD, in UTC): when the cloud was asked, or of the price list."),
    ),
  },
  { description: "A machine type in a region, bought one way." },
)
export type Offer = Static<typeof OfferSchema>

/** One offer's identity, stable between catalogues: what resting offers and refusals are kept by. */
export function offerKey(offer: Pick<Offer, "cloud" | "region" | "zone" | "instanceType" | "provisioning">): string {
  return [offer.cloud, offer.region, offer.zone ?? "", offer.instanceType, offer.provisioning].join("/")
}
