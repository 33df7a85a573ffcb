import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type OfferList, OfferListSchema } from "../../src/api/resources/offers/schema.ts"
import { parseGib } from "../../src/core/apis/quantity.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { type Replica, shippedOffers, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-offers")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica({ settings: { clouds: ["aws", "gcp", "azure"] } })
})
afterAll(() => replica.close())

async function offers(query: string): Promise<OfferList> {
  const response = await call(`/1/offers?${query}`, { key: fixture.keys.viewer })
  const list = (await response.json()) as OfferList
  expect([response.status, list]).toEqual([200, expect.anything()])
  expect(findErrors(OfferListSchema, list)).toEqual([])
  return list
}

const IN_EU =
  /^(eu-|europe-|westeurope|northeurope|france|germany|sweden|italy|poland|spain|uk|norway|switzerland|austria|belgium|denmark|finland)/

describe("GET /1/offers", () => {
  it("lists the cheapest offers that match, without any connection", async () => {
    const list = await offers("gpu=L4&cpu=8&memory=24Gi&region=eu&cloud=gcp&cloud=aws&limit=5")
    expect(list.offers).toHaveLength(5)
    expect(list).toMatchObject({ limit: 5, message: null })
    const prices = list.offers.map(({ hourly_price_usd }) => hourly_price_usd)
    expect(prices).toEqual(prices.toSorted((a, b) => a - b))
    for (const { gpu, cpu, memory, provider, region, provisioning } of list.offers) {
      expect(gpu).toMatchObject({ model: "L4" })
      expect(cpu).toBeGreaterThanOrEqual(8)
      expect(parseGib(memory)).toBeGreaterThan(24)
      expect(["aws", "gcp"]).toContain(provider)
      expect(region).toMatch(IN_EU)
      expect(provisioning).toBe("onDemand")
    }
    // No matching offer of the catalogue is cheaper.
    const all = [...shippedOffers().current().offers()].filter(
      ({ cloud, gpu, cpu, memoryGib, region, provisioning }) =>
        ["aws", "gcp"].includes(cloud) &&
        gpu?.model === "L4" &&
        gpu.count >= 1 &&
        cpu >= 8 &&
        memoryGib > 24.5 &&
        IN_EU.test(region) &&
        provisioning === "onDemand",
    )
    expect(list.total).toBeLessThanOrEqual(all.length)
    expect(prices[0]).toBe(Math.min(...all.map(({ hourlyPriceUsd }) => hourlyPriceUsd)))
  })

  it("has all offers in pages, each once and in one order", async () => {
    for (const [query, limit] of [
      ["gpu=24Gi&region=eu", 100],
      ["gpu=24Gi&region=eu&provisioning=spotFirst", 73],
    ] as const) {
      const { total } = await offers(`${query}&limit=1`)
      expect(total).toBeGreaterThan(3 * limit)
      const pages: OfferList["offers"] = []
      for (let offset = 0; offset < total; offset += limit) {
        const page = await offers(`${query}&limit=${limit}&offset=${offset}`)
        expect(page).toMatchObject({ total, limit, offset })
        pages.push(...page.offers)
      }
      const keyOf = (one: object) => JSON.stringify(one)
      expect([pages.length, new Set(pages.map(keyOf)).size]).toEqual([total, total])
      for (const one of ["onDemand", "spot"]) {
        const prices = pages.filter((offer) => offer.provisioning === one).map((offer) => offer.total_usd_per_hour)
        expect(prices).toEqual(prices.toSorted((a, b) => a - b))
      }
    }
  })

  it("has an end: the page after the last offer is empty, and has no message", async () => {
    const { total, offers: all } = await offers("limit=1")
    expect([total > 10_000, all.length]).toEqual([true, 1])
    expect((await offers(`limit=200&offset=${total - 2}`)).offers).toHaveLength(2)
    expect(await offers(`offset=${Number.MAX_SAFE_INTEGER}`)).toMatchObject({ offers: [], total, message: null })
  })

  it("has the ages of the prices of the clouds asked for", async () => {
    expect((await offers("cloud=aws&limit=1")).price_dates).toEqual([
      { cloud: "aws", provisioning: "onDemand", date: "2025-04-24", oldest: "2025-04-24" },
      { cloud: "aws", provisioning: "spot", date: "2025-04-24", oldest: "2025-04-24" },
    ])
    const all = await offers("limit=1")
    expect(new Set(all.price_dates.map(({ cloud }) => cloud))).toEqual(new Set(["aws", "gcp", "azure", "nebius"]))
  })

  it.each<[string, (list: OfferList) => void]>([
    ["gpu=L4:4", ({ offers: [first] }) => expect(first?.gpu).toMatchObject({ model: "L4", count: 4 })],
    [
      "gpu=A100:160Gi",
      ({ offers: [first] }) => expect(parseGib(first?.gpu?.vram ?? "0Gi")).toBeGreaterThanOrEqual(160),
    ],
    ["gpu=24Gi", ({ offers: [first] }) => expect(parseGib(first?.gpu?.vram ?? "0Gi")).toBeGreaterThanOrEqual(24)],
    // Some machines have a part of a card.
    [
      "gpu=3Gi&limit=200",
      ({ offers: all }) => expect(Math.min(...all.map(({ gpu }) => gpu?.count ?? 1))).toBeLessThan(1),
    ],
    ["provisioning=spot", ({ offers: [first] }) => expect(first?.provisioning).toBe("spot")],
    [
      "architecture=amd64",
      ({ offers: all }) => expect(new Set(all.map((o) => o.architecture))).toEqual(new Set(["amd64"])),
    ],
    ["", ({ offers: all, limit }) => expect([all.length, limit]).toEqual([20, 20])],
    ["gpu=&memory=&region=", ({ offers: all }) => expect(all).toHaveLength(20)],
  ])("understands %s as a job's requirements", async (query, check) => {
    check(await offers(query))
  })

  it("explains why no offer matches", async () => {
    const list = await offers("gpu=H100:64&region=eu")
    expect(list).toMatchObject({ offers: [], total: 0, message: expect.stringMatching(/^no offer has 64 × H100/) })
  })

  it.each([
    ["gpu=H1000", /"H1000" is unknown.*known models/],
    ["gpu=24GB", /24Gi/],
    ["gpu=L4:0", /count/],
    ["gpu=L4:", /query parameter "gpu" must be a model, a colon, and a number of cards or a size, such as L4:2/],
    ["gpu=:2", /query parameter "gpu" must be a model, a colon, and a number/],
    ["gpu=L4:x", /count/],
    ["cpu=none", /"cpu" must be a number/],
    ["cpu=0", /cpu/],
    ["memory=16GB", /16Gi/],
    ["region=mars", /"mars" is unknown/],
    ["cloud=ibm", /"ibm" is unknown/],
    ["limit=1000", /"limit" must be a whole number/],
    ["machine=x", /"machine" is unknown/],
  ])("rejects %s, and names what is allowed", async (query, detail) => {
    const { status, errors } = await problemIn(await call(`/1/offers?${query}`))
    expect([status, errors]).toEqual([400, [{ pointer: "", detail: expect.stringMatching(detail) }]])
  })
})
