import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { billedUsd, roundUsd } from "../../src/core/apis/money.ts"
import { type Offer, offerKey } from "../../src/core/apis/offer.ts"
import { createCatalogue } from "../../src/market/router/catalogue.ts"
import type { Cooldown, LaunchAccount } from "../../src/market/router/cooldown.ts"
import { rankedUsd } from "../../src/market/router/cost.ts"
import { egressUsd } from "../../src/market/router/egress.ts"
import type { LostWork } from "../../src/market/router/lost-work.ts"
import type { Requirements } from "../../src/market/router/requirements.ts"
import { type RouteContext, rankPlacements, route } from "../../src/market/router/route.ts"

/** Seed of the offers and questions. Another seed gives others. */
const SEED = 20_261_122

const REGIONS: Record<string, string[]> = {
  "us-1": ["us"],
  "us-2": ["us"],
  "eu-1": ["eu", "eea"],
  "eu-2": ["eu", "uk"],
  lonely: [],
}
const groupsOf = (_: string, region: string) => REGIONS[region] ?? []
const catalogue = (offers: readonly Offer[]) => createCatalogue(offers, groupsOf)
const NOW = new Date("2026-05-01T12:00:00Z")

const cloud = fc.constantFrom("aws", "gcp")
const region = fc.constantFrom(...Object.keys(REGIONS))
const anyOffer: fc.Arbitrary<Offer> = fc
  .record(
    {
      cloud,
      region,
      zone: fc.constantFrom("a", "b"),
      instanceType: fc.constantFrom("m1.s", "m1.l", "c2.s", "c2.l", "g3.s", "g3.l"),
      architecture: fc.constantFrom("amd64" as const, "arm64" as const),
      provisioning: fc.constantFrom("onDemand" as const, "spot" as const),
      cpu: fc.constantFrom(0.5, 1, 2, 4, 8),
      memoryGib: fc.constantFrom(1, 2, 4, 8, 64),
      gpu: fc.constantFrom(
        { model: "A100", count: 1, vramGib: 40 },
        { model: "A100-80GB", count: 2, vramGib: 80 },
        { model: "T4", count: 0.5, vramGib: 16 },
        { model: "AMD:MI25", count: 1, vramGib: 16 },
      ),
      hourlyPriceUsd: fc.constantFrom(0, 0.01, 0.02, 0.021, 0.04, 1),
      minimumBilledSeconds: fc.constantFrom(0, 60, 3600),
    },
    {
      requiredKeys: [
        "cloud",
        "region",
        "instanceType",
        "architecture",
        "provisioning",
        "cpu",
        "memoryGib",
        "hourlyPriceUsd",
        "minimumBilledSeconds",
      ],
    },
  )
  .map((offer) => offer as Offer)
const anyOffers = fc.uniqueArray(anyOffer, { selector: offerKey, minLength: 1, maxLength: 120, size: "max" })

const anyRequirements: fc.Arbitrary<Requirements> = fc
  .record(
    {
      cpu: fc.constantFrom(0.25, 1, 2, 4),
      memoryGib: fc.constantFrom(0.5, 1.75, 2, 3.5, 4, 32),
      memoryOf: fc.constant("machine" as const),
      gpu: fc.constantFrom(
        { vramGib: 8 },
        { vramGib: 60 },
        { model: "a100", count: 1 },
        { model: "A100-80GB", vramGib: 100 },
      ),
      clouds: fc.subarray(["aws", "gcp"]),
      regions: fc.subarray(["us", "eu", "uk", "eea", "us-1", "eu-2", "lonely"]),
      architectures: fc.subarray(["amd64" as const, "arm64" as const]),
      provisioning: fc.constantFrom("onDemand" as const, "spot" as const, "spotFirst" as const),
      maxHourlyPriceUsd: fc.constantFrom(0.015, 0.5),
    },
    { requiredKeys: ["cpu", "memoryGib", "clouds", "regions", "architectures", "provisioning"] },
  )
  .map((requirements) => requirements as Requirements)

const anyCooldown: fc.Arbitrary<Cooldown> = fc
  .record(
    {
      cloud,
      region,
      zone: fc.constantFrom("a", "b"),
      family: fc.constantFrom("m1", "c2", "g3"),
      provisioning: fc.constantFrom("onDemand" as const, "spot" as const),
      minCpu: fc.constantFrom(1, 4),
      connection: fc.constantFrom("one", "two"),
      until: fc.constantFrom(new Date(NOW.getTime() - 1), NOW, new Date(NOW.getTime() + 1000)),
    },
    { requiredKeys: ["cloud", "until"] },
  )
  .map((cooldown) => cooldown as Cooldown)

