import fc from "fast-check"
import { expect, test } from "vitest"
import type { JobSpec } from "../../src/core/apis/job.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { advise } from "../../src/market/advice/advice.ts"
import type { MeasuredRun } from "../../src/market/advice/needs.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { appraise } from "../../src/market/placement/market.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { createCatalogue } from "../../src/market/router/catalogue.ts"
import type { PartPrices } from "../../src/market/router/parts.ts"
import { jobOf } from "../harness/builders.ts"
import { isNightly } from "../nightly.ts"
import { bruteForce, type OracleGroup, type OracleWorld } from "./advice-oracle.ts"

/** Groups that the brute force answers. */
const GROUPS = isNightly ? 50_000 : 1000
const NOW = new Date("2026-11-28T00:00:00Z")
const DAY_MS = 86_400_000

const CLOUDS = ["aws", "gcp", "azure"]
/** Regions, each in the macro-region before its dash. */
const REGIONS = ["eu-1", "eu-2", "us-1"]
const DISK_USD = 0.0001
const ADDRESS_USD = 0.005
const DEFAULT_DISK_GIB: Record<string, number> = { aws: 20, gcp: 10, azure: 30 }

const world = (offers: readonly Offer[], accounts: readonly string[]): OracleWorld => ({
  offers,
  accounts,
  isIn: (offer, region) => offer.region === region || offer.region.startsWith(`${region}-`),
  parts: ({ cloud }, diskGib) => ({
    diskUsd: Math.round(Math.max(DEFAULT_DISK_GIB[cloud] ?? 0, diskGib ?? 0) * DISK_USD * 1e6) / 1e6,
    addressUsd: ADDRESS_USD,
  }),
})

const PARTS: PartPrices = {
  bootDiskOf: ({ cloud }) => ({ leastGib: DEFAULT_DISK_GIB[cloud] ?? 0, imageGib: 8, types: ["d"], performance: {} }),
  diskUsd: (_, { sizeGib }) => sizeGib * DISK_USD,
  isDiskPriceKnown: () => true,
  addressUsd: () => ADDRESS_USD,
}

const machine = fc.record({
  cloud: fc.constantFrom(...CLOUDS),
  architecture: fc.constantFrom("amd64" as const, "arm64" as const),
  cpu: fc.constantFrom(0.2, 0.4, 1, 2, 4, 8, 16),
  memoryGib: fc.constantFrom(0.5, 1, 2, 4, 8, 16, 32, 64),
  gpu: fc.option(
    fc.record({
      model: fc.constantFrom("T4", "L4", "AMD:MI300X"),
      count: fc.constantFrom(1, 2, 4),
      vramGib: fc.constantFrom(16, 24),
    }),
    { nil: undefined, freq: 3 },
  ),
  minimumBilledSeconds: fc.constantFrom(60, 3600),
  prices: fc.array(
    fc.record({
      region: fc.constantFrom(...REGIONS),
      provisioning: fc.constantFrom("onDemand" as const, "spot" as const),
      // Few prices, so that some are equal.
      hourlyPriceUsd: fc.integer({ min: 1, max: 60 }).map((cents) => cents / 100),
    }),
    { minLength: 1, maxLength: 4 },
  ),
})

const offersOf = fc.array(machine, { minLength: 12, maxLength: 40 }).map((machines) =>
  machines.flatMap(({ prices, gpu, ...rest }, index) => {
    const byPlace = new Map(prices.map((price) => [`${price.region} ${price.provisioning}`, price]))
    return [...byPlace.values()].map(
      (price): Offer => ({ ...rest, ...price, ...(gpu && { gpu }), instanceType: `m${index}` }),
    )
  }),
)

const run = fc.record({
  daysAgo: fc.integer({ min: 0, max: 40 }).map((days) => days + 0.5),
  seconds: fc.integer({ min: 1, max: 20_000 }),
  cpu: fc.double({ min: 0.01, max: 1.6, noNaN: true }),
  machineCpu: fc.option(fc.constantFrom(0.4, 1, 2, 4, 8), { freq: 8 }),
  memoryMib: fc.oneof(fc.integer({ min: 5, max: 6000 }), fc.constantFrom(512, 1434, 2764)),
  vramMib: fc.option(fc.integer({ min: 10, max: 20_000 }), { freq: 8 }),
  diskGib: fc.option(fc.double({ min: 0.1, max: 60, noNaN: true }), { freq: 8 }),
})

