import { describe, expect, test } from "vitest"
import { at, jobOf, launchOf, offerOf, time } from "../../../../test/harness/builders.ts"
import type { StoredLaunch } from "../../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../../core/apis/meta.ts"
import type { StatementStatus, StoredStatement } from "../../../core/apis/statement.ts"
import {
  BY_CRON_JOB,
  byLabel,
  type CostSources,
  collectCells,
  groupCosts,
  groupMonths,
  isOfMonths,
  partsOfDays,
  sumCells,
  withRest,
} from "./costs.ts"
import { FOCUS_COLUMNS, focusCsv } from "./focus.ts"

/** The builders' time is 2026-05-01T12:00:00Z. */
const NOW = at(2 * 3600)
const MAY = { from: "2026-05-01", to: "2026-06-01" }

function statementOf(status: StatementStatus, month = "2026-05"): StoredStatement {
  const metadata = { name: month, uid: month, resourceVersion: "1", generation: 1, creationTimestamp: time(0) }
  return { apiVersion: "", kind: "Statement", metadata, spec: { namespace: "team", month }, status }
}

const daily = (day: number, cloud: string, machineUsd: number) => ({
  ...{ day, cloud, provisioning: "spot", vmSeconds: 3600, machineUsd, diskUsd: 0.25, addressUsd: 0.5 },
})

const spec = { labels: { team: "vision" }, cronJob: "cron-1", offer: offerOf({ cloud: "gcp" }) }
const live = launchOf(jobOf(), 1, { spec, status: { phase: "running", vm: { state: "running", createTime: time(0) } } })
const vm = { state: "terminated" as const, createTime: time(0), terminationTime: time(3600) }
const cost = { machineUsd: 1, diskUsd: 0, addressUsd: 0 }
const ended = launchOf(jobOf(), 2, { spec, status: { phase: "terminated", vm, costUsd: 1, cost } })

const recorded = statementOf({
  spentUsd: 4.5,
  byCloud: { aws: 4.5 },
  daily: [daily(1, "aws", 1), daily(3, "aws", 2)],
  byLabel: [{ key: "team", value: "vision", usd: 3 }],
  byCronJob: [{ uid: "cron-1", usd: 2 }],
  counted: [],
})
const SOURCES: CostSources = { statements: [recorded], launches: [live, ended] }

const withCounted = (name: string): CostSources => ({
  statements: [{ ...recorded, status: { ...recorded.status, counted: [name] } }],
  launches: [ended],
})
const marked: StoredLaunch = {
  ...ended,
  metadata: { ...ended.metadata, annotations: { [ANNOTATIONS.counted]: "2026-05" } },
}

describe("costs of a period", () => {
  test("are those of Statements, of VMs that none counts, and of live VMs so far", () => {
    const cells = collectCells(SOURCES, MAY, NOW)
    expect(sumCells(cells)).toBe(4.5 + 1 + 1.2)
    expect([...groupCosts(cells, "day")]).toEqual([
      ["2026-05-01", 1.75 + 2.2],
      ["2026-05-03", 2.75],
    ])
    expect(Object.fromEntries(groupCosts(cells, "cloud"))).toEqual({ aws: 4.5, gcp: 2.2 })
  })

  test("add up by cloud and by purchase option for each day", () => {
    const days = partsOfDays(collectCells(SOURCES, MAY, NOW))
    expect([...days]).toEqual([
      ["2026-05-01", { byCloud: { aws: 1.75, gcp: 2.2 }, byProvisioning: { spot: 1.75, onDemand: 2.2 } }],
      ["2026-05-03", { byCloud: { aws: 2.75 }, byProvisioning: { spot: 2.75 } }],
    ])
  })

  test("count a VM once", () => {
    expect(sumCells(collectCells(withCounted(ended.metadata.name), MAY, NOW))).toBe(4.5)
    expect(sumCells(collectCells({ statements: [recorded], launches: [marked] }, MAY, NOW))).toBe(4.5)
  })

  test("begin with the first day, and end before the last", () => {
    expect(sumCells(collectCells(SOURCES, { from: "2026-05-02", to: "2026-05-04" }, NOW))).toBe(2.75)
    expect(sumCells(collectCells(SOURCES, { from: "2026-05-02", to: "2026-05-03" }, NOW))).toBe(0)
  })

  test("show the month alone for what its Statement does not keep by day", () => {
    const old = { statements: [statementOf({ spentUsd: 7, byCloud: { aws: 7 } })], launches: [] }
    expect(collectCells(old, MAY, NOW)).toMatchObject([{ day: "2026-05", cloud: "aws", machineUsd: 7 }])
    expect(collectCells(old, { from: "2026-06-01", to: "2026-07-01" }, NOW)).toEqual([])
  })

  test("are of whole months by label and by cronjob, with a rest that completes them", () => {
    const labels = groupMonths(SOURCES, MAY, byLabel("team"), NOW)
    expect(Object.fromEntries(labels)).toEqual({ vision: 5.2 })
    expect([...withRest(labels, 6.7)]).toEqual([
      ["vision", 5.2],
      [null, 1.5],
    ])
    expect(Object.fromEntries(groupMonths(SOURCES, MAY, BY_CRON_JOB, NOW))).toEqual({ "cron-1": 4.2 })
    expect(
      [MAY, { ...MAY, to: "2026-05-20" }, { from: "2026-04-02", to: "2026-05-01" }].map((each) =>
        isOfMonths(each, NOW),
      ),
    ).toEqual([true, true, false])
  })
})