const anyContext: fc.Arbitrary<RouteContext> = fc.record({
  launchAccounts: fc.subarray<LaunchAccount>([
    { cloud: "aws", connection: "one" },
    { cloud: "aws", connection: "two" },
    { cloud: "gcp", connection: "one" },
  ]),
  cooldowns: fc.array(anyCooldown, { maxLength: 2 }),
  room: fc.constantFrom({}, {}, {}, { hourlyUsd: 0.02 }, { monthlyUsd: 0.03 }),
  budget: fc.constantFrom(undefined, undefined, { leftUsd: 0.01, leastSeconds: 420 }),
  expectedSeconds: fc.constantFrom(10, 600, 7200),
  now: fc.constant(NOW),
  buckets: fc.array(fc.record({ cloud, region, gib: fc.constantFrom(0.01, 0.2, 5) }), { maxLength: 2 }),
  count: fc.constantFrom(1, 3, 200),
})

/** Preemptions that differ by region. */
const anyLostWork: fc.Arbitrary<LostWork | undefined> = fc.option(
  fc.record({
    hours: fc.constantFrom(0.05, 3),
    rateOf: fc
      .record({ usual: fc.constantFrom(0, 0.005, 0.5), lonely: fc.constantFrom(0, 0.1) })
      .map(({ usual, lonely }) => (offer: Offer) => ({
        perHour: offer.region === "lonely" ? lonely : usual,
        hours: 0,
        preemptions: 0,
      })),
  }),
  { nil: undefined },
)

/** Ranks by hand: every offer with every account, one check after the other. Uses models as these offers name them. */
function naive(offers: readonly Offer[], wanted: Requirements, context: RouteContext): number[] {
  const totals = { spot: [] as number[], onDemand: [] as number[] }
  for (const offer of offers.filter((each) => fits(each, wanted) && isInBudget(each, context))) {
    const { expectedSeconds, room, buckets = [] } = context
    const place = (cloudName: string, name: string) => ({
      cloud: cloudName,
      region: name,
      macroRegion: REGIONS[name]?.[0],
    })
    // A bucket in a region without offers has no macro-region in the catalogue.
    const known = (name: string, of: string) => offers.some((each) => each.region === name && each.cloud === of)
    const traffic = buckets.map((bucket) => {
      const { macroRegion } = place(bucket.cloud, bucket.region)
      const from = { ...bucket, macroRegion: known(bucket.region, bucket.cloud) ? macroRegion : undefined }
      return egressUsd(from, place(offer.cloud, offer.region))
    })
    const billed = billedUsd(offer.hourlyPriceUsd, expectedSeconds, offer.minimumBilledSeconds)
    const total = roundUsd(billed + traffic.reduce((sum, usd) => sum + usd, 0))
    if (offer.hourlyPriceUsd > (room.hourlyUsd ?? 1e9) || total > (room.monthlyUsd ?? 1e9)) continue
    for (const launchAccount of context.launchAccounts) {
      if (
        launchAccount.cloud !== offer.cloud ||
        context.cooldowns.some((cooldown) => isKept(cooldown, offer, launchAccount))
      )
        continue
      totals[offer.provisioning].push(total + lostUsd(offer, billed, context))
    }
  }
  for (const each of Object.values(totals)) each.sort((a, b) => a - b)
  return [...totals.spot, ...totals.onDemand].slice(0, context.count)
}

function lostUsd(offer: Offer, usd: number, { lostWork }: RouteContext): number {
  return lostWork === undefined || offer.provisioning === "onDemand"
    ? 0
    : roundUsd(usd * lostWork.rateOf(offer).perHour * lostWork.hours)
}

function isInBudget({ hourlyPriceUsd, minimumBilledSeconds }: Offer, { budget }: RouteContext): boolean {
  const { leftUsd, leastSeconds } = budget ?? { leftUsd: 1e9, leastSeconds: 0 }
  return billedUsd(hourlyPriceUsd, leastSeconds, minimumBilledSeconds) <= leftUsd
}

function memoryFor({ memoryOf }: Requirements, { memoryGib }: Offer): number {
  return memoryOf === "machine" ? memoryGib : Math.max(memoryGib - 0.5, (memoryGib * 7) / 8)
}

function fits(offer: Offer, wanted: Requirements): boolean {
  const { gpu } = wanted
  const models: Record<string, string[]> = { a100: ["A100", "A100-80GB"], "A100-80GB": ["A100-80GB"] }
  const names = [offer.region, ...(REGIONS[offer.region] ?? [])]
  return [
    offer.cpu >= wanted.cpu,
    memoryFor(wanted, offer) >= wanted.memoryGib,
    wanted.clouds.length === 0 || wanted.clouds.includes(offer.cloud),
    wanted.regions.length === 0 || wanted.regions.some((name) => names.includes(name)),
    wanted.architectures.length === 0 || wanted.architectures.includes(offer.architecture),
    wanted.provisioning === "spotFirst" || wanted.provisioning === offer.provisioning,
    offer.hourlyPriceUsd <= (wanted.maxHourlyPriceUsd ?? 1e9),
    gpu === undefined || (offer.gpu !== undefined && !offer.gpu.model.startsWith("AMD:")),
    gpu?.model === undefined || models[gpu.model]?.includes(offer.gpu?.model ?? ""),
    (offer.gpu?.count ?? 0) >= (gpu?.count ?? 0),
    (offer.gpu?.count ?? 0) * (offer.gpu?.vramGib ?? 0) >= (gpu?.vramGib ?? 0),
  ].every(Boolean)
}

