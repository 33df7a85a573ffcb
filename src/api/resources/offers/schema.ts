import Type, { type Static } from "typebox"
import { OFFER_PROVISIONINGS } from "../../../core/apis/offer.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { PlannedPlacementSchema } from "../jobs/plan.ts"

const { connection, estimated_cost_usd, cost_breakdown, why, ...machineFields } = PlannedPlacementSchema.properties

/** Machine type in a region, at a price: the fields of a planned placement that need no job and no account. */
export const OfferRecordSchema = Type.Object(
  {
    ...machineFields,
    total_usd_per_hour: Type.Number({
      description: "Price of a VM with its machine, the default disk and a public IPv4 address, USD per hour.",
    }),
    unavailable: nullable<string>(
      "string",
      "Reason why no job gets this own machine now, such as another job. Null: it is free, or a cloud's.",
    ),
  },
  { [COMPONENT]: "Offer" },
)
export type OfferRecord = Static<typeof OfferRecordSchema>

const PriceDatesSchema = Type.Object(
  {
    cloud: Type.String(),
    provisioning: StringEnum(OFFER_PROVISIONINGS),
    date: Type.String({ description: "Date (YYYY-MM-DD) of nine tenths of the prices, or an earlier one." }),
    oldest: Type.String({ description: "Date of the oldest price." }),
  },
  { [COMPONENT]: "PriceDates" },
)

/** Response of GET /offers. */
export const OfferListSchema = Type.Object({
  offers: Type.Array(OfferRecordSchema),
  total: Type.Integer({ description: "Number of offers that match." }),
  limit: Type.Integer(),
  offset: Type.Integer(),
  price_dates: Type.Array(PriceDatesSchema, {
    description: "Ages of all prices of the clouds asked for. Prices of the installation itself have no date.",
  }),
  message: nullable<string>("string", "Explanation if no offer matches, with the nearest one."),
})
export type OfferList = Static<typeof OfferListSchema>