/**
 * Columns of FOCUS 1.2, from its published list (https://focus.finops.org/focus-specification/v1-2/), and the ones that
 * are never null. The validator on PyPI that Python 3.11 installs (focus-validator 1.0.0) knows only a draft with other
 * names, such as Provider, so this list takes its place.
 */
const NEVER_NULL = [
  "BilledCost BillingAccountId BillingAccountType BillingCurrency BillingPeriodEnd BillingPeriodStart ChargeCategory",
  "ChargePeriodEnd ChargePeriodStart ContractedCost EffectiveCost InvoiceIssuerName ListCost PricingQuantity PricingUnit",
  "ProviderName PublisherName ServiceCategory ServiceName ServiceSubcategory ConsumedQuantity ConsumedUnit",
].flatMap((line) => line.split(" "))
const OFTEN_NULL = [
  "AvailabilityZone BillingAccountName CapacityReservationId CapacityReservationStatus ChargeClass ChargeDescription",
  "ChargeFrequency CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountQuantity",
  "CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit ContractedUnitPrice InvoiceId ListUnitPrice",
  "PricingCategory PricingCurrency PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost",
  "PricingCurrencyListUnitPrice RegionId RegionName ResourceId ResourceName ResourceType SkuId SkuMeter SkuPriceDetails",
  "SkuPriceId SubAccountId SubAccountName SubAccountType Tags",
].flatMap((line) => line.split(" "))
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  ChargeCategory: ["Usage", "Purchase", "Tax", "Credit", "Adjustment"],
  ChargeFrequency: ["One-Time", "Recurring", "Usage-Based"],
  PricingCategory: ["Standard", "Dynamic", "Committed", "Other"],
  ServiceCategory: ["Compute", "Networking", "Storage"],
  ServiceSubcategory: ["Virtual Machines", "Block Storage", "Network Infrastructure"],
  BillingCurrency: ["USD"],
}

describe("the export in FOCUS 1.2", () => {
  const cells = collectCells(SOURCES, MAY, NOW)
  const payer = { projectId: "reports-77ab01c4d2", organizationId: '=acme,"x"' }
  const [header = "", ...lines] = focusCsv(cells, payer).trimEnd().split("\r\n")
  const rows = lines.map((line) => {
    const fields = [...`,${line}`.matchAll(/,(?:"((?:[^"]|"")*)"|([^",]*))/g)]
    const values = fields.map(([, quoted, plain = ""]) => quoted?.replaceAll('""', '"') ?? plain)
    return Object.fromEntries(header.split(",").map((column, index) => [column, values[index] ?? ""]))
  })

  test("has the published columns, each once", () => {
    expect(header.split(",")).toEqual([...FOCUS_COLUMNS])
    expect(header.split(",").toSorted()).toEqual([...NEVER_NULL, ...OFTEN_NULL].toSorted())
    expect(rows.length).toBe(7)
  })

  test("has allowed values, times in UTC, and no null where FOCUS forbids it", () => {
    for (const row of rows) {
      for (const column of NEVER_NULL) expect(row[column], column).not.toBe("")
      for (const [column, words] of Object.entries(ALLOWED)) expect(words).toContain(row[column])
      for (const column of header.split(",").filter((name) => /Period(Start|End)$/.test(name))) {
        expect(row[column]).toMatch(/^\d{4}-\d\d-\d\dT00:00:00Z$/)
      }
      const [price, quantity, list] = [row["ListUnitPrice"], row["PricingQuantity"], row["ListCost"]].map(Number)
      expect((price ?? 0) * (quantity ?? 0)).toBeCloseTo(list ?? -1, 5)
    }
  })

  test("adds up to the total, and quotes what a spreadsheet would evaluate", () => {
    expect(rows.reduce((total, row) => total + Number(row["BilledCost"]), 0)).toBeCloseTo(sumCells(cells), 6)
    expect(rows[0]?.["BillingAccountId"]).toBe('\'=acme,"x"')
  })
})
