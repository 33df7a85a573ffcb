import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect, vi } from "vitest"
import { awsPrices } from "../../src/clouds/aws/prices.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { CONFIG_MAPS, SECRETS } from "../../src/core/kube/core.ts"
import { isForbidden } from "../../src/core/kube/errors.ts"
import { events } from "../../src/core/kube/events.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import type { Running } from "../../src/core/telemetry/program.ts"
import { LiveCatalogue } from "../../src/market/catalogue/live.ts"
import { PRICES_CONFIG_MAP } from "../../src/market/catalogue/stored-prices.ts"
import { watchPrices } from "../../src/market/catalogue/watch.ts"
import { createTable } from "../../src/market/router/table.ts"
import { offerOf } from "../harness/builders.ts"
import { eventually } from "../harness/eventually.ts"
import { clientOf } from "../harness/machine-users.ts"
import { ProjectHarness } from "../harness/project.ts"
import { REGION } from "../harness/sim-market.ts"
import { missingTool, needing } from "../needing.ts"
import { AwsPricesFront } from "./aws-front.ts"

const { it } = needing(missingTool("moto"))

/** An operator with simulated clouds, whose prices come from AWS' APIs, as far as tests have them. */

const aws = { cloud: "aws", region: REGION, priceDate: "2026-01-01" }
const table = createTable([
  offerOf({ ...aws, instanceType: "m7i.large", hourlyPriceUsd: 0.107 }),
  offerOf({ ...aws, instanceType: "m7i.large", provisioning: "spot", hourlyPriceUsd: 0.04 }),
  offerOf({ ...aws, instanceType: "m7a.large", hourlyPriceUsd: 0.123 }),
  offerOf({ ...aws, instanceType: "m7a.large", provisioning: "spot", hourlyPriceUsd: 0.05 }),
])
/** Reads the prices like a façade does, only from the ConfigMap. */
const facades = new LiveCatalogue(table)
const stop = new AbortController()
let front: AwsPricesFront
let operator: Running
let watching: Promise<void>

afterAll(async () => {
  await front?.stop()
  vi.unstubAllEnvs()
})
const berth = new ProjectHarness("prices", { offers: new LiveCatalogue(table) })
const { admin, namespace, systemNamespace } = berth

beforeAll(async () => {
  front = await AwsPricesFront.start("http://127.0.0.1:9")
  vi.stubEnv("AWS_ENDPOINT_URL", front.url)
  front.products = [
    { regionCode: REGION, instanceType: "m7i.large", usd: "0.1071" },
    { regionCode: REGION, instanceType: "m7a.large", usd: "0.0931" },
  ]
  front.spot = [
    { instanceType: "m7i.large", zone: `${REGION}a`, usd: "0.00001" },
    { instanceType: "m7a.large", zone: `${REGION}a`, usd: "0.0444" },
  ]
  const reader = { client: admin, systemNamespace, catalogue: facades, logger: berth.programs.logger("reader") }
  watching = watchPrices(reader).run(stop.signal)
  operator = await berth.programs.startOperator(
    { priceRefreshHours: 12, spotPriceRefreshHours: 1 },
    {
      providers: { aws: { ...berth.accounts.provider, prices: awsPrices(systemClock) } },
      observeSeconds: 0.2,
      prices: { lookSeconds: 0.2 },
    },
  )
})

afterAll(async () => {
  stop.abort()
  await watching
})

async function submitted(name: string, spec: object): Promise<StoredJob> {
  await berth.submit(name, spec)
  return eventually(async () => {
    const job = await berth.job(name)
    expect(job.status?.placement).toBeDefined()
    return job
  })
}

/** Returns the days (UTC) of the stored on-demand and spot prices. */
async function refreshDays(): Promise<[string | undefined, string | undefined]> {
  const { data = {} } = await admin.get(CONFIG_MAPS, { namespace: systemNamespace, name: PRICES_CONFIG_MAP })
  expect(Object.keys(data).sort()).toEqual(["aws.list.time", "aws.market.time"])
  return [data["aws.list.time"]?.slice(0, 10), data["aws.market.time"]?.slice(0, 10)]
}