function isKept(cooldown: Cooldown, offer: Offer, launchAccount: LaunchAccount): boolean {
  const family = offer.cloud === "aws" ? offer.instanceType.split(".")[0] : offer.instanceType
  return (
    cooldown.until > NOW &&
    cooldown.cloud === offer.cloud &&
    [offer.region, undefined].includes(cooldown.region) &&
    (cooldown.zone === undefined || cooldown.zone === offer.zone) &&
    [family, undefined].includes(cooldown.family) &&
    [offer.provisioning, undefined].includes(cooldown.provisioning) &&
    (cooldown.minCpu ?? 0) <= offer.cpu &&
    [launchAccount.connection, undefined].includes(cooldown.connection)
  )
}

const best = (offers: readonly Offer[], requirements: Requirements, context: RouteContext) =>
  rankPlacements(requirements, catalogue(offers), { ...context, count: 1 })[0]?.totalUsd ?? Number.POSITIVE_INFINITY

describe("the router, for any offers, requirements, accounts, cooldowns, caps and buckets", () => {
  test("ranks the placements that a check of every offer finds, by their cost", () => {
    let placed = 0
    fc.assert(
      fc.property(anyOffers, anyRequirements, anyContext, anyLostWork, (offers, requirements, others, lostWork) => {
        const context = { ...others, ...(lostWork && { lostWork }) }
        const totals = rankPlacements(requirements, catalogue(offers), context).map(rankedUsd)
        expect(totals).toEqual(naive(offers, requirements, context))
        if (totals.length > 0) placed++
      }),
      { numRuns: 1000, seed: SEED },
    )
    expect(placed).toBeGreaterThan(200)
  })

  test("accounts for every matching offer if there is no placement", () => {
    fc.assert(
      fc.property(anyOffers, anyRequirements, anyContext, (offers, requirements, context) => {
        const { placements, shortfall } = route(requirements, catalogue(offers), context)
        expect(shortfall === undefined).toBe(placements.length > 0)
        if (shortfall === undefined) return
        const fitting = offers.filter((offer) => fits(offer, requirements))
        const unpaid = fitting.filter(
          (offer) => !context.launchAccounts.some((launchAccount) => launchAccount.cloud === offer.cloud),
        )
        expect(shortfall.fitting).toBe(fitting.length)
        const { cooldowns, overCaps, overBudget } = shortfall
        expect(cooldowns.offers + overCaps.offers + overBudget.offers).toBe(fitting.length - unpaid.length)
        expect(shortfall.unconnected).toEqual([...new Set(unpaid.map((offer) => offer.cloud))].sort())
      }),
      { numRuns: 500, seed: SEED },
    )
  })

  test("never raises the price for one more offer", () => {
    fc.assert(
      fc.property(anyOffers, anyOffer, anyRequirements, anyContext, (offers, more, requirements, context) => {
        fc.pre(requirements.provisioning !== "spotFirst" && (context.buckets ?? []).length === 0)
        fc.pre(!offers.some((offer) => offerKey(offer) === offerKey(more)))
        expect(best([...offers, more], requirements, context)).toBeLessThanOrEqual(best(offers, requirements, context))
      }),
      { numRuns: 500, seed: SEED },
    )
  })

  test("never raises the price for one requirement less", () => {
    const less: ((requirements: Requirements) => Requirements)[] = [
      (all) => ({ ...all, cpu: 0 }),
      (all) => ({ ...all, memoryGib: 0 }),
      (all) => ({ ...all, clouds: [] }),
      (all) => ({ ...all, regions: [] }),
      (all) => ({ ...all, architectures: [] }),
      ({ gpu: _, ...others }) => others,
      ({ maxHourlyPriceUsd: _, ...others }) => others,
    ]
    fc.assert(
      fc.property(anyOffers, anyRequirements, anyContext, fc.constantFrom(...less), (offers, all, context, drop) => {
        fc.pre(all.provisioning !== "spotFirst")
        expect(best(offers, drop(all), context)).toBeLessThanOrEqual(best(offers, all, context))
      }),
      { numRuns: 500, seed: SEED },
    )
  })

  test("gives the same answer to the same question, in any order of offers", () => {
    const shuffled = anyOffers.chain((offers) =>
      fc.tuple(fc.constant(offers), fc.shuffledSubarray(offers, { minLength: offers.length })),
    )
    fc.assert(
      fc.property(shuffled, anyRequirements, anyContext, ([offers, others], requirements, context) => {
        expect(route(requirements, catalogue(others), context)).toEqual(route(requirements, catalogue(offers), context))
      }),
      { numRuns: 500, seed: SEED },
    )
  })
})
