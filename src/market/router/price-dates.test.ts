import { expect, it } from "vitest"
import { offerOf } from "../../../test/harness/builders.ts"
import { priceDatesOf } from "./price-dates.ts"
import { createTable, joinTables } from "./table.ts"

const offers = (count: number, priceDate: string | undefined, cloud = "aws") =>
  Array.from({ length: count }, (_, index) =>
    offerOf({ cloud, region: "here", instanceType: `t${index}-${priceDate}`, ...(priceDate && { priceDate }) }),
  )

it("the date of a list's prices is the day from which nine tenths are, and the oldest, by cloud and provisioning", () => {
  const table = createTable([
    ...[...offers(1, "2025-04-24"), ...offers(9, "2026-11-27"), ...offers(5, undefined)],
    ...[...offers(2, "2025-04-24", "gcp"), ...offers(8, "2026-11-27", "gcp")],
    offerOf({ cloud: "aws", provisioning: "spot", priceDate: "2026-01-01" }),
  ])
  expect(priceDatesOf(table)).toEqual([
    { cloud: "aws", provisioning: "onDemand", date: "2026-11-27", oldest: "2025-04-24" },
    { cloud: "aws", provisioning: "spot", date: "2026-01-01", oldest: "2026-01-01" },
    { cloud: "gcp", provisioning: "onDemand", date: "2025-04-24", oldest: "2025-04-24" },
  ])
})

it("the date of a list's prices leaves out restricted regions, whose prices nothing refreshes", () => {
  const table = createTable(offers(3, "2025-04-24"))
  const restricted = table.regions.map((region) => ({ ...region, restricted: true }))
  expect(priceDatesOf(joinTables({ ...table, regions: restricted }, createTable(offers(1, "2026-11-27"))))).toEqual([
    { cloud: "aws", provisioning: "onDemand", date: "2026-11-27", oldest: "2026-11-27" },
  ])
})
