import type { SpotPrice } from "@aws-sdk/client-ec2"
import type { Pricing } from "@aws-sdk/client-pricing"
import type { Clock } from "../../core/apis/clock.ts"
import { CredentialsError } from "../../core/outbound/errors.ts"
import { abortedRead } from "../../core/outbound/read-errors.ts"
import { merged } from "../pages.ts"
import type { PriceQuestion, PriceReaders, QuotedPrices } from "../prices.ts"
import { Ec2Calls } from "./calls.ts"
import { toCloudError } from "./errors.ts"
import { type Allowance, Pacer, TokenBucket } from "./pacing.ts"
import { sdkConfig } from "./sdk.ts"
import { AssumedRoles } from "./temporary-keys.ts"

/**
 * The price list of this region covers all regions of the partition
 * (https://docs.aws.amazon.com/general/latest/gr/billing.html).
 */
const PRICE_LIST_REGION = "us-east-1"
/** AWS publishes no limit. */
const PRICE_LIST_ALLOWANCE: Allowance = { capacity: 2, perSecond: 2 }
/** Maximum page sizes of GetProducts and DescribeSpotPriceHistory. */
const PRODUCTS_A_PAGE = 100
const SPOT_PRICES_A_PAGE = 1000
const REGIONS_AT_ONCE = 4
const ANSWER_SECONDS = 60

/**
 * Filter for on-demand prices. Each machine type has many products; this one has shared hardware, Linux and no other
 * software.
 */
const ON_DEMAND_LINUX = {
  operatingSystem: "Linux",
  preInstalledSw: "NA",
  tenancy: "Shared",
  capacitystatus: "Used",
  marketoption: "OnDemand",
} as const

/**
 * Reads the prices of EC2. On-demand prices are from the Price List. Spot prices are the current ones of the most
 * expensive zone of a region.
 */
export function awsPrices(clock: Clock, roles = new AssumedRoles()): PriceReaders {
  const bucket = new TokenBucket(PRICE_LIST_ALLOWANCE, clock)
  return {
    list: (question) => listPrices(question, bucket, roles),
    market: (question) => spotPrices(question, clock, roles),
  }
}

async function* listPrices(
  question: PriceQuestion,
  bucket: TokenBucket,
  roles: AssumedRoles,
): AsyncGenerator<QuotedPrices> {
  const { default: sdk } = await import("@aws-sdk/client-pricing")
  const client = new sdk.Pricing(sdkConfig(question.credentials, { region: PRICE_LIST_REGION, roles }))
  try {
    const regions = question.regions.map((region) => ({
      place: region,
      pages: onDemandIn(region, client, question, bucket),
    }))
    yield* merged(regions, REGIONS_AT_ONCE)
  } finally {
    client.destroy()
  }
}

async function* onDemandIn(
  region: string,
  client: Pricing,
  { signal, onCall }: PriceQuestion,
  bucket: TokenBucket,
): AsyncGenerator<QuotedPrices> {
  const prices = new Map<string, number>()
  const filters = Object.entries({ ...ON_DEMAND_LINUX, regionCode: region })
  const request = {
    ServiceCode: "AmazonEC2",
    FormatVersion: "aws_v1",
    MaxResults: PRODUCTS_A_PAGE,
    Filters: filters.map(([Field, Value]) => ({ Type: "TERM_MATCH" as const, Field, Value })),
  }
  let NextToken: string | undefined
  do {
    if (signal.aborted) throw abortedRead()
    await bucket.take()
    onCall()
    const abortSignal = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_SECONDS * 1000)])
    try {
      const page = await client.getProducts({ ...request, ...(NextToken && { NextToken }) }, { abortSignal })
      for (const product of page.PriceList ?? []) addOnDemand(prices, String(product))
      NextToken = page.NextToken
    } catch (error) {
      throw toCloudError(error, { action: "GetProducts", region: PRICE_LIST_REGION, changes: false })
    }
  } while (NextToken)
  if (prices.size > 0) yield { region, provisioning: "onDemand", prices }
}

