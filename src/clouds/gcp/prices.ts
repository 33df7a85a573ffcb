import type { PricedMachine, PriceQuestion, PriceReaders, QuotedPrices } from "../prices.ts"
import { type GoogleOptions, googleAs, googleError } from "./google.ts"

/**
 * The SKUs of Compute Engine in Google's public price list
 * (https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list).
 */
const SKUS = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
const SKUS_A_PAGE = "5000"
const FIELDS = "skus(description,category(resourceFamily,usageType),serviceRegions,pricingInfo),nextPageToken"
/** The list is public, but the scope of all other reads does not cover it. */
const SCOPES = ["https://www.googleapis.com/auth/cloud-billing.readonly"]

/**
 * Google's names for the parts of machines, by series of machine types. Contains only series whose price is the sum of
 * their vCPUs, memory and GPUs. The prices in the shipped list are such sums. Missing are series with local disks
 * (-lssd, Z3, A2 Ultra, A3) or with surcharges (M2, M4). So are those with a price of their own (f1-micro, g1-small,
 * G4).
 */
const SERIES: Readonly<Record<string, string>> = {
  a2: "A2 Instance",
  c2: "Compute optimized",
  c2d: "C2D AMD Instance",
  c3: "C3 Instance",
  c3d: "C3D Instance",
  c4: "C4 Instance",
  c4a: "C4A Arm Instance",
  c4d: "C4D Instance",
  c4n: "C4N Instance",
  e2: "E2 Instance",
  g2: "G2 Instance",
  h3: "H3 Instance",
  m1: "Memory-optimized Instance",
  m3: "M3 Memory-optimized Instance",
  n1: "N1 Predefined Instance",
  n2: "N2 Instance",
  n2d: "N2D AMD Instance",
  n4: "N4 Instance",
  n4a: "N4A Instance",
  n4d: "N4D Instance",
  t2a: "T2A Arm Instance",
  t2d: "T2D AMD Instance",
}
const WITH_LOCAL_DISKS = /lssd|^a2-ultragpu-/

/** Built-in GPUs of machines, by series. */
const BUILT_IN_GPUS: Readonly<Record<string, string>> = { a2: "Nvidia Tesla A100", g2: "Nvidia L4" }

/** Reads the prices of Compute Engine's machines, on demand and spot, and sums them from the prices of their parts. */
export function gcpPrices(options: GoogleOptions = {}): PriceReaders {
  return { list: (question) => listPrices(question, options) }
}

async function* listPrices(question: PriceQuestion, options: GoogleOptions): AsyncGenerator<QuotedPrices> {
  const rates = await allRates(question, options)
  for (const region of question.regions) {
    for (const provisioning of ["onDemand", "spot"] as const) {
      const rateOf = (part: string) => rates.get(rateKey(region, provisioning, part))
      const prices = new Map(
        question.machines.flatMap((machine) => {
          const price = priceOf(machine, rateOf)
          return price === undefined ? [] : [[machine.instanceType, price] as const]
        }),
      )
      if (prices.size > 0) yield { region, provisioning, prices }
    }
  }
}

/** Returns the hourly prices of the parts. */
async function allRates({ credentials, signal, onCall }: PriceQuestion, options: GoogleOptions) {
  const rates = new Map<string, number>()
  try {
    const google = await googleAs(credentials, { ...options, scopes: SCOPES }, signal)
    for (let pageToken: string | undefined = ""; pageToken !== undefined; ) {
      const query: Record<string, string> = {
        currencyCode: "USD",
        pageSize: SKUS_A_PAGE,
        fields: FIELDS,
        ...(pageToken && { pageToken }),
      }
      onCall()
      const { data }: { data: SkuPage } = await google.request<SkuPage>({
        url: `${SKUS}?${new URLSearchParams(query)}`,
      })
      for (const sku of data.skus ?? []) addRate(rates, sku)
      pageToken = data.nextPageToken || undefined
    }
    return rates
  } catch (error) {
    throw googleError(error, signal)
  }
}

interface SkuPage {
  skus?: Sku[]
  nextPageToken?: string
}

interface Sku {
  description?: string
  category?: { resourceFamily?: string; usageType?: string }
  serviceRegions?: string[]
  pricingInfo?: { pricingExpression?: PricingExpression }[]
}

interface PricingExpression {
  usageUnit?: string
  tieredRates?: { unitPrice?: { currencyCode?: string; units?: string; nanos?: number } }[]
}

/** Series and part: a core, memory, or a whole GPU. */
const DESCRIPTION =
  /^(?:Spot Preemptible )?(?<of>.+?) (?<part>Core|Ram|GPU)(?: attached to Spot Preemptible VMs)? running in /
const UNITS: Readonly<Record<string, string>> = { Core: "h", GPU: "h", Ram: "GiBy.h" }
const PROVISIONINGS: Readonly<Record<string, QuotedPrices["provisioning"]>> = {
  OnDemand: "onDemand",
  Preemptible: "spot",
}

function addRate(rates: Map<string, number>, { description = "", category = {}, ...sku }: Sku): void {
  const { of = "", part = "" } = DESCRIPTION.exec(description)?.groups ?? {}
  const provisioning = PROVISIONINGS[category.usageType ?? ""]
  // Some spot GPUs are called on demand in this field.
  const isSpot = description.includes("Spot Preemptible")
  if (part === "" || category.resourceFamily !== "Compute" || isSpot !== (provisioning === "spot")) return
  const { usageUnit, tieredRates = [] } = sku.pricingInfo?.at(-1)?.pricingExpression ?? {}
  const { currencyCode, units = "0", nanos = 0 } = tieredRates[0]?.unitPrice ?? {}
  const usd = Number(units) + nanos / 1e9
  if (usageUnit !== UNITS[part] || currencyCode !== "USD" || tieredRates.length !== 1 || !(usd > 0)) return
  for (const region of sku.serviceRegions ?? []) {
    if (provisioning !== undefined) rates.set(rateKey(region, provisioning, `${of} ${part}`), usd)
  }
}

function rateKey(region: string, provisioning: string, part: string): string {
  return `${region}/${provisioning}/${part}`.toLowerCase()
}

/** Returns a machine's price as the sum of its parts; undefined if the price of one is unknown. */
function priceOf(machine: PricedMachine, rateOf: (part: string) => number | undefined): number | undefined {
  const { instanceType, cpu, memoryGib, gpu } = machine
  const [type = "", attached] = instanceType.split("_")
  const series = type.split("-")[0] ?? ""
  const name = SERIES[series]
  if (name === undefined || WITH_LOCAL_DISKS.test(type)) return undefined
  // `1xnvidia-tesla-t4` is Google's own name of the card, and "Nvidia Tesla T4" that of its price.
  const card = attached?.replace(/^\d+x/, "").replaceAll("-", " ") ?? BUILT_IN_GPUS[series]
  const core = rateOf(`${name} Core`)
  const ram = rateOf(`${name} Ram`)
  const gpuRate = gpu === undefined ? 0 : rateOf(`${card} GPU`)
  if (core === undefined || ram === undefined || gpuRate === undefined) return undefined
  return cpu * core + memoryGib * ram + (gpu?.count ?? 0) * gpuRate
}