it("a price change moves a job to another machine, and the job shows the price's day", async () => {
  const stringData = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: "of-a-test-of-prices" }
  berth.accounts.issue("account-1", stringData.secret_access_key)
  const data = Object.fromEntries(Object.entries(stringData).map(([key, value]) => [key, btoa(value)]))
  const type = "berth.dev/connection"
  await admin.create(SECRETS, { metadata: { name: "aws", namespace }, type, data })
  expect(front.calls).toEqual([])
  await berth.createConnection("aws", { type: "aws", credentialsSecretRef: { name: "aws" } })

  const days = [new Date().toISOString().slice(0, 10)]
  const [today, spotDay] = await eventually(async () => {
    const [day, itsSpotDay] = await refreshDays()
    const offers = [...facades.current().offers()].map(
      (o) => `${o.instanceType} ${o.provisioning} ${o.hourlyPriceUsd} ${o.priceDate}`,
    )
    expect(offers.sort()).toEqual([
      `m7a.large onDemand 0.0931 ${day}`,
      `m7a.large spot 0.0444 ${itsSpotDay}`,
      `m7i.large onDemand 0.1071 ${day}`,
      "m7i.large spot 0.04 2026-01-01",
    ])
    return [day, itsSpotDay]
  })
  // Midnight may have passed in between.
  days.push(new Date().toISOString().slice(0, 10))
  expect(days).toContain(today)
  expect(days).toContain(spotDay)
  const { status } = await eventually(async () => {
    const name = `job-${randomBytes(3).toString("hex")}`
    const job = await submitted(name, { cloud: ["aws"] })
    // The operator has its own copy of the catalogue, which it rebuilds in the background.
    expect(job.status?.placement?.offer.instanceType).toBe("m7a.large")
    return job
  })
  expect(status?.placement?.offer).toMatchObject({ hourlyPriceUsd: 0.0931, priceDate: today })
  expect(status?.placement?.reason).toContain(`; price of ${today}`)
})

it("a connection says that its cloud's prices are read, and of which day", async () => {
  await eventually(async () => {
    const { status } = await admin.get(CONNECTIONS, { namespace, name: "aws" })
    const condition = status?.conditions?.find(({ type }) => type === "Prices")
    expect(condition).toMatchObject({ status: "True", reason: "Read" })
    expect(condition?.message).toMatch(
      /^Berth reads the prices of aws: on-demand of \d{4}-\d\d-\d\d, spot of \d{4}-\d\d-\d\d$/,
    )
  })
})

it("the refresher rejects and reports an impossible price, and asks each cloud once", async () => {
  await eventually(async () => {
    const { items } = await admin.list(events, { namespace: systemNamespace })
    const [refused] = items.filter(({ reason }) => reason === "PricesRefused")
    expect(refused?.involvedObject).toMatchObject({ kind: "ConfigMap", name: PRICES_CONFIG_MAP })
    expect(refused?.message).toBe(
      "1 price refused (aws spot), less than a tenth of what is usual for the machine: m7i.large in eu-north-1 at $0.00001",
    )
  })
  const actions = front.calls.map(({ action }) => action).sort()
  expect(actions).toEqual(["ec2:DescribeSpotPriceHistory", "pricing:GetProducts"])
  expect(front.breaches).toEqual([])
})

it("the leader's metrics show the age of prices", async () => {
  const metrics = await (await fetch(`${operator.metricsUrl}/metrics`)).text()
  for (const prices of ["list", "market"]) {
    const pattern = new RegExp(
      `^berth_catalogue_prices_age_seconds\\{cloud="aws",prices="${prices}",.*\\} (\\S+)$`,
      "m",
    )
    expect(Number(pattern.exec(metrics)?.[1])).toBeLessThan(600)
  }
})

it("the operator may write only the ConfigMap of prices, and the façade may read it", async () => {
  const [asOperator, asFacade] = [await clientOf("berth-operator"), await clientOf("berth-facade")]
  const object = (name: string) => ({ metadata: { name, namespace: "berth-system" }, data: { a: "b" } })
  const options = { dryRun: true, fieldManager: "test", force: true }
  const refused = (call: Promise<unknown>) => expect(call.catch((error) => isForbidden(error))).resolves.toBe(true)
  try {
    expect((await asOperator.apply(CONFIG_MAPS, object(PRICES_CONFIG_MAP), options)).data).toEqual({ a: "b" })
    await refused(asOperator.apply(CONFIG_MAPS, object("berth-catalogue"), options))
    await refused(asOperator.apply(CONFIG_MAPS, object("another"), options))
    await refused(asOperator.create(CONFIG_MAPS, object("another"), options))
    await refused(asFacade.apply(CONFIG_MAPS, object(PRICES_CONFIG_MAP), options))
    for (const client of [asOperator, asFacade]) {
      const selection = { namespace: "berth-system", fieldSelector: `metadata.name=${PRICES_CONFIG_MAP}` }
      expect((await client.list(CONFIG_MAPS, selection)).items).toEqual([])
      await refused(client.list(CONFIG_MAPS, { namespace: "berth-system" }))
    }
  } finally {
    await Promise.all([asOperator.close(), asFacade.close()])
  }
})
