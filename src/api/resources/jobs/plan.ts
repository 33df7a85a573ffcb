import Type, { type Static } from "typebox"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { ARCHITECTURES, OFFER_PROVISIONINGS, type Offer } from "../../../core/apis/offer.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { PlannedCostSchema, toBreakdown } from "../../../core/records/cost.ts"
import { ReuseRecordSchema, toReuseRecord } from "../../../core/records/job.ts"
import { nullable } from "../../../core/records/nullable.ts"
import type { JobPlan } from "../../../market/placement/place.ts"
import type { RankedPlacement } from "../../../market/router/route.ts"

/** GPUs of a machine; null: none. */
const OfferGpuSchema = Type.Unsafe<{ vram: string; count: number; model: string } | null>({
  [COMPONENT]: "OfferGpu",
  type: ["object", "null"],
  required: ["vram", "count", "model"],
  properties: {
    vram: Type.String({ description: "GPU memory in total." }),
    count: Type.Number({ description: "Number of cards. Less than 1: a part of a card." }),
    model: Type.String({ description: "GPU model." }),
  },
})

/** Outcomes of a plan for its job. */
export const PLAN_VERDICTS = ["placeable", "waits", "noOffer"] as const

/** Machine that a job may get. */
export const PlannedPlacementSchema = Type.Object(
  {
    provider: Type.String(),
    region: Type.String(),
    zone: nullable<string>("string", "Null: any zone of the region."),
    instance_type: Type.String(),
    provisioning: StringEnum(OFFER_PROVISIONINGS),
    connection: nullable<string>(
      "string",
      "Connection whose account is billed. Null: no connection is needed, or with the reason NoConnection the project must add one.",
    ),
    hourly_price_usd: Type.Number({ description: "Price of the machine, USD per hour." }),
    price_date: nullable<string>("string", "Date of the price (YYYY-MM-DD). Null: the installation sets the price."),
    estimated_cost_usd: Type.Number({ description: "Total cost for the job's expected run time." }),
    cost_breakdown: PlannedCostSchema,
    cpu: Type.Number({ description: "Number of vCPUs. Of a burstable machine: the vCPUs that it sustains." }),
    memory: Type.String({ description: "Memory of the machine, such as 16Gi." }),
    architecture: StringEnum(ARCHITECTURES),
    gpu: OfferGpuSchema,
    why: Type.String({ description: "The placement in one line, compared with the first." }),
  },
  { [COMPONENT]: "PlannedPlacement" },
)

/** Warnings to a person before the job runs. */
export const WARNINGS = Type.Array(Type.String(), {
  description: "Warnings, such as what a job without a limit may cost. Empty: none.",
})

/** Response of POST /jobs?dry_run=true. */
export const JobPlanSchema = Type.Object(
  {
    dry_run: Type.Boolean({ description: "Always true: nothing was created." }),
    name: Type.String({ description: "Name of the job. A generated name differs in each request." }),
    verdict: StringEnum(PLAN_VERDICTS, {
      description:
        "placeable: a VM would be requested at once. waits: the job would stay queued. noOffer: the job would fail.",
    }),
    reason: Type.String({ description: "Reason of the job's condition Placed, one word." }),
    message: Type.String({ description: "Message of the job's condition Placed." }),
    estimated_cost: nullable<number>("number", "Estimated cost of the first placement, USD."),
    placements: Type.Array(PlannedPlacementSchema, {
      description:
        "Candidates, best first. With the verdict waits: the machines that the job gets when the reason ends, without " +
        "caps and cooldowns.",
    }),
    reuse: ReuseRecordSchema,
    can_reuse: Type.Boolean({
      description:
        "True: the VM of the first placement waits for another job if the job has `reuse`. False under maxCostUsd and " +
        "strict caps. False on a spot VM that is free if its cloud takes it back early.",
    }),
    warnings: WARNINGS,
  },
  { description: "Plan for the job, if it were submitted now." },
)
export type JobPlanRecord = Static<typeof JobPlanSchema>

/** Returns the record of a job's plan. */
export function toPlanRecord(
  name: string,
  { verdict, reason, message, placements, ranking, reuse, canReuse = false, warnings = [] }: JobPlan,
): JobPlanRecord {
  const [first] = placements
  return {
    dry_run: true,
    name,
    verdict,
    reason,
    message,
    estimated_cost: first?.totalUsd ?? null,
    placements: placements.map((placement, index) => placementOf(placement, ranking[index] ?? "")),
    reuse: reuse === undefined ? null : toReuseRecord(reuse),
    can_reuse: canReuse,
    warnings: [...warnings],
  }
}

function placementOf(
  { offer, launchAccount, prices, cost, trafficUsd, totalUsd }: RankedPlacement,
  why: string,
): JobPlanRecord["placements"][number] {
  return {
    ...toMachineRecord(offer),
    connection: launchAccount.connection === undefined ? null : fromMetadataName(launchAccount.connection),
    estimated_cost_usd: totalUsd,
    cost_breakdown: { ...toBreakdown(prices, cost), total_usd: totalUsd, traffic_usd: trafficUsd },
    why,
  }
}

/** Returns the fields of an offer: the machine, its place and its price. */
export function toMachineRecord(offer: Offer) {
  return {
    provider: offer.cloud,
    region: offer.region,
    zone: offer.zone ?? null,
    instance_type: offer.instanceType,
    provisioning: offer.provisioning,
    hourly_price_usd: offer.hourlyPriceUsd,
    price_date: offer.priceDate ?? null,
    cpu: offer.cpu,
    memory: gib(offer.memoryGib),
    architecture: offer.architecture,
    gpu: plannedGpuOf(offer.gpu),
  }
}

/** Returns the GPUs in the form of a job record's `resources.gpu`, with the `vram` of all cards together. */
function plannedGpuOf(gpu: Offer["gpu"]): JobPlanRecord["placements"][number]["gpu"] {
  return gpu === undefined ? null : { vram: gib(gpu.count * gpu.vramGib), count: gpu.count, model: gpu.model }
}

function gib(amount: number): string {
  return `${Math.round(amount * 1000) / 1000}Gi`
}
