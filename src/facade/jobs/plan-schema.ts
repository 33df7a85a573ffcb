import Type, { type Static } from "typebox"
import { ARCHITECTURES, OFFER_PROVISIONINGS } from "../../apis/offer.ts"
import { StringEnum } from "../../apis/schema.ts"
import { GpuRecordSchema, nullable } from "./schema.ts"

/** What happens to a job that has such a plan. */
export const PLAN_VERDICTS = ["placeable", "waits", "noOffer"] as const

/** A machine that a job may get. */
export const PlannedPlacementSchema = Type.Object({
  provider: Type.String(),
  region: Type.String(),
  zone: nullable<string>("string", "Null: any zone of the region."),
  instance_type: Type.String(),
  provisioning: StringEnum(OFFER_PROVISIONINGS),
  connection: nullable<string>("string", "Who pays. Null: no connection is needed."),
  hourly_price_usd: Type.Number(),
  price_date: nullable<string>("string", "The day of this price (YYYY-MM-DD). Null: it is the installation's own."),
  estimated_cost_usd: Type.Number({ description: "In all, for the time that the job is expected to take." }),
  cpu: Type.Number({ description: "vCPUs of the machine." }),
  memory: Type.String({ description: "Of the machine, such as 16Gi." }),
  architecture: StringEnum(ARCHITECTURES),
  gpu: GpuRecordSchema,
  why: Type.String({ description: "The placement in one line, compared with the first." }),
})

/** What POST /jobs?dry_run=true answers. */
export const JobPlanSchema = Type.Object(
  {
    dry_run: Type.Boolean({ description: "Always true: nothing was made." }),
    name: Type.String({ description: "The job's name. One that is made up is another at each request." }),
    verdict: StringEnum(PLAN_VERDICTS, {
      description:
        "placeable: a VM would be asked for at once. waits: the job would stay queued. noOffer: it would fail.",
    }),
    reason: Type.String({ description: "The verdict as the job's condition Placed has it, one word." }),
    message: Type.String({ description: "The same for people, in the same words." }),
    estimated_cost: nullable<number>("number", "US dollars, of the first placement."),
    placements: Type.Array(PlannedPlacementSchema, { description: "What would be tried, first choice first." }),
  },
  { description: "What would become of a job if it were submitted now." },
)
export type JobPlanRecord = Static<typeof JobPlanSchema>
