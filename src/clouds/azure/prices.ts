import type { Clock } from "../../core/apis/clock.ts"
import { type Fetch, guardedFetch } from "../../core/outbound/guarded-fetch.ts"
import { readError, toReadError } from "../../core/outbound/read-errors.ts"
import { merged } from "../pages.ts"
import type { PriceQuestion, PriceReaders, QuotedPrices } from "../prices.ts"

const HOST = "prices.azure.com"
const REGIONS_AT_ONCE = 4
const ANSWER_SECONDS = 60

export interface AzurePricesOptions {
  clock: Clock
  /** Sends the requests, whose hosts are checked before. Default: Node.js' own fetch. */
  send?: Fetch
}

/**
 * Reads Azure's public retail price list, including spot
 * (https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices). It needs no account.
 */
export function azurePrices(options: AzurePricesOptions): PriceReaders {
  return {
    list: (question) =>
      merged(
        question.regions.map((region) => ({ place: region, pages: pricesIn(region, question, options) })),
        REGIONS_AT_ONCE,
      ),
  }
}

/** The fields that are read of an item of the list. */
interface Item {
  currencyCode: string
  tierMinimumUnits: number
  retailPrice: number
  effectiveStartDate: string
  unitOfMeasure: string
  type: string
  productName: string
  skuName: string
  meterName: string
  armSkuName: string
}

interface Page {
  Items?: Item[]
  NextPageLink?: string | null
}

async function* pricesIn(
  region: string,
  question: PriceQuestion,
  { clock, send }: AzurePricesOptions,
): AsyncGenerator<QuotedPrices> {
  const now = clock.now().toISOString()
  const found = { onDemand: new Map<string, Item>(), spot: new Map<string, Item>() }
  const filter = [
    "serviceName eq 'Virtual Machines'",
    `armRegionName eq '${region}'`,
    "priceType eq 'Consumption'",
    "contains(productName, 'Windows') eq false",
  ]
  const query = new URLSearchParams({ currencyCode: "USD", $filter: filter.join(" and ") })
  let next: string | undefined = `https://${HOST}/api/retail/prices?${query}`
  while (next !== undefined) {
    const page: Page = await pageAt(next, question, send)
    for (const item of page.Items ?? []) if (isMachine(item) && item.effectiveStartDate <= now) addLatest(found, item)
    next = page.NextPageLink || undefined
  }
  for (const provisioning of ["onDemand", "spot"] as const) {
    const prices = new Map([...found[provisioning]].map(([size, { retailPrice }]) => [size, retailPrice]))
    if (prices.size > 0) yield { region, provisioning, prices }
  }
}

async function pageAt(url: string, { signal, onCall }: PriceQuestion, send: Fetch | undefined): Promise<Page> {
  const ending = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_SECONDS * 1000)])
  onCall()
  try {
    const response = await guardedFetch({ isOwn: (host) => host === HOST, signal: ending, send })(url)
    if (!response.ok) {
      await response.body?.cancel()
      throw readError({ status: response.status, message: `the price list answered with HTTP ${response.status}` })
    }
    return (await response.json()) as Page
  } catch (error) {
    throw toReadError(error, signal, () => ({ message: `${HOST} returned no readable answer` }))
  }
}

/** Windows, whole hosts and offers on other terms have the same name. */
function isMachine({ currencyCode, tierMinimumUnits, unitOfMeasure, type, productName, meterName, armSkuName }: Item) {
  if (currencyCode !== "USD" || tierMinimumUnits !== 0 || unitOfMeasure !== "1 Hour" || type !== "Consumption")
    return false
  if (/Windows|Dedicated|Cloud ?Services/.test(productName)) return false
  return armSkuName !== "" && !meterName.endsWith("Low Priority")
}

/** Keeps the newest of several meters, or the more expensive of two from the same day. */
function addLatest(found: Record<QuotedPrices["provisioning"], Map<string, Item>>, item: Item): void {
  const prices = /\bSpot\b/.test(item.meterName) || /\bSpot\b/.test(item.skuName) ? found.spot : found.onDemand
  const known = prices.get(item.armSkuName)
  const [start, before] = [item.effectiveStartDate, known?.effectiveStartDate ?? ""]
  const isDearer = start === before && item.retailPrice > (known?.retailPrice ?? 0)
  if (start > before || isDearer) prices.set(item.armSkuName, item)
}
