import { afterAll, afterEach, beforeAll, expect, it } from "vitest"
import { azurePrices } from "../../src/clouds/azure/prices.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { InvalidRequestError, TransientError } from "../../src/core/outbound/errors.ts"
import { type ApiServer, type Operation, startApiServer, unending } from "../providers/api-server.ts"
import { read } from "./reading.ts"

/**
 * An item like those in the documentation:
 * https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
 */
function item(armRegionName: string, armSkuName: string, retailPrice: number, changes: object = {}) {
  const size = armSkuName.replace("Standard_", "").replaceAll("_", " ")
  return {
    currencyCode: "USD",
    tierMinimumUnits: 0,
    retailPrice,
    unitPrice: retailPrice,
    armRegionName,
    location: "EU West",
    effectiveStartDate: "2025-03-01T00:00:00Z",
    meterId: "000a794b-bdb0-58be-a0cd-0c3a0f222923",
    meterName: size,
    productId: "DZH318Z0BQPS",
    skuId: "DZH318Z0BQPS/00TG",
    productName: "Virtual Machines Dsv5 Series",
    skuName: size,
    serviceName: "Virtual Machines",
    serviceId: "DZH313Z7MMC8",
    serviceFamily: "Compute",
    unitOfMeasure: "1 Hour",
    type: "Consumption",
    isPrimaryMeterRegion: true,
    armSkuName,
    ...changes,
  }
}

const D2 = "Standard_D2s_v5"
const D4 = "Standard_D4s_v5"
const spot = (size: string) => ({ meterName: `${size} Spot`, skuName: `${size} Spot` })
const ITEMS = [
  item("westeurope", D2, 0.115),
  item("westeurope", D2, 0.023, spot("D2s v5")),
  item("westeurope", D4, 0.25, { effectiveStartDate: "2024-01-01T00:00:00Z" }),
  item("westeurope", D4, 0.23),
  item("westeurope", D4, 0.19, { effectiveStartDate: "2099-01-01T00:00:00Z" }),
  item("westeurope", D2, 0.2, { productName: "Virtual Machines Dsv5 Series Windows" }),
  item("westeurope", D2, 0.01, { meterName: "D2s v5 Low Priority", skuName: "D2s v5 Low Priority" }),
  item("westeurope", D2, 0.3, { productName: "Dsv5 Series CloudServices" }),
  item("westeurope", "Dsv5_Type1", 4, { productName: "Dsv5 Series Dedicated Host" }),
  item("westeurope", D2, 600, { type: "Reservation", unitOfMeasure: "1 Hour", reservationTerm: "1 Year" }),
  item("eastus", D2, 0.096),
]

const PAGE = 3

/** Responds like Azure. The filter selects by region. A page has the address of the next one, with its port. */
const RETAIL_PRICES: Operation = {
  method: "GET",
  host: "prices.azure.com",
  path: /^[/]api[/]retail[/]prices$/,
  query: {
    currencyCode: /^USD$/,
    $filter:
      /^serviceName eq 'Virtual Machines' and armRegionName eq '[a-z0-9]+' and priceType eq 'Consumption' and contains\(productName, 'Windows'\) eq false$/,
    "?$skip": /^[0-9]+$/,
  },
  answer: ({ query }) => {
    const filter = query.get("$filter") ?? ""
    const region = /armRegionName eq '([a-z0-9]+)'/.exec(filter)?.[1]
    const skip = Number(query.get("$skip") ?? 0)
    const found = ITEMS.filter(({ armRegionName }) => armRegionName === region)
    const next = new URLSearchParams({ currencyCode: "USD", $filter: filter, $skip: String(skip + PAGE) })
    const Items = found.slice(skip, skip + PAGE)
    const NextPageLink = skip + PAGE < found.length ? `https://prices.azure.com:443/api/retail/prices?${next}` : null
    const about = { BillingCurrency: "USD", CustomerEntityId: "Default", CustomerEntityType: "Retail" }
    return { json: { ...about, Items, NextPageLink, Count: Items.length } }
  },
}

let server: ApiServer
beforeAll(async () => {
  server = await startApiServer([RETAIL_PRICES])
})
afterAll(() => server.stop())
afterEach(() => {
  expect(server.faults.splice(0)).toEqual([])
  server.override(RETAIL_PRICES.path, undefined)
})

const readers = () => azurePrices({ clock: systemClock, send: server.send })
const question = (regions: string[]) => ({ credentials: {}, regions, machines: [], signal: unending() })

it("the price reader of Azure reads present prices of Linux machines, page by page, on demand and spot", async () => {
  const { prices, calls, error } = await read(readers().list, question(["westeurope", "eastus", "nowhere"]))
  expect(error).toBeUndefined()
  expect(prices).toEqual({
    "eastus onDemand": { [D2]: 0.096 },
    "westeurope onDemand": { [D2]: 0.115, [D4]: 0.23 },
    "westeurope spot": { [D2]: 0.023 },
  })
  expect(calls).toBe(4 + 1 + 1)
})

it("the price reader of Azure returns the regions that answered, and names the others", async () => {
  server.override(RETAIL_PRICES.path, (request, match) =>
    request.query.get("$filter")?.includes("westeurope")
      ? { status: 429, json: { error: { code: "429", message: "Too many requests" } } }
      : RETAIL_PRICES.answer(request, match),
  )
  const { prices, error } = await read(readers().list, question(["westeurope", "eastus"]))
  expect(Object.keys(prices)).toEqual(["eastus onDemand"])
  expect(error).toBeInstanceOf(TransientError)
  expect(String(error)).toContain("westeurope")
})

it("the price reader of Azure follows no link to another host", async () => {
  server.override(RETAIL_PRICES.path, () => ({ json: { Items: [], NextPageLink: "https://10.0.0.1/secrets" } }))
  const { error } = await read(readers().list, question(["eastus"]))
  expect(error).toBeInstanceOf(InvalidRequestError)
  expect(server.requests.filter(({ host }) => host !== "prices.azure.com")).toEqual([])
})

it("the price reader of Azure needs no right: it sends no credentials", async () => {
  server.requests.length = 0
  const credentials = { tenant_id: "t", client_id: "c", client_secret: "a-secret-of-a-test", subscription_id: "s" }
  await read(readers().list, { ...question(["eastus"]), credentials })
  expect(server.requests.length).toBeGreaterThan(0)
  for (const { headers, path, body } of server.requests) {
    expect(headers).not.toHaveProperty("authorization")
    expect(`${path} ${body}`).not.toContain("a-secret-of-a-test")
  }
})
