import { afterEach, expect, it, vi } from "vitest"
import { systemClock } from "../../core/apis/clock.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { type Catalogue, createCatalogue } from "../router/catalogue.ts"
import { creationWarnings } from "./creation-warnings.ts"
import type { LaunchAccounts } from "./market.ts"

function offer(cpu: number, changes: Partial<Offer> = {}): Offer {
  return {
    cloud: "aws",
    region: "eu-central-1",
    instanceType: `m${cpu}`,
    architecture: "amd64",
    provisioning: "onDemand",
    cpu,
    memoryGib: cpu * 8,
    hourlyPriceUsd: cpu / 10,
    minimumBilledSeconds: 60,
    ...changes,
  }
}

const OFFERS = [
  offer(2),
  offer(4),
  offer(4, { provisioning: "spot", hourlyPriceUsd: 0.1 }),
  offer(4, { cloud: "gcp", region: "europe-west4", hourlyPriceUsd: 0.3 }),
  offer(8, { gpu: { model: "T4", count: 1, vramGib: 16 } }),
  offer(8),
  offer(8, { region: "us-east-1", hourlyPriceUsd: 0.9 }),
]

/** Specs of which each has another price or other warnings than its neighbours. */
const SPECS: JobSpec[] = [
  { image: "a" },
  { image: "a", resources: { cpu: "4" } },
  { image: "a", resources: { cpu: "4" }, provisioning: "spot" },
  { image: "a", resources: { cpu: "4" }, cloud: ["aws"] },
  { image: "a", resources: { memory: "60Gi" } },
  { image: "a", resources: { memory: "60Gi" }, region: ["us-east-1"] },
  { image: "a", resources: { gpu: { model: "T4" } } },
  { image: "a", resources: { disk: "500Gi" } },
  { image: "a", resources: { cpu: "64" } },
  { image: "a", timeoutSeconds: 60, debug: { keepSeconds: 3600 } },
]

let offers: Catalogue
let accounts: ReturnType<LaunchAccounts["of"]>
let now = new Date("2026-01-01T00:00:00Z")

/** A new function remembers nothing yet. */
function warner() {
  const clock = { ...systemClock, now: () => now }
  const market = { offers: { current: () => offers }, launchAccounts: { of: () => accounts }, clock }
  return creationWarnings({ ...market, nextTurn: async () => {} }, { allowsSessions: true })
}

function scans(): () => number {
  const spy = vi.spyOn(offers, "offerAt")
  return () => spy.mock.calls.length
}

afterEach(() => void vi.restoreAllMocks())

it("the warnings of many jobs are those of each alone, whatever was priced before", async () => {
  offers = createCatalogue(OFFERS)
  const shared = warner()
  const given = [
    [],
    [{ cloud: "aws", connection: "main" }],
    [{ cloud: "gcp" }, { cloud: "aws", regions: ["us-east-1"] }],
  ]
  const texts = new Set<string>()
  for (const each of [...given, ...given]) {
    accounts = each
    for (const spec of [...SPECS, ...SPECS.toReversed()]) {
      const warnings = await shared("acme", spec)
      expect(warnings, JSON.stringify(spec)).toEqual(await warner()("acme", spec))
      texts.add(warnings.join())
    }
  }
  expect(texts.size).toBeGreaterThan(8)
})

it("jobs that differ only in what their container does are priced once", async () => {
  offers = createCatalogue(OFFERS)
  accounts = [{ cloud: "aws" }]
  const shared = warner()
  const [first] = await shared("acme", { image: "a", resources: { cpu: "4" } })
  expect(first).toMatch(/cost up to \$288\.00/)
  const scanned = scans()
  const does = { command: ["b"], args: ["c"], env: { D: "e" }, labels: { f: "g" }, tags: ["h"] }
  expect(await shared("acme", { image: "a", resources: { cpu: "4" }, ...does })).toEqual([first])
  expect(scanned()).toBe(0)
})

it("prices are read again after a minute, and from another list at once", async () => {
  offers = createCatalogue(OFFERS)
  accounts = [{ cloud: "aws" }]
  const shared = warner()
  await shared("acme", { image: "a" })
  const scanned = scans()
  now = new Date(now.getTime() + 60_000)
  await shared("acme", { image: "a" })
  expect(scanned()).toBeGreaterThan(0)
  offers = createCatalogue([offer(2, { hourlyPriceUsd: 1 })])
  expect((await shared("acme", { image: "a" }))[0]).toMatch(/cost up to \$720\.00/)
})