/** The fields that are read of a product of the Price List. */
interface Product {
  product?: { attributes?: Record<string, string> }
  terms?: { OnDemand?: Record<string, { priceDimensions?: Record<string, PriceDimension> }> }
}

interface PriceDimension {
  unit?: string
  pricePerUnit?: { USD?: string }
}

function addOnDemand(prices: Map<string, number>, text: string): void {
  const { product, terms } = JSON.parse(text) as Product
  const { instanceType } = product?.attributes ?? {}
  if (instanceType === undefined) return
  for (const { priceDimensions = {} } of Object.values(terms?.OnDemand ?? {})) {
    for (const { unit, pricePerUnit } of Object.values(priceDimensions)) {
      const usd = Number(pricePerUnit?.USD)
      // Reserved capacity that is in use has the price 0.
      if (unit === "Hrs" && usd > 0) prices.set(instanceType, usd)
    }
  }
}

async function* spotPrices(question: PriceQuestion, clock: Clock, roles: AssumedRoles): AsyncGenerator<QuotedPrices> {
  let answered = 0
  const refused: unknown[] = []
  const regions = question.regions.map((region) => ({ place: region, pages: spotIn(region) }))
  yield* merged(regions, REGIONS_AT_ONCE)
  // A region that the account has not enabled, or that its organization denies, reports a wrong key.
  if (answered === 0 && refused.length > 0) throw refused[0]

  async function* spotIn(region: string): AsyncGenerator<QuotedPrices> {
    try {
      const prices = await spotPricesOf(region, question, { clock, roles })
      answered++
      if (prices.size > 0) yield { region, provisioning: "spot", prices }
    } catch (error) {
      if (!(error instanceof CredentialsError)) throw error
      refused.push(error)
    }
  }
}

async function spotPricesOf(
  region: string,
  { credentials, signal, onCall }: PriceQuestion,
  { clock, roles }: { clock: Clock; roles: AssumedRoles },
): Promise<Map<string, number>> {
  const calls = new Ec2Calls({ credentials, region, answerSeconds: ANSWER_SECONDS, pacer: new Pacer(clock), roles })
  const now = clock.now()
  const latest = new Map<string, SpotPrice>()
  let NextToken: string | undefined
  do {
    if (signal.aborted) throw abortedRead()
    onCall()
    const request = {
      // From now on: only current prices, no earlier ones.
      StartTime: now,
      EndTime: now,
      ProductDescriptions: ["Linux/UNIX"],
      MaxResults: SPOT_PRICES_A_PAGE,
      ...(NextToken && { NextToken }),
    }
    const page = await calls.send("DescribeSpotPriceHistory", (ec2, options) =>
      ec2.describeSpotPriceHistory(request, { abortSignal: AbortSignal.any([options.abortSignal, signal]) }),
    )
    for (const price of page.SpotPriceHistory ?? []) addLatest(latest, price)
    NextToken = page.NextToken
  } while (NextToken)
  return dearestOf(latest.values())
}

/** Returns the highest price of all zones. Berth does not choose a VM's zone by price, so it plans with the maximum. */
function dearestOf(all: Iterable<SpotPrice>): Map<string, number> {
  const prices = new Map<string, number>()
  for (const { InstanceType = "", SpotPrice } of all) {
    const usd = Number(SpotPrice)
    if (usd > (prices.get(InstanceType) ?? 0)) prices.set(InstanceType, usd)
  }
  return prices
}

function addLatest(latest: Map<string, SpotPrice>, price: SpotPrice): void {
  const key = `${price.InstanceType}/${price.AvailabilityZone}`
  const known = latest.get(key)
  if (known === undefined || Number(price.Timestamp ?? 0) > Number(known.Timestamp ?? 0)) latest.set(key, price)
}