const group: fc.Arbitrary<OracleGroup> = fc.record({
  asked: fc.record({
    cpu: fc.option(fc.constantFrom(0.2, 1, 4, 8)),
    memoryGib: fc.option(fc.constantFrom(0.875, 3.5, 7.5, 12, 15.5, 30)),
    vramGib: fc.option(fc.constantFrom(10, 24, 48), { freq: 1 }),
    diskGib: fc.option(fc.constantFrom(10, 100, 500)),
  }),
  provisioning: fc.constantFrom("onDemand" as const, "spot" as const, "spotFirst" as const),
  clouds: fc.oneof(fc.constant([]), fc.subarray(CLOUDS, { minLength: 2 })),
  regions: fc.constantFrom([], [], ["eu"], ["us-1"], ["eu-2", "us"]),
  architectures: fc.constantFrom([], ["amd64" as const], ["arm64" as const]),
  timeoutSeconds: fc.option(fc.constantFrom(60, 7200)),
  runs: fc.array(run, { minLength: 2, maxLength: 6 }),
})

function specOf({ asked, provisioning, clouds, regions, timeoutSeconds }: OracleGroup): JobSpec {
  const resources = {
    ...(asked.cpu !== null && { cpu: String(asked.cpu) }),
    ...(asked.memoryGib !== null && { memory: `${asked.memoryGib}Gi` }),
    ...(asked.vramGib !== null && { gpu: { vram: `${asked.vramGib}Gi` } }),
    ...(asked.diskGib !== null && { disk: `${asked.diskGib}Gi` }),
  }
  return {
    image: "trainer",
    resources,
    provisioning,
    cloud: [...clouds],
    region: [...regions],
    ...(timeoutSeconds !== null && { timeoutSeconds }),
  }
}

function runsOf({ runs }: OracleGroup): MeasuredRun[] {
  return runs.map(({ daysAgo, seconds, cpu, machineCpu, memoryMib, vramMib, diskGib }) => ({
    endedAt: NOW.getTime() - daysAgo * DAY_MS,
    seconds,
    cpuPeak: cpu,
    memoryPeakMib: memoryMib,
    ...(machineCpu !== null && { machineCpu }),
    ...(vramMib !== null && { vramPeakMib: vramMib }),
    ...(diskGib !== null && { diskPeakGib: diskGib }),
  }))
}

test(`the advice is that of a brute force over all offers, for ${GROUPS} groups`, { timeout: 3_600_000 }, () => {
  const found = { advice: 0, none: 0 }
  const groupsOf = (_: string, region: string) => [region.slice(0, 2)]
  fc.assert(
    fc.property(group, offersOf, fc.subarray(CLOUDS, { minLength: 2 }), (one, offers, accounts) => {
      const expected = bruteForce(one, world(offers, accounts))
      const facts = {
        namespace: "team",
        offers: createCatalogue(offers, groupsOf, PARTS),
        launchAccounts: accounts.map((cloud) => ({ cloud })),
        launches: launchHistory([]),
      }
      const market = appraise(facts, NOW, JOB_DEFAULTS)
      const image = { state: "known" as const, architectures: one.architectures }
      const latest = jobOf({ spec: specOf(one) })
      const advice = advise({ latest, runs: runsOf(one) }, { ...market, image }, NOW, JOB_DEFAULTS)
      found[advice === undefined ? "none" : "advice"]++
      expect(
        advice && {
          current: advice.current.offer,
          advised: advice.advised.offer,
          savingUsd: advice.savingUsdPerMonth,
        },
      ).toEqual(expected)
    }),
    { numRuns: GROUPS, seed: 52 },
  )
  // The sample must contain both.
  expect(found.advice).toBeGreaterThan(GROUPS / 10)
  expect(found.none).toBeGreaterThan(GROUPS / 10)
})
