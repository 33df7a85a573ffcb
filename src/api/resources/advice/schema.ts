import Type, { type Static } from "typebox"
import { OFFER_PROVISIONINGS } from "../../../core/apis/offer.ts"
import { sumOfParts } from "../../../core/apis/price.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { JobRecordSchema, resourcesOf } from "../../../core/records/job.ts"
import type { Advice } from "../../../market/advice/advice.ts"
import type { RankedPlacement } from "../../../market/router/route.ts"
import type { PageOf } from "../../http/json-schema.ts"
import type { GroupIdentity } from "./groups.ts"

const { resources } = JobRecordSchema.properties

const MachineSchema = Type.Object(
  {
    cloud: Type.String(),
    region: Type.String(),
    instance_type: Type.String(),
    provisioning: StringEnum(OFFER_PROVISIONINGS),
    hourly_price_usd: Type.Number({ description: "Price of the machine, USD per hour." }),
    total_usd_per_hour: Type.Number({ description: "Price with disk and public address, USD per hour." }),
    resources,
  },
  { [COMPONENT]: "AdviceMachine", description: "The cheapest machine for these resources, at the prices of now." },
)

/** Advice about the resources of a group of jobs. */
export const AdviceSchema = Type.Object({
  kind: StringEnum(["cronjob", "array", "image"], {
    description: "Group of the runs. image: jobs without a cronjob or an array that have the same image and command.",
  }),
  id: Type.String({ description: "UUID of the cronjob or array, or a digest of image and command." }),
  name: Type.String({ description: "Name of the cronjob or array, or image and command." }),
  latest_job: Type.String({ description: "Name of the newest run. The advice is about its definition." }),
  runs: Type.Integer({ description: "Number of succeeded runs that were measured." }),
  reason: Type.String({ description: "The advice in words." }),
  current: MachineSchema,
  advised: MachineSchema,
  saving_usd_per_month: Type.Number({ description: "Saving for as many runs as in the last 30 days, USD." }),
  saving_percent: Type.Number({ description: "Part of the present cost that is saved, percent." }),
})
export type AdviceRecord = Static<typeof AdviceSchema>

/** Response of GET /advice. */
export type AdviceList = PageOf<"advice", AdviceRecord>

/** Returns the record of advice. @param latest the newest run */
export function toAdviceRecord(
  identity: GroupIdentity,
  latest: { name: string; resources: Parameters<typeof resourcesOf>[0] },
  advice: Advice,
): AdviceRecord {
  return {
    ...identity,
    latest_job: latest.name,
    runs: advice.runs,
    reason: advice.reason,
    current: machineOf(advice.current, latest.resources),
    advised: machineOf(advice.advised, advice.resources),
    saving_usd_per_month: advice.savingUsdPerMonth,
    saving_percent: advice.savingPercent,
  }
}

function machineOf(
  { offer, prices }: RankedPlacement,
  asked: Parameters<typeof resourcesOf>[0],
): AdviceRecord["current"] {
  return {
    cloud: offer.cloud,
    region: offer.region,
    instance_type: offer.instanceType,
    provisioning: offer.provisioning,
    hourly_price_usd: offer.hourlyPriceUsd,
    total_usd_per_hour: sumOfParts(prices),
    resources: resourcesOf(asked),
  }
}
