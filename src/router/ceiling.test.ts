import { expect, test } from "vitest"
import { offerOf } from "../../test/controllers/builders.ts"
import type { Offer } from "../apis/offer.ts"
import { catalogueOf } from "./catalogue.ts"
import { ceilingUsd } from "./ceiling.ts"

const spot = (cloud: string, hourlyPriceUsd: number): Offer => offerOf({ cloud, provisioning: "spot", hourlyPriceUsd })

/** Returns the ceiling of the first offer among these. */
const ceilingOf = (...offers: Offer[]) => ceilingUsd(catalogueOf(offers), 0)

test.each([
  ["AWS", [spot("aws", 0.1), offerOf({ cloud: "aws" })], 0.125],
  ["Azure, without an on-demand price", [spot("azure", 0.1)], 0.125],
  ["AWS near the on-demand price", [spot("aws", 0.55), offerOf({ cloud: "aws" })], 0.6],
  ["AWS above the on-demand price", [spot("aws", 0.7), offerOf({ cloud: "aws" })], 0.7],
  ["Google Cloud", [spot("gcp", 0.1), offerOf({ cloud: "gcp" })], 0.6],
  ["Google Cloud, without an on-demand price", [spot("gcp", 0.09)], 1],
  ["a machine elsewhere", [spot("aws", 0.1), offerOf({ cloud: "aws", region: "there", hourlyPriceUsd: 0.11 })], 0.125],
  ["an on-demand machine", [offerOf({ cloud: "aws" })], 0.6],
])("the price ceiling on %s", (_, offers, ceiling) => {
  expect(ceilingOf(...offers)).toBeCloseTo(ceiling, 9)
})
