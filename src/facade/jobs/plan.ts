import { fromMetadataName } from "../../apis/names.ts"
import type { Offer } from "../../apis/offer.ts"
import type { RankedPlacement } from "../../router/route.ts"
import type { JobPlan } from "../planner.ts"
import type { JobPlanRecord } from "./plan-schema.ts"

/** A plan as the REST API shows it. */
export function planRecordOf(name: string, { verdict, reason, message, placements, ranking }: JobPlan): JobPlanRecord {
  return {
    dry_run: true,
    name,
    verdict,
    reason,
    message,
    estimated_cost: placements[0]?.totalUsd ?? null,
    placements: placements.map((placement, index) => placementOf(placement, ranking[index] ?? "")),
  }
}

function placementOf({ offer, payer, totalUsd }: RankedPlacement, why: string): JobPlanRecord["placements"][number] {
  return {
    provider: offer.cloud,
    region: offer.region,
    zone: offer.zone ?? null,
    instance_type: offer.instanceType,
    provisioning: offer.provisioning,
    connection: payer.connection === undefined ? null : fromMetadataName(payer.connection),
    hourly_price_usd: offer.hourlyPriceUsd,
    price_date: offer.priceDate ?? null,
    estimated_cost_usd: totalUsd,
    cpu: offer.cpu,
    memory: gib(offer.memoryGib),
    architecture: offer.architecture,
    gpu: gpuOf(offer.gpu),
    why,
  }
}

/** In the shape of a job record's `resources.gpu`: `vram` over all cards. */
function gpuOf(gpu: Offer["gpu"]): JobPlanRecord["placements"][number]["gpu"] {
  return gpu === undefined ? null : { vram: gib(gpu.count * gpu.vramGib), count: gpu.count, model: gpu.model }
}

function gib(amount: number): string {
  return `${Math.round(amount * 1000) / 1000}Gi`
}
