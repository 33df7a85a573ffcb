import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from "vitest"
import { awsPrices } from "../../src/clouds/aws/prices.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CredentialsError, TransientError } from "../../src/core/outbound/errors.ts"
import { documentedActions, roleStatements } from "../cloud/aws-policy.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { unending } from "../providers/api-server.ts"
import { AwsPricesFront } from "./aws-front.ts"
import { read } from "./reading.ts"

const { it } = needing(missingTool("moto"))

let moto: Moto
let proxy: Ec2Proxy
let front: AwsPricesFront
const { list, market = list } = awsPrices(systemClock)
const credentials = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: "of-a-test" }
const ask = (...regions: string[]) => ({ credentials, regions, machines: [], signal: unending() })

beforeAll(async () => {
  moto = await startMoto()
  proxy = await Ec2Proxy.start(moto)
  front = await AwsPricesFront.start(proxy.url)
})
afterAll(async () => {
  await front?.stop()
  await proxy?.stop()
  await moto?.stop()
})
beforeEach(() => {
  // Read by AWS' SDK itself.
  vi.stubEnv("AWS_ENDPOINT_URL", front.url)
  front.calls.length = 0
})
afterEach(() => {
  vi.unstubAllEnvs()
  expect([...front.breaches.splice(0), ...proxy.breaches.splice(0)]).toEqual([])
})

it("the price reader of AWS reads hourly prices of Linux instances on shared hardware, page by page", async () => {
  const product = { regionCode: "eu-north-1", instanceType: "m7i.large", usd: "0.1071000000" }
  front.products = [
    product,
    { ...product, usd: "0.1991", attributes: { operatingSystem: "Windows" } },
    { ...product, usd: "0.2", attributes: { tenancy: "Dedicated" } },
    { ...product, usd: "0", attributes: { capacitystatus: "AllocatedCapacityReservation" } },
    { ...product, usd: "0.5", attributes: { preInstalledSw: "SQL Std" } },
    { ...product, instanceType: "m7a.large", usd: "0.1232" },
    { ...product, instanceType: "c7g.large", usd: "0.0776" },
    { ...product, instanceType: "p5.48xlarge", usd: "0.0000000000" },
    { ...product, instanceType: "m7i.xlarge", usd: "53", unit: "Quantity" },
    { ...product, regionCode: "us-east-1", usd: "0.1008" },
  ]
  const { prices, calls, error } = await read(list, ask("eu-north-1", "us-east-1", "eu-south-2"))
  expect(error).toBeUndefined()
  expect(prices).toEqual({
    "eu-north-1 onDemand": { "m7i.large": 0.1071, "m7a.large": 0.1232, "c7g.large": 0.0776 },
    "us-east-1 onDemand": { "m7i.large": 0.1008 },
  })
  expect(calls).toBe(front.calls.length)
  expect(calls).toBe(3 + 1 + 1)
})

it("the price reader of AWS reads the spot price of the most expensive zone, page by page, in enabled regions", async () => {
  front.spot = [
    { instanceType: "m7i.large", zone: "eu-north-1a", usd: "0.0331" },
    { instanceType: "m7i.large", zone: "eu-north-1b", usd: "0.0412" },
    { instanceType: "m7i.large", zone: "eu-north-1c", usd: "0.0298" },
    { instanceType: "m7a.large", zone: "eu-north-1a", usd: "0.0500" },
    { instanceType: "m7a.large", zone: "eu-north-1c", usd: "0.0400" },
  ]
  front.disabled.add("eu-south-2")
  const { prices, calls, error } = await read(market, ask("eu-north-1", "eu-south-2"))
  expect(error).toBeUndefined()
  expect(prices).toEqual({ "eu-north-1 spot": { "m7i.large": 0.0412, "m7a.large": 0.05 } })
  expect(calls).toBe(3 + 1)
})

it("the price reader of AWS reads spot prices from moto's EC2 in one of its small regions, because moto is slow for thousands of prices", async () => {
  front.spot = undefined
  const { prices, error } = await read(market, ask("me-south-1"))
  expect(error).toBeUndefined()
  expect(prices["me-south-1 spot"]).toMatchObject({ "t4g.micro": 0.00001 })
})

it("the price reader of AWS reports a missing right in the account's policy", async () => {
  front.allowed = []
  try {
    for (const reader of [list, market]) {
      const { prices, error } = await read(reader, ask("eu-north-1", "us-east-1"))
      expect(prices).toEqual({})
      expect(error).toBeInstanceOf(CredentialsError)
    }
  } finally {
    front.allowed = documentedActions()
  }
})

it("the price reader of AWS stops when it is aborted, without further requests", async () => {
  front.spot = [{ instanceType: "m7i.large", zone: "eu-north-1a", usd: "0.0331" }]
  for (const reader of [list, market]) {
    const stopping = new AbortController()
    const regions = Array.from({ length: 40 }, (_, index) => `eu-north-${index + 1}`)
    const { calls, error } = await read(reader, { ...ask(...regions), signal: stopping.signal }, () => stopping.abort())
    expect(error).toBeInstanceOf(TransientError)
    expect(calls).toBeLessThanOrEqual(4)
  }
})

it("the price reader of AWS calls exactly the actions of the statement for prices in docs/roles/aws.json", async () => {
  const allowed = roleStatements().filter(({ Sid }) => Sid === "Prices")
  front.spot = []
  await read(list, ask("us-east-1"))
  await read(market, ask("us-east-1"))
  expect([...new Set(front.calls.map(({ action }) => action))].sort()).toEqual(
    allowed.flatMap(({ Action }) => Action).sort(),
  )
})
