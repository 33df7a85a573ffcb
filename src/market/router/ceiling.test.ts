import { describe, expect, test } from "vitest"
import { offerOf } from "../../../test/harness/builders.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { createCatalogue } from "./catalogue.ts"
import { type CeilingTerms, ceilingUsd } from "./ceiling.ts"
import { rankPlacements } from "./route.ts"

const spot = (cloud: string, hourlyPriceUsd: number): Offer => offerOf({ cloud, provisioning: "spot", hourlyPriceUsd })

/** Returns the ceiling of the first offer among these. */
const ceilingOf = (offers: Offer[], terms: CeilingTerms) => ceilingUsd(createCatalogue(offers), 0, terms)

test.each([
  ["AWS", [spot("aws", 0.1), offerOf({ cloud: "aws" })], 0.125],
  ["Azure, without an on-demand price", [spot("azure", 0.1)], 0.125],
  ["AWS near the on-demand price", [spot("aws", 0.55), offerOf({ cloud: "aws" })], 0.6],
  ["AWS above the on-demand price", [spot("aws", 0.7), offerOf({ cloud: "aws" })], 0.7],
  ["Google Cloud", [spot("gcp", 0.1), offerOf({ cloud: "gcp" })], 0.6],
  ["Google Cloud, without an on-demand price", [spot("gcp", 0.09)], 1],
  ["a machine elsewhere", [spot("aws", 0.1), offerOf({ cloud: "aws", region: "there", hourlyPriceUsd: 0.11 })], 0.125],
])("the price ceiling under a strict limit on %s", (_, offers, ceiling) => {
  expect(ceilingOf(offers, { isStrict: true })).toBeCloseTo(ceiling, 9)
})

describe("the job's maxHourlyPriceUsd", () => {
  const aws = [spot("aws", 0.1), offerOf({ cloud: "aws" })]
  const azure = [spot("azure", 0.1)]
  const gcp = [spot("gcp", 0.1), offerOf({ cloud: "gcp" })]

  test.each([
    ["on AWS", aws, { maxHourlyPriceUsd: 0.2 }, 0.2],
    ["on Azure", azure, { maxHourlyPriceUsd: 0.2 }, 0.2],
    ["with more digits than clouds take", azure, { maxHourlyPriceUsd: 0.2000012 }, 0.20001],
    ["above the on-demand price, which no spot price exceeds", aws, { maxHourlyPriceUsd: 5 }, 0.6],
    ["at the present price", aws, { maxHourlyPriceUsd: 0.1 }, 0.1],
    ["below the ceiling of a strict limit", aws, { isStrict: true, maxHourlyPriceUsd: 0.11 }, 0.11],
    ["above the ceiling of a strict limit", aws, { isStrict: true, maxHourlyPriceUsd: 0.2 }, 0.125],
    ["on Google Cloud, which has no ceiling", gcp, { maxHourlyPriceUsd: 0.2 }, undefined],
    ["on Google Cloud under a strict limit", gcp, { isStrict: true, maxHourlyPriceUsd: 0.2 }, 0.6],
    ["for an on-demand machine", [offerOf({ cloud: "aws" })], { isStrict: true, maxHourlyPriceUsd: 5 }, undefined],
  ])("is the price ceiling: %s", (_, offers, terms, ceiling) => {
    expect(ceilingOf(offers, { isStrict: false, ...terms })).toBe(ceiling)
  })

  test("is the ceiling of a spot placement, and no limit gives none", () => {
    const context = {
      launchAccounts: [{ cloud: "aws" }],
      cooldowns: [],
      room: {},
      expectedSeconds: 60,
      now: new Date(0),
    }
    const wanted = { cpu: 0, memoryGib: 0, clouds: [], regions: [], architectures: [], provisioning: "spot" as const }
    const ceilings = [{}, { maxHourlyPriceUsd: 0.2 }].map(
      (limit) => rankPlacements({ ...wanted, ...limit }, createCatalogue(aws), context)[0]?.ceilingUsd,
    )
    expect(ceilings).toEqual([undefined, 0.2])
  })
})
