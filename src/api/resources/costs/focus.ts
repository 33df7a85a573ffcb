import { vmsOf } from "../../../clouds/definitions.ts"
import type { Cell } from "./costs.ts"

/** Facts about the project that pays. */
export interface Payer {
  projectId: string
  organizationId: string
}

/** Parts of a VM as FOCUS names them. */
const PARTS = [
  {
    part: "machineUsd",
    service: "Virtual machines",
    category: "Compute",
    subcategory: "Virtual Machines",
    meter: "Machine",
  },
  { part: "diskUsd", service: "Boot disks", category: "Storage", subcategory: "Block Storage", meter: "Disk" },
  {
    part: "addressUsd",
    service: "Public IPv4 addresses",
    category: "Networking",
    subcategory: "Network Infrastructure",
    meter: "Address",
  },
] as const

/** Columns of FOCUS 1.2 (https://focus.finops.org), in the order of the specification. */
export const FOCUS_COLUMNS = [
  "AvailabilityZone",
  "BilledCost",
  "BillingAccountId",
  "BillingAccountName",
  "BillingAccountType",
  "BillingCurrency",
  "BillingPeriodEnd",
  "BillingPeriodStart",
  "CapacityReservationId",
  "CapacityReservationStatus",
  "ChargeCategory",
  "ChargeClass",
  "ChargeDescription",
  "ChargeFrequency",
  "ChargePeriodEnd",
  "ChargePeriodStart",
  "CommitmentDiscountCategory",
  "CommitmentDiscountId",
  "CommitmentDiscountName",
  "CommitmentDiscountQuantity",
  "CommitmentDiscountStatus",
  "CommitmentDiscountType",
  "CommitmentDiscountUnit",
  "ConsumedQuantity",
  "ConsumedUnit",
  "ContractedCost",
  "ContractedUnitPrice",
  "EffectiveCost",
  "InvoiceId",
  "InvoiceIssuerName",
  "ListCost",
  "ListUnitPrice",
  "PricingCategory",
  "PricingCurrency",
  "PricingCurrencyContractedUnitPrice",
  "PricingCurrencyEffectiveCost",
  "PricingCurrencyListUnitPrice",
  "PricingQuantity",
  "PricingUnit",
  "ProviderName",
  "PublisherName",
  "RegionId",
  "RegionName",
  "ResourceId",
  "ResourceName",
  "ResourceType",
  "ServiceCategory",
  "ServiceName",
  "ServiceSubcategory",
  "SkuId",
  "SkuMeter",
  "SkuPriceDetails",
  "SkuPriceId",
  "SubAccountId",
  "SubAccountName",
  "SubAccountType",
  "Tags",
] as const
type FocusRow = Partial<Record<(typeof FOCUS_COLUMNS)[number], string | number>>

/**
 * Returns costs as CSV in the columns of FOCUS 1.2. Each row is a part of the VMs of a day, a cloud and a purchase option.
 * Empty columns are null. Pure.
 */
export function focusCsv(cells: readonly Cell[], payer: Payer): string {
  const rows = cells.flatMap((cell) => rowsOf(cell, payer))
  const lines = rows.map((row) => FOCUS_COLUMNS.map((column) => csvField(row[column])).join(","))
  return [FOCUS_COLUMNS.join(","), ...lines].map((line) => `${line}\r\n`).join("")
}

function rowsOf(cell: Cell, { projectId, organizationId }: Payer): FocusRow[] {
  const { cloud, provisioning, vmSeconds } = cell
  const month = cell.day.slice(0, 7)
  const days =
    cell.day.length > 7 ? { from: cell.day, to: nextDay(cell.day) } : { from: `${month}-01`, to: nextMonth(month) }
  const provider = vmsOf(cloud)?.billingName ?? cloud
  const hours = vmSeconds === 0 ? 1 : vmSeconds / 3600
  const shared: FocusRow = {
    BillingAccountId: organizationId,
    BillingAccountName: organizationId,
    BillingAccountType: "Organization",
    BillingCurrency: "USD",
    BillingPeriodStart: midnight(`${month}-01`),
    BillingPeriodEnd: midnight(nextMonth(month)),
    ChargeCategory: "Usage",
    ChargeFrequency: "Usage-Based",
    ChargePeriodStart: midnight(days.from),
    ChargePeriodEnd: midnight(days.to),
    ConsumedQuantity: hours,
    ConsumedUnit: "Hours",
    InvoiceIssuerName: provider,
    PricingCategory: provisioning === "spot" ? "Dynamic" : "Standard",
    PricingCurrency: "USD",
    PricingQuantity: hours,
    PricingUnit: "Hours",
    ProviderName: provider,
    PublisherName: provider,
    SubAccountId: projectId,
    SubAccountName: projectId,
    SubAccountType: "Project",
  }
  return PARTS.filter(({ part }) => cell[part] > 0).map(({ part, service, category, subcategory, meter }) => {
    const usd = cell[part]
    // Not rounded: times the quantity, it "MUST produce the ListCost" (FOCUS 1.2, List Cost).
    const unitPrice = usd / hours
    return {
      ...shared,
      BilledCost: usd,
      ContractedCost: usd,
      EffectiveCost: usd,
      ListCost: usd,
      PricingCurrencyEffectiveCost: usd,
      ContractedUnitPrice: unitPrice,
      ListUnitPrice: unitPrice,
      PricingCurrencyContractedUnitPrice: unitPrice,
      PricingCurrencyListUnitPrice: unitPrice,
      ChargeDescription: `${service}, ${provisioning}, as Berth calculated them`,
      ServiceCategory: category,
      ServiceName: service,
      ServiceSubcategory: subcategory,
      SkuId: `${cloud}-${meter.toLowerCase()}`,
      SkuMeter: meter,
      SkuPriceId: `${cloud}-${meter.toLowerCase()}-${provisioning}`,
    }
  })
}

function midnight(day: string): string {
  return `${day}T00:00:00Z`
}

function nextDay(day: string): string {
  return new Date(Date.parse(day) + 24 * 3600 * 1000).toISOString().slice(0, 10)
}

function nextMonth(month: string): string {
  const [year = 0, number = 0] = month.split("-").map(Number)
  return new Date(Date.UTC(year, number, 1)).toISOString().slice(0, 10)
}

/** Returns a field of RFC 4180. Spreadsheets evaluate a text that begins like a formula, so it gets a quote. */
function csvField(value: string | number | undefined): string {
  if (value === undefined) return ""
  if (typeof value === "number") return decimal(value)
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/** Returns an amount below 1e21 without an exponent, which FOCUS forbids (FOCUS 1.2, Numeric Format). */
function decimal(value: number): string {
  const [digits = "", exponent] = String(value).split("e-")
  return exponent === undefined ? digits : `0.${"0".repeat(Number(exponent) - 1)}${digits.replace(".", "")}`
}
